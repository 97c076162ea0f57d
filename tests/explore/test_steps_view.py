"""Steps: what is on the page is what the model computed, step by step, and every number can be taken apart."""

import re

import numpy as np
import pytest

from regard.explore.arrays import Matrix, unpack
from regard.explore.matrices import tensor

SENTENCE = "The old farmer helps the child."


def number(text: str) -> float:
    return float(text.strip().replace("−", "-"))


def the_number(panel) -> float:
    return number(panel.locator(".the-number").inner_text())


def sum_of_terms(panel) -> float:
    """The sum of the terms in the last table of the arithmetic, as shown."""
    rows = panel.locator(".arithmetic table").last.locator("tbody tr:not(.total)")
    return sum(number(text) for text in rows.locator("td:last-child").all_inner_texts())


def test_a_walk_through_a_decoder_shows_the_models_numbers(trained, opened):
    trace = trained.trace(SENTENCE)
    layer = trace["decoder"].layers[0]
    own, cross = layer.part("mixer").attention(), layer.part("cross").attention()
    with opened(trained, text=SENTENCE, fragment="#view=steps&stack=decoder&position=2&head=1&step=mixer.scores") as at:
        panel = at.ready("Steps")
        best = int(own.scores_BHTS[0, 1, 2].argmax())
        assert the_number(panel) == pytest.approx(float(own.scores_BHTS[0, 1, 2, best]), abs=1e-3)
        width = own.queries_BHTK.shape[-1]
        assert sum_of_terms(panel) / width**0.5 == pytest.approx(the_number(panel), abs=1e-3)

        at.page.keyboard.press("ArrowRight")
        panel.get_by_role("heading", name=re.compile("^Softmax, layer 1, position 3")).wait_for()
        assert the_number(panel) == pytest.approx(float(own.weights_BHTS[0, 1, 2].max()), abs=1e-3)

        panel.get_by_role("navigation", name="All steps").get_by_role("button", name="Weighted values").nth(1).click()
        panel.get_by_role("heading", name=re.compile("^Weighted values")).wait_for()
        assert panel.get_by_role("heading", name=re.compile("^the encoder's values V")).count() == 1
        field = panel.get_by_role("application", name=re.compile("^z, head 2"))
        field.focus()
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "Enter"):  # the first key only shows the current cell
            field.press(key)
        panel.locator('.arithmetic[data-cell*=",2,2]"]').wait_for()
        value = float(cross.heads_BHTV[0, 1, 2, 2])
        assert number(panel.locator(".vector .reading").last.inner_text().partition(":")[2]) == pytest.approx(
            value, abs=1e-3
        )
        assert the_number(panel) == pytest.approx(value, abs=1e-3)
        assert sum_of_terms(panel) == pytest.approx(value, abs=1e-3)

        panel.locator(".arithmetic tr").first.locator(
            ".term"
        ).last.click()  # one of its terms: a value of the encoder, which is taken apart in turn
        panel.locator('.arithmetic[data-cell*="cross.values"]').wait_for()
        assert sum_of_terms(panel) == pytest.approx(the_number(panel), abs=1e-3)
        assert "cross.values" in at.page.url


def test_the_walk_leads_into_the_next_layer_and_to_the_probabilities(trained, opened):
    trace = trained.trace(SENTENCE)
    with opened(trained, text=SENTENCE, fragment="#view=steps&stack=decoder&position=1&step=feedforward.wrote") as at:
        panel = at.ready("Steps")
        titles = []

        def walk(steps: int) -> None:
            for _ in range(steps):
                title = panel.locator("h2").inner_text()
                panel.get_by_role("button", name="Next →").click()
                panel.locator("h2", has_not_text=title).wait_for()
                titles.append(panel.locator("h2").inner_text())
                assert panel.locator(".problem").count() == 0, titles[-1]

        walk(3)
        panel.get_by_role("button", name="Contract").click()
        panel.get_by_role("heading", name="Contract, layer 2").wait_for()
        walk(4)
        assert [title.partition(", ")[0] for title in titles[:3]] == ["Residual", "To layer 2", "Norm"]
        assert "layer 2" in titles[2]
        assert [title.partition(", ")[0] for title in titles[-2:]] == ["Logits", "Probabilities"]
        assert panel.get_by_role("button", name="Next →").is_disabled()
        best = float(trace.p_AW[1].max())
        assert the_number(panel) == pytest.approx(best, abs=1e-3)
        assert number(panel.locator(".bar-value").first.inner_text().rstrip(" %")) / 100 == pytest.approx(
            best, abs=1e-3
        )


def test_the_file_computes_the_arithmetic_it_has_the_numbers_for(trained, page_on_disk, from_disk):
    traced = trained.trace(SENTENCE)["encoder"].layers[1].part("mixer").attention()
    with from_disk(page_on_disk, fragment="#view=steps&layer=1&head=3&position=2&step=mixer.weights") as at:
        panel = at.ready("Steps")
        assert the_number(panel) == pytest.approx(float(traced.weights_BHTS[0, 3, 2].max()), abs=1e-3)
        panel.get_by_role("button", name="Scores").click()
        panel.get_by_role("heading", name=re.compile("^Scores")).wait_for()
        assert the_number(panel) == pytest.approx(float(traced.scores_BHTS[0, 3, 2].max()), abs=2e-3)
        panel.get_by_role("button", name="Expand").click()
        assert "regard explore" in panel.locator(".arithmetic .problem").inner_text(), "weights are not in the file"


def test_the_walk_through_an_image_fits_a_small_screen(image_classifier, opened):
    with opened(image_classifier, width=400, fragment="#view=steps&step=token") as at:
        panel = at.ready("Steps")
        position = image_classifier.subject(at.session.images[at.session.first["image"]]).last.before
        panel.get_by_label("position", exact=True).select_option(str(position))
        at.ready("Steps")
        token = float(tensor(at.session.traced(0, at.session.first), "layers.token")[position, 0])
        assert the_number(panel) == pytest.approx(token, abs=1e-3)
        assert sum_of_terms(panel) == pytest.approx(token, abs=1e-3), "pixels times weights"
        assert at.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_large_numbers_are_sent_with_more_digits():
    values = np.array([[0.0, -70.123, 3.999, 5e-5], [-np.inf, np.inf, 1e30, -1e-3]], np.float32)
    _, read = unpack(Matrix(values, "long", {}).message())
    np.testing.assert_allclose(read, values, rtol=1.6e-5)
