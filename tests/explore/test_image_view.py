"""Image: what lies over the picture is what the model computed."""

import re
from functools import partial

import numpy as np
import pytest
import torch

import regard
from regard.errors import UsageError
from regard.explore.questions import answer
from regard.explore.recording import write_page
from regard.explore.session import Session


def asking(task):
    session = Session([task])
    given = session.examples(0)[0]
    return session.traced(0, given).trace, partial(answer, session, 0, given)


def announced(at):
    """The number announced last."""
    return float(at.page.locator("#live").inner_text().rpartition(": ")[2].replace("−", "-"))


def test_attention_starts_from_where_the_class_is_read(image_classifier):
    trace, ask = asking(image_classifier)
    attention = ask("readout_attention", {"part": "layers.0.mixer"})
    weights_HTS = trace.last.layers[0].part("mixer").attention().weights_BHTS[0]
    np.testing.assert_allclose(attention["values"], weights_HTS.mean(1), atol=1e-6)  # from all patches
    assert attention["read_from"] == "the mean of all patches"


def test_attention_ends_at_the_windows(swin):
    trace, ask = asking(swin)
    windows = ask("image", {})["windows"]
    assert windows["stage 1.1.mixer"] == {"window": [4, 4], "shift": [2, 2]}
    assert windows["stage 2.0.mixer"] == {"window": [4, 4], "shift": [0, 0]}
    for name, cut in windows.items():
        part = next(part for part in trace.parts() if part.name == name)
        high, wide = trace[name.partition(".")[0]].stack.grid
        looks_TT = part.attention().weights_BHTS[0].sum(0) > 0
        rows, columns = np.divmod(np.arange(high * wide), wide)
        # As the page draws it: a line after the shift, or after the first window, and then after every window.
        down, right = (
            np.searchsorted(np.arange(shift or size, side, size), place, side="right")
            for place, side, size, shift in zip((rows, columns), (high, wide), cut["window"], cut["shift"], strict=True)
        )
        together_TT = (down[:, None] == down) & (right[:, None] == right)
        assert np.array_equal(looks_TT.numpy(), together_TT)


def test_biases_are_added_to_the_scores_by_offset(swin, opened, from_disk, tmp_path):
    trace, ask = asking(swin)
    part = next(part for part in trace.parts() if part.name == "stage 1.1.mixer")
    bias = ask("bias", {"part": part.name})
    assert bias["labels"] == [["1", "2"], *[[str(apart) for apart in range(-3, 4)]] * 2]
    attention = part.attention()
    products_HTS = attention.queries_BHTK[0] @ attention.keys_BHSK[0].mT / attention.queries_BHTK.shape[-1] ** 0.5
    added_HTS = attention.scores_BHTS[0] - products_HTS
    query, key = 3 * 8 + 2, 2 * 8 + 5  # patches of one window, which is shifted by 2
    expected_H = added_HTS[:, query, key]
    np.testing.assert_allclose([head[3 + 1][3 - 3] for head in bias["values"]], expected_H, atol=1e-5)
    with pytest.raises(UsageError, match="no biases"):
        ask("bias", {"part": "stage 1.0.feedforward"})

    fragment = "#view=image&part=stage 1.1.mixer&head=1"
    write_page(Session([swin]), tmp_path / "page.html")
    for page in (opened(swin, fragment=fragment), from_disk(tmp_path / "page.html", 1000, fragment)):
        with page as at:
            panel = at.ready("Image")
            assert panel.locator(".problem").count() == 0
            field = panel.get_by_role("application", name=re.compile("^Biases of stage 1, layer 2, head 2"))
            for key in (
                "ArrowDown",
                "ArrowDown",
                "ArrowDown",
                "ArrowDown",
                "ArrowDown",
            ):  # the first key only shows the cell
                field.press(key)
            assert at.page.locator("#live").inner_text().startswith("+1 → −3: ")
            assert announced(at) == pytest.approx(float(expected_H[1]), abs=1e-3)
            assert panel.get_by_role("group", name="Biases of all heads").get_by_role("button").count() == 2


def test_greedy_completion_takes_the_likeliest_pixel_each_time(pixels):
    session = Session([pixels])
    completed = answer(session, 0, session.first, "complete", {"keep": 0.75})
    whole, begun = (session.traced(0, given).trace for given in ({"image": completed["picture"]}, session.first))
    given = completed["rows"] * 8
    assert completed["rows"] == 6
    assert whole.subject.tokens[0][: given + 1] == begun.subject.tokens[0][: given + 1]
    likeliest = whole.logits_AW[:, :-1].argmax(-1).tolist()  # the last word is <start>
    assert [each.token for each in whole.subject.answers[given:]] == likeliest[given:]


def test_the_box_and_the_mask_are_those_of_the_run(tiny_run):
    detector, segmenter = (regard.load(tiny_run(task)) for task in ("detect", "segment"))
    trace, ask = asking(detector)
    boxes = ask("image", {})["boxes"]
    box = np.array(boxes["all"][boxes["chosen"]]) * 16  # the side of the image
    image_1CHW = detector.scaled.pixels(torch.from_numpy(trace.subject.picture_HWC)[None])
    with torch.inference_mode():
        logits, boxes = detector.model(image_1CHW)
    scores_LK = detector.model.scores(logits)[0]
    np.testing.assert_allclose(box, boxes[0, int(scores_LK.amax(1).argmax())], atol=1e-4)

    trace, ask = asking(segmenter)
    classes = ask("image", {})["mask"]["classes"]
    [segmented] = segmenter.segment([trace.subject.picture_HWC])
    assert {each["label"]: pytest.approx(each["share"]) for each in classes} == segmented.shares


def test_numbers_over_the_picture_are_the_models(image_classifier, opened):
    with opened(image_classifier) as at:
        trace = at.session.traced(0, at.session.first).trace
        weights_HTS = trace.last.layers[0].part("mixer").attention().weights_BHTS[0]
        panel = at.view("Image")
        rolled = panel.get_by_role("application", name=re.compile("^Attention rollout"))
        for key in ("ArrowRight", "ArrowRight", "ArrowDown"):  # the first key only shows the current cell
            rolled.press(key)
        columns = trace.last.stack.grid[1]
        assert announced(at) == pytest.approx(trace.attribute("rollout")["layers"].values[columns + 1], abs=1e-3)

        panel.get_by_role("button", name="head 2", exact=True).click()
        at.ready()
        field = panel.get_by_role("application", name=re.compile("^Attention of layer 1, head 2"))
        field.press("ArrowRight")
        assert announced(at) == pytest.approx(float(weights_HTS[1].mean(0)[0]), abs=1e-3)
        field.press("ArrowRight")
        field.press("Enter")  # attend from the second patch
        at.ready()
        assert "Attention from the patch in row 1, column 2." in panel.inner_text()
        field.press("ArrowRight")  # the current cell: the chosen patch
        assert announced(at) == pytest.approx(float(weights_HTS[1, 1, 1]), abs=1e-3)
        measured = trace.attribute("rollout").faithful()
        row = panel.get_by_role("row", name=re.compile("^deletion")).inner_text().split()
        assert [float(row[1]), float(row[2])] == pytest.approx([measured.deletion, measured.deletion_random], abs=1e-3)


def test_hovering_over_a_pixel_shows_what_it_attended_to(pixels, opened, from_disk, tmp_path):
    session = Session([pixels])
    completed = {"image": answer(session, 0, session.first, "complete", {})["picture"]}
    trace = session.traced(0, completed).trace
    weights_S = (
        trace.last.layers[-1].part("mixer").attention().weights_BHTS[0, 0, 1]
    )  # where the second pixel is predicted
    write_page(session, tmp_path / "page.html")
    for give in (partial(opened, pixels), partial(from_disk, tmp_path / "page.html")):
        with give(fragment="#view=image") as at:
            field = at.page.get_by_role("application", name=re.compile("^The completed image"))
            field.press("ArrowRight")
            field.press("ArrowRight")
            shown = at.page.locator("#panel").get_by_text("row 1, column 2: p = ")
            shown.wait_for()
            probability, weight = (float(number) for number in re.findall(r"\d\.\d+", shown.inner_text()))
            assert probability == pytest.approx(float(trace.p_AW[1, trace.subject.answers[1].token]), abs=1e-3)
            assert weight == pytest.approx(float(weights_S[1]), abs=1e-3)  # the first pixel comes after <start>
            assert at.page.locator("#panel .problem").count() == 0


def test_words_of_a_caption_attend_to_patches(tiny_run, opened):
    captioner = regard.load(tiny_run("caption"))
    with opened(captioner, fragment="#view=image&answer=1&part=decoder.0.cross") as at:
        panel = at.page.locator("#panel")
        trace = at.session.traced(0, at.session.first).trace
        weights_S = trace["decoder"].layers[0].part("cross").attention().weights_BHTS[0, 0, 1]
        panel.get_by_role("application", name=re.compile("^Attention of decoder → encoder")).press("ArrowRight")
        before = trace["encoder"].stack.before
        assert announced(at) == pytest.approx(float(weights_S[before]), abs=1e-3)
