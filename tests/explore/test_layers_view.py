"""Layers: lens, contributions and norms on the page are the model's."""

import re

import numpy as np
import pytest
import torch

SENTENCE = "The old farmer helps the child."


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("%", "").strip())


def test_lens_contributions_and_norms(trained, opened):
    trace = trained.trace(SENTENCE)
    model = trained.model
    last = trace.last
    with torch.no_grad():  # the lens after the first layer, by the model's own norm and head
        lens_AW = model.to_logits(model.decoder_norm(last.layers[0].after_TD)).softmax(-1)
    with opened(trained, text=SENTENCE) as at:
        panel = at.view("Layers")
        rows = panel.locator("table.lens tbody tr")
        assert rows.count() == len(last.layers) + 1
        cells = rows.nth(1).locator("td")
        agreement = 100 * (lens_AW.argmax(-1) == trace.logits_AW.argmax(-1)).float().mean()
        assert abs(number(cells.nth(0).inner_text()) - float(agreement)) < 0.6
        about = cells.nth(2).get_attribute("title")  # "word: 12.3 %; …"
        assert abs(number(re.search(r": ([\d.]+) %", about)[1]) - 100 * float(lens_AW[0].max())) < 0.06
        assert rows.last.locator("td").nth(0).inner_text() == "100 %"
        assert rows.last.locator("td").nth(1).inner_text() == "0.00"

        panel.get_by_role("group", name="Answer").get_by_role("button").nth(1).click()
        at.ready("Layers")
        logit = float(trace.logits_AW[1, trace.subject.answers[1].token])
        assert abs(number(panel.locator(".total .sum").inner_text()) - logit) < 1e-3
        shown = sum(number(text) for text in panel.locator(".contributions .bar-value").all_inner_texts())
        assert abs(shown - logit) < 0.02  # each of them is rounded to three digits
        assert "answer=1" in at.page.url

        field = panel.get_by_role("application", name=re.compile("Norms, decoder"))
        field.focus()
        field.press("ArrowDown")
        text = at.page.locator("#live").inner_text()
        assert abs(number(text.rpartition(": ")[2]) - float(last.layers[0].before_TD[0].norm())) < 1e-3


@pytest.mark.parametrize("width", [1400, 900])
def test_the_norms_of_many_tokens_are_not_cut_off(trained, opened, width):
    words = (
        "The old farmer helps the child and the old child sees the dog and the old farmer sees the child and the dog."
    )
    with opened(trained, text=words, width=width, fragment="#view=layers") as at:
        assert at.page.locator("#tokens .line").first.locator(".token").count() >= 27
        norms = at.page.locator("#panel .norms .heatmap-grid")
        assert norms.first.evaluate("element => element.scrollWidth <= element.clientWidth")
        box = norms.first.bounding_box()
        norms.first.locator(".field-of-cells").hover()  # the caption has no say in where the map stands
        assert norms.first.bounding_box()["x"] == box["x"]


def test_views_start_with_the_least_certain_word(trained, language, opened, page_on_disk, from_disk):
    trace = trained.trace(SENTENCE)
    p = [float(p_W[each.token]) for p_W, each in zip(trace.p_AW, trace.subject.answers, strict=True)]
    answer = int(np.argmin(p))
    label = trace.subject.answers[answer].label.strip()
    with opened(trained, text=SENTENCE) as at:
        assert at.view("Output").get_by_role("heading", name=f"Candidates at position {answer + 1}").count() == 1
        assert at.view("Attribution").locator("h2 q").inner_text() == label
        chosen = at.view("Layers").get_by_role("group", name="Answer").locator("[aria-pressed=true]")
        assert chosen.inner_text() == label
    with from_disk(page_on_disk, fragment="#view=attribution&method=occlusion") as at:
        assert at.page.locator("#panel .problem").count() == 0
        assert at.page.locator("#panel h2 q").inner_text() == label
    with opened(language, text="The old") as at:  # of a language model the question is what comes next
        heading = at.view("Output").get_by_role("heading", name=re.compile("Candidates")).inner_text()
        assert heading == f"Candidates at position {len(language.trace('The old').subject.answers)}"


def test_contributions_to_another_word_than_the_answer(trained, opened):
    trace = trained.trace(SENTENCE)
    with opened(trained, text=SENTENCE, fragment="#view=layers&answer=1") as at:
        panel = at.ready("Layers")
        field = panel.get_by_label("Another token instead")
        field.fill("Kind")
        field.press("Enter")
        panel.get_by_role("group", name="Matches").get_by_role("button").first.click()
        panel.get_by_role("button", name="Back to the answer").wait_for()
        words = [trace.subject.name_of(token).strip() for token in range(trace.logits_AW.shape[1])]
        logit = float(trace.logits_AW[1, words.index("Kind")])
        assert abs(number(panel.locator(".total .sum").inner_text()) - logit) < 1e-3


@pytest.mark.parametrize(("kind", "called"), [("image_classifier", "class"), ("pixels", "token")])
def test_classes_and_pixels_are_not_called_words(kind, called, request, opened):
    with opened(request.getfixturevalue(kind), fragment="#view=layers") as at:
        panel = at.ready("Layers")
        panel.get_by_label(f"Another {called} instead").wait_for()
        assert not re.search(r"\bwords?\b", panel.inner_text())


def test_the_file_has_the_lens_without_a_network(trained, page_on_disk, from_disk):
    with from_disk(page_on_disk, fragment="#view=layers&answer=0") as at:
        panel = at.ready("Layers")
        logit = trained.trace(SENTENCE).logits_AW[0].max()
        assert abs(number(panel.locator(".total .sum").inner_text()) - float(logit)) < 1e-3
        assert panel.locator(".problem").count() == 0


def test_heads_are_sorted_by_their_scores(trained, opened):
    scores = np.asarray(trained.trace(SENTENCE).heads(["entropy"])["entropy"])
    parts = [part.name for part in trained.trace(SENTENCE).parts() if part.attends]
    cross = {
        (int(part.split(".")[1]) + 1, head + 1): scores[row, head]
        for row, part in enumerate(parts)
        for head in range(scores.shape[1])
        if part.endswith(".cross")
    }
    with opened(trained, text=SENTENCE) as at:
        panel = at.view("Heads")
        panel.get_by_label("sort by").select_option("entropy")
        panel.locator(".sorted").wait_for()
        labels = [button.get_attribute("aria-label") for button in panel.locator(".sorted .head-button").all()]
        shown = [re.fullmatch(r"layer (\d+), head (\d+), entropy ([\d.]+)", label).groups() for label in labels]
        assert len(shown) == len(cross)
        for layer, head, score in shown:
            assert abs(float(score) - cross[int(layer), int(head)]) < 1e-3
        assert [float(score) for *_, score in shown] == sorted((float(score) for *_, score in shown), reverse=True)
        panel.get_by_text("Scores of all heads").click()
        rows = panel.get_by_role("group", name="Scores of all heads").locator("tbody tr")
        rows.first.wait_for()
        assert rows.count() == sum(max(1, part.heads) for part in trained.trace(SENTENCE).parts() if part.attends)
