"""Mixers: influence, filters and operators on the page are the model's."""

import re

import numpy as np
import pytest
import torch
from asking import ask

from regard.explore.mixers import FEW_GRADIENTS
from regard.explore.recording import write_page
from regard.explore.session import Session

SENTENCE = "The old farmer helps the child."
PART = "layers.0.mixer"


def test_operator_filters_and_influence_are_the_models(hyena, opened):
    text = "The old farmer"
    trace = hyena.trace(text)
    part = trace.last.layers[0].part("mixer")
    mixer = part.module
    with torch.no_grad():
        back_DK, _ = mixer.filters(len(text))[0]
    with opened(hyena, text=text, fragment="#view=mixers&channel=3") as at:
        panel = at.ready("Mixers")
        field = panel.get_by_role("application", name=re.compile("first convolution as a matrix, channel 4"))
        field.focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):  # the first key only shows the current cell
            field.press(key)
        shown = at.page.locator("#live").inner_text().rpartition(": ")[2].replace("−", "-")
        assert abs(float(shown) - float(back_DK[3, 2 - 1])) < 1e-3
        exact = panel.locator(".exact-operator").inner_text().replace("−", "-")
        assert float(re.search(r"at most ([\de.+-]+)\.$", exact)[1]) < 1e-4

        field = panel.get_by_role("application", name=re.compile("Influence, all layers"))
        field.focus()
        field.press("ArrowDown")
        shown = at.page.locator("#live").inner_text().rpartition(": ")[2]
        assert abs(float(shown) - trace.influence().values[0, 0]) < 2e-3


def test_the_operator_applied_to_v_is_the_layers_output(hyena):
    part = hyena.trace("The old farmer").last.layers[0].part("mixer")
    matrix = np.array(ask(hyena, "operator", {"text": "The old farmer"}, part=PART, channel=5)["values"])
    with torch.no_grad():
        x_1TD = part.read_TD[None]
        v_DT = part.module.streams(x_1TD, part.context)[0][0]
        gathered_DT = part.module.gathered(x_1TD, part.context)[0]
    assert np.abs(matrix @ v_DT[5].numpy() - gathered_DT[5].numpy()).max() < 1e-4


def test_filters_cover_some_channels_or_one(hyena):
    some = ask(hyena, "filters", {"text": "The"}, part=PART)
    assert some["channels"] == 16 and some["shown"] == [0, 4, 8, 11, 15]
    assert [each["direction"] for each in some["filters"]] == ["back"]
    with torch.no_grad():
        h_DK = hyena.model.trunk.blocks[0].mixer.filters(32)[0][0]
    np.testing.assert_allclose(some["filters"][0]["values"], h_DK[some["shown"]], atol=1e-6)
    assert ask(hyena, "filters", {"text": "The"}, part=PART, channel=7)["shown"] == [7]


def test_influence_is_exact_when_asked(trained):
    first = {"text": SENTENCE}
    trace = trained.trace(SENTENCE)
    exact = ask(trained, "influence", first, part="decoder.0.mixer", exact=True)
    assert exact["exact"]
    np.testing.assert_allclose(
        exact["values"], trace.influence(part="decoder.0.mixer", probes=64).values, rtol=1e-5, atol=1e-6
    )
    numbers = trace.last.layers[0].before_TD.numel()
    assert ask(trained, "influence", first)["exact"] == (numbers <= FEW_GRADIENTS)


def test_the_file_has_the_initial_mixers_view(page_on_disk, from_disk):
    with from_disk(page_on_disk, fragment="#view=mixers") as at:
        panel = at.ready("Mixers")
        assert panel.get_by_role("application", name=re.compile("Influence, decoder")).count() == 1
        assert panel.locator(".problem, select").count() == 0


@pytest.mark.parametrize(("text", "included"), [(SENTENCE, True), (SENTENCE * 2, False)])
def test_a_file_says_that_something_is_shown_only_if_it_is(language, from_disk, tmp_path, text, included):
    write_page(Session([language], {"text": text}), tmp_path / "page.html")
    with from_disk(tmp_path / "page.html", fragment="#view=mixers") as at:
        shown = at.ready("Mixers").inner_text()
        assert ("Shown: all layers. The live page has the others." in shown) == included
        assert ("This is not in the file." in shown) == (not included)
