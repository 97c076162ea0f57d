"""Compare: two runs on one input, two inputs of one run, and what cannot be compared."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe

import regard
from regard.errors import UsageError
from regard.explore.overview import as_png
from regard.explore.recording import write_page
from regard.explore.session import Session

TEXT = "the old farmer"
# Where each bar begins, as a share of its room.
STARTS = """bars => bars.map((bar) => {
    const [own, room] = [bar, bar.parentElement].map((element) => element.getBoundingClientRect());
    return ((bar.classList.contains("negative") ? own.right : own.left) - room.left) / room.width;
})"""
# The number of each bar, and how long it is.
LENGTHS = """lines => lines.map((line) => [
    line.querySelector(".bar-value").innerText, line.querySelector(".bar").getBoundingClientRect().width,
])"""
ROWS = "rows => rows.map((row) => [...row.cells].map((cell) => cell.innerText))"


@pytest.fixture(scope="module")
def other(train_once, texts):
    """Another model of the same characters."""
    settings = ["data.text=text.txt", "training.steps=2", "training.tokens_per_batch=128", "training.row_length=64"]
    settings += ["model.layers=1", "model.width=32", "model.heads=4", "model.feedforward=32"]
    return train_once("language-other", "shakespeare-cpu", *settings, "training.validate_every=2", data=texts)


@pytest.fixture(scope="module")
def both_on_disk(language, other, tmp_path_factory):
    """The page of both runs as one file."""
    path = tmp_path_factory.mktemp("both") / "page.html"
    write_page(Session([language, other], {"text": TEXT}), path)
    return path


def shown_difference(at):
    field = at.page.get_by_role("application", name=re.compile("^B − A"))
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):  # the first key only shows the current cell
        field.press(key)
    return float(at.page.locator("#live").inner_text().rpartition(": ")[2].replace("−", "-"))


def test_two_runs_have_one_scale_and_a_difference(language, other, both_on_disk, opened, from_disk):
    weights = [run.trace(TEXT).last.layers[0].part("mixer").attention().weights_BHTS[0, 1] for run in (language, other)]
    probabilities = [run.trace(TEXT).p_AW for run in (language, other)]
    fragment = "#view=compare&part=layers.0.mixer&head=1"
    for page in (
        opened(language, other, text=TEXT, fragment=fragment),
        from_disk(both_on_disk, 1400, fragment),
    ):
        with page as at:
            assert shown_difference(at) == pytest.approx(float(weights[1][2, 1] - weights[0][2, 1]), abs=2e-3)
            cells = at.page.locator("#panel table tbody tr").first.locator("td").all_inner_texts()
            output = [answer.token for answer in language.trace(TEXT).subject.answers]
            p = [float(each[0, output[0]]) for each in probabilities]
            assert [float(cells[1]), float(cells[3])] == pytest.approx(p, abs=1e-3)
            assert at.page.locator("#panel .problem").count() == 0


def numbers_of(panel, label):
    """The table below a picture: A, B and B − A for every name."""
    summary = panel.locator("summary", has_text=f"Numbers: {label}")
    if not summary.evaluate("element => element.parentElement.open"):
        summary.click()
    rows = panel.get_by_role("group", name=f"Numbers: {label}").locator("tbody tr").evaluate_all(ROWS)
    return {name: [as_number(cell) for cell in cells] for name, *cells in rows}


def as_number(text):
    return None if text == "–" else float(text.replace("−", "-"))


def as_shown(character):
    return {" ": "␣", "\n": "⏎"}.get(character, character)


def sums_by_part(parts):
    """Contributions summed over the heads of a part, by its name on the page."""
    names = {"mixer": "self-attention", "feedforward": "feed-forward"}
    sums: dict[str, float] = {}
    for label, value in zip(parts.labels[0], parts.values, strict=True):
        _, *site = label.split(".")
        name = f"layer {int(site[0]) + 1}, {names[site[1]]}" if site else label
        sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def test_candidates_and_contributions_stand_side_by_side(language, other, both_on_disk, opened, from_disk):
    traces = [run.trace(TEXT) for run in (language, other)]
    answer = len(traces[0].subject.answers) - 1  # what comes next
    output = traces[0].subject.answers[answer].label
    assert output != traces[1].subject.answers[answer].label
    for page in (
        opened(language, other, text=TEXT, fragment="#view=compare"),
        from_disk(both_on_disk, 1400, "#view=compare"),
    ):
        with page as at:
            panel = at.ready("Compare")
            assert panel.locator(".problem").count() == 0 and Axe().run(at.page).violations_count == 0
            rows = numbers_of(panel, "Candidates")
            candidates = [trace.candidates(20).probabilities for trace in traces]
            shown = [map(as_shown, each.notes["words"][answer]) for each in candidates]
            likely = [
                dict(zip(words, each.values[answer], strict=True))
                for words, each in zip(shown, candidates, strict=True)
            ]
            assert set(rows) == {word for each in likely for word in list(each)[:8]}
            for word, (a, b, difference) in rows.items():
                p = [each.get(word) for each in likely]
                assert [a, b] == [None if each is None else pytest.approx(each, abs=1e-4) for each in p]
                assert difference is None if None in p else difference == pytest.approx(p[1] - p[0], abs=1e-4)

            starts = [
                column.locator(".bar").evaluate_all(STARTS)
                for column in panel.locator(".compared-candidates .bars-beside").all()
            ]
            assert {*starts[0], *starts[1]} == {0.0}  # probabilities begin at the left
            assert all(each == pytest.approx(0.5, abs=0.01) for each in starts[2])  # differences in the middle

            rows = numbers_of(panel, "Contributions")
            expected = [sums_by_part(trace.contributions(answer, output)) for trace in traces]
            assert set(rows) == {*expected[0], *expected[1]}
            for name, (a, b, difference) in rows.items():
                both = [each.get(name) for each in expected]
                assert [a, b] == [None if each is None else pytest.approx(each, abs=1e-3) for each in both], name
                assert difference is None if None in both else difference == pytest.approx(both[1] - both[0], abs=1e-3)
            # On one scale: a bar is as long as its number, whichever side it is of. Bars that begin at the left have
            # twice the room of those that begin in the middle.
            lengths = []
            for column in panel.locator(".compared-contributions .bars-beside").all():
                half = "half as long" in column.locator("h3").inner_text()
                for number, length in column.locator(".bar-line").evaluate_all(LENGTHS):
                    lengths.append((abs(as_number(number) or 0), length * (2 if half else 1)))
            longest = max(lengths)
            assert all(width == pytest.approx(longest[1] * size / longest[0], abs=3) for size, width in lengths)


def test_the_answer_that_is_compared_can_be_chosen(language, other, opened):
    with opened(language, other, text=TEXT, fragment="#view=compare") as at:
        panel = at.ready("Compare")
        panel.get_by_role("group", name=re.compile("^answers of A")).get_by_role("button").nth(2).click()
        panel.get_by_role("heading", name="Candidates, answer 3 of A and 3 of B").wait_for()
        at.ready("Compare")
        trace = language.trace(TEXT)
        word = trace.subject.answers[2].label
        expected = sums_by_part(trace.contributions(2))
        rows = numbers_of(panel, "Contributions")
        assert {name: a for name, (a, *_) in rows.items() if a is not None} == pytest.approx(expected, abs=1e-3)
        assert f"A: {as_shown(word)}" in panel.locator(".compared-contributions h3").first.inner_text()


def test_what_heads_do_is_compared_by_every_score(language, other, opened):
    scores = [run.trace(TEXT).heads("entropy")["entropy"].values for run in (language, other)]
    with opened(language, other, text=TEXT, fragment="#view=compare") as at:
        panel = at.ready("Compare")
        panel.get_by_text("Scores of all heads, on both sides").click()
        field = panel.get_by_role("application", name=re.compile("^entropy, B − A"))
        field.press("ArrowRight")
        field.press("ArrowRight")  # the first key only shows the current cell
        shown = at.page.locator("#live").inner_text().rpartition(": ")[2]
        assert as_number(shown) == pytest.approx(float(scores[1][0, 1] - scores[0][0, 1]), abs=1e-3)
        panel.get_by_label("score").select_option("self")
        panel.get_by_role("application", name=re.compile("^itself, B − A")).wait_for()


def test_two_images_stand_side_by_side(image_classifier, opened):
    with opened(image_classifier, fragment="#view=compare") as at:
        panel = at.ready("Compare")
        first, shown_first, second = (example["image"] for example in at.session.examples(0)[:3])
        chooser = panel.get_by_role("form", name="Second input").get_by_label("Image", exact=True)
        assert chooser.input_value() == shown_first
        chooser.select_option(second)
        panel.get_by_role("heading", name=second.removeprefix("samples/")).first.wait_for()
        at.ready("Compare")
        sources = [panel.locator(".compared-image").nth(n).get_attribute("src") for n in range(2)]
        inputs = [at.session.traced(0, {"image": image}) for image in (first, second)]
        assert sources == [as_png(traced.trace.subject.picture_HWC) for traced in inputs] and sources[0] != sources[1]
        field = panel.get_by_role("application", name=re.compile("over the image of B"))
        field.press("ArrowRight")
        weights_HTS = inputs[1].trace.last.layers[-1].part("mixer").attention().weights_BHTS[0]
        shown = at.page.locator("#live").inner_text().rpartition(": ")[2]
        assert as_number(shown) == pytest.approx(float(weights_HTS[0].mean(0)[0]), abs=1e-4)
        assert "the images differ" in panel.inner_text()


def test_one_image_in_two_runs_has_a_difference_of_heads(image_classifier, swin, opened, from_disk, tmp_path):
    session = Session([image_classifier, image_classifier])
    write_page(session, tmp_path / "page.html")
    session.close()
    with from_disk(tmp_path / "page.html", 1400, "#view=compare&head=1") as at:
        panel = at.ready("Compare")
        assert panel.locator(".problem").count() == 0
        panel.get_by_role("application", name=re.compile("^layer 1, head 2, over the image, B − A")).press("ArrowRight")
        assert as_number(at.page.locator("#live").inner_text().rpartition(": ")[2]) == 0
    with opened(image_classifier, swin, fragment="#view=compare") as at:  # other stacks, other parts
        panel = at.ready("Compare")
        assert panel.locator(".problem").count() == 0
        assert "the two models have different stacks" in panel.inner_text()
        expected = sums_by_part(at.session.traced(0, at.session.first).trace.contributions())
        rows = numbers_of(panel, "Contributions")
        assert {name: a for name, (a, *_) in rows.items() if a is not None} == pytest.approx(expected, abs=1e-3)


def test_the_file_says_what_it_lacks(both_on_disk, from_disk):
    with from_disk(both_on_disk, 1400, "#view=compare") as at:
        assert "are not in this file" in at.ready("Compare").locator(".note").first.inner_text()
        assert at.page.get_by_role("form", name="Second input").count() == 0


def test_the_second_input_starts_as_another_example(trained, opened):
    with opened(trained, fragment="#view=compare") as at:
        panel = at.ready("Compare")
        first, second = (example["text"] for example in at.session.examples(0))
        assert (
            first != second
            and panel.get_by_role("form", name="Second input").get_by_label("Text").input_value() == second
        )
        traced = at.session.traced(0, {"text": second})
        assert panel.locator(".output-of strong").nth(1).inner_text() == traced.trace.output_text


def test_the_second_input_starts_as_a_copy_where_there_is_no_other_example(language, opened):
    with opened(language, text=language.example, fragment="#view=compare") as at:
        panel = at.ready("Compare")
        assert panel.get_by_role("form", name="Second input").get_by_label("Text").input_value() == language.example
        assert "copy of A" in panel.inner_text()


def test_two_inputs_of_one_run_say_why_there_is_no_difference(language, opened):
    with opened(language, text=TEXT) as at:
        panel = at.view("Compare")
        form = panel.get_by_role("form", name="Second input")
        form.get_by_label("Text").fill("a child sleeps")
        form.get_by_role("button", name="Compare").click()
        at.ready("Compare")
        panel.get_by_text("the tokens differ").wait_for()
        assert "a child sleeps" in panel.inner_text()


def test_runs_with_different_kinds_of_input_are_refused(trained, image_classifier, language, tiny_run):
    with pytest.raises(UsageError, match="cannot be shown beside"):
        Session([trained, image_classifier])
    with pytest.raises(UsageError, match="cannot be shown beside"):
        Session([language, regard.load(tiny_run("play"))])
    session = Session([trained, language], {"text": TEXT, "target": "der"})
    assert session.input_for(1, session.first) == {"text": TEXT}
