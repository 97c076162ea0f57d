"""Image: what lies over the picture is what the model computed."""

import re
from functools import partial

import numpy as np
import pytest
import torch

import regard
from command import regard as command
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


def test_a_patch_of_a_segmenter_is_chosen_in_the_picture(tiny_run, opened):
    segmenter = regard.load(tiny_run("segment"))
    with opened(segmenter, fragment="#view=image") as at:
        trace = at.session.traced(0, at.session.first).trace
        rows, columns = trace.last.stack.grid
        panel = at.page.locator("#panel")

        def assert_explained(answer):
            label, p = trace.subject.answers[answer].label, float(trace.p_AW[answer].max())
            told = panel.get_by_text("Explained: the patch in").inner_text()
            row, column = divmod(answer, columns)
            assert told.startswith(
                f"Explained: the patch in row {row + 1}, column {column + 1}, which is {label} (p = "
            )
            assert float(re.search(r"p = ([\d.]+)\)", told)[1]) == pytest.approx(p, abs=1e-3)
            frames = panel.locator(".picture-chosen")
            assert {(each.get_attribute("x"), each.get_attribute("y")) for each in frames.all()} == {
                (str(column), str(row))
            }
            assert frames.count() == 4  # the picture, rollout, occlusion, and the large head
            assert panel.locator(".problem").count() == 0

        assert_explained(trace.first_answer)
        other = (trace.first_answer + columns + 1) % (rows * columns)
        picture = panel.get_by_role("application", name=re.compile("^Occlusion"))
        box = picture.bounding_box()
        row, column = divmod(other, columns)
        picture.click(position={"x": (column + 0.5) * box["width"] / columns, "y": (row + 0.5) * box["height"] / rows})
        at.page.wait_for_url(re.compile(f"answer={other}"))
        at.ready("Image")
        assert_explained(other)
        drops = trace.attribute("occlusion", other)["layers"].values[trace.last.stack.before :]
        field = panel.get_by_role("application", name=re.compile("^Occlusion"))
        field.press("ArrowRight")
        field.press("ArrowLeft" if column else "ArrowRight")
        assert announced(at) == pytest.approx(float(drops[other - 1 if column else other + 1]), abs=1e-3)
        weights_HS = trace.last.layers[-1].part("mixer").attention().weights_BHTS[0, :, trace.last.stack.before + other]
        field = panel.get_by_role("application", name=re.compile("^Attention of"))
        field.press("ArrowRight")
        assert announced(at) == pytest.approx(float(weights_HS[0, trace.last.stack.before + other]), abs=1e-3)
        at.view("Output")
        assert f"answer={other}" in at.page.url
        assert at.page.locator("#head .model-output strong").inner_text() == trace.output_text


def test_the_file_has_the_explained_patch(tiny_run, from_disk, tmp_path):
    session = Session([regard.load(tiny_run("segment"))])
    first = session.traced(0, session.first).trace.first_answer
    write_page(session, tmp_path / "page.html")
    with from_disk(tmp_path / "page.html", fragment="#view=image") as at:
        panel = at.ready("Image")
        assert panel.locator(".problem").count() == 0
        assert "Explained: the patch in" in panel.inner_text()
        assert panel.locator(".picture-chosen").count() == 4
        for view in ("Layers", "Attribution", "Output", "Steps"):
            assert at.view(view).locator(".problem").count() == 0
    assert first == session.traced(0, session.first).trace.first_answer


def test_a_box_is_chosen_by_its_number(tiny_run, opened, monkeypatch):
    monkeypatch.setattr("regard.tasks.detect.SURE", 0.0)  # an untrained detector is not sure of any
    detector = regard.load(tiny_run("detect"))
    with opened(detector, fragment="#view=image") as at:
        first = at.session.traced(0, at.session.first)
        count = len(first.trace.subject.boxes)
        assert count > 2
        field = at.page.get_by_label("Box", exact=True)
        assert (field.input_value(), field.get_attribute("max")) == ("1", str(count))
        assert f"of {count}" in at.page.locator("#head form").inner_text()
        field.fill("2")
        field.press("Enter")
        at.page.wait_for_url(re.compile("box%22%3A2"))
        panel = at.ready("Image")
        second = at.session.traced(0, {**at.session.first, "box": 2})
        assert at.page.locator("#head .model-output strong").inner_text() == second.trace.output_text
        assert second.trace.output_text != first.trace.output_text
        frames = panel.locator(".picture-box")
        widths = [each.evaluate("it => getComputedStyle(it).strokeWidth") for each in frames.all()]
        assert len(widths) == count and sorted(widths)[-1] == widths[-1] == "3px" and widths.count("1px") == count - 1
        left, _, right, _ = second.trace.subject.boxes[1]
        columns = second.trace.last.stack.grid[1] / 16  # of the picture's side
        assert float(frames.last.get_attribute("width")) == pytest.approx((right - left) * columns, abs=1e-3)
        field = at.page.get_by_label("Box", exact=True)
        field.fill("1")
        field.press("Enter")
        at.page.wait_for_url(re.compile("^(?!.*box)"))
        at.ready("Image")
        assert at.page.locator("#head .model-output strong").inner_text() == first.trace.output_text

        at.page.get_by_label("Box", exact=True).fill("3")  # of this image; another one has boxes of its own
        at.page.get_by_label("Open an image of your own").set_input_files(at.session.image(at.session.first["image"]))
        at.page.wait_for_url(re.compile("^(?!.*box).*sent"))
        at.ready("Image")
        assert at.page.get_by_label("Box", exact=True).input_value() == "1"


def test_a_box_that_does_not_exist_is_an_error_in_three_lines(tiny_run):
    session = Session([regard.load(tiny_run("detect"))])
    for wrong, says in ((99, "There is no box 99"), ("99", "There is no box 99"), ("x", "not a number"), (-1, "not a")):
        with pytest.raises(UsageError, match=says) as refused:
            session.traced(0, {**session.first, "box": wrong})
        assert len(str(refused.value).splitlines()) == 3
    alike = [session.traced(0, {**session.first, "box": box}) for box in (1, "1", "", None)]
    assert all(each is session.traced(0, session.first) for each in alike)


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


def test_the_command_begins_with_any_box_and_refuses_one_that_is_not_there(tiny_run, tmp_path):
    run = tiny_run("detect")
    image = next((run / "samples").glob("*.png"))
    for box, says in (("99", "There is no box 99."), ("0", "--box cannot be 0.")):
        error = command("explore", run, image, "--box", box, "-o", tmp_path / "no.html", code=2).error
        assert says in error[0] and len(error) == 3
    assert not any(tmp_path.iterdir())
