"""Compare: two runs on one input, two inputs of one run, and what cannot be compared."""

import re

import pytest

import regard
from regard.errors import UsageError
from regard.explore.recording import write_page
from regard.explore.session import Session

TEXT = "the old farmer"


@pytest.fixture(scope="module")
def other(train_once, texts):
    """Another model of the same characters."""
    settings = ["data.text=text.txt", "training.steps=2", "training.tokens_per_batch=128", "training.row_length=64"]
    settings += ["model.layers=1", "model.width=32", "model.heads=4", "model.feedforward=32"]
    return train_once("language-other", "shakespeare-cpu", *settings, "training.validate_every=2", data=texts)


def shown_difference(at):
    field = at.page.get_by_role("application", name=re.compile("^B − A"))
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):  # the first only says where one is
        field.press(key)
    return float(at.page.locator("#live").inner_text().rpartition(": ")[2].replace("−", "-"))


def test_two_runs_have_one_scale_and_a_difference(language, other, opened, from_disk, tmp_path):
    weights = [run.trace(TEXT).last.layers[0].part("mixer").attention().weights_BHTS[0, 1] for run in (language, other)]
    probabilities = [run.trace(TEXT).p_AW for run in (language, other)]
    fragment = "#view=compare&part=layers.0.mixer&head=1"
    write_page(Session([language, other], {"text": TEXT}), tmp_path / "page.html")
    for page in (
        opened(language, other, text=TEXT, fragment=fragment),
        from_disk(tmp_path / "page.html", 1400, fragment),
    ):
        with page as at:
            assert shown_difference(at) == pytest.approx(float(weights[1][2, 1] - weights[0][2, 1]), abs=2e-3)
            cells = at.page.locator("#panel table tbody tr").first.locator("td").all_inner_texts()
            said = [answer.token for answer in language.trace(TEXT).subject.answers]
            p = [float(each[0, said[0]]) for each in probabilities]
            assert [float(cells[1]), float(cells[3])] == pytest.approx(p, abs=1e-3)
            assert at.page.locator("#panel .problem").count() == 0


def test_two_inputs_of_one_run_say_why_there_is_no_difference(language, opened):
    with opened(language, text=TEXT) as at:
        panel = at.view("Compare")
        form = panel.get_by_role("form", name="Second input")
        form.get_by_label("Text").fill("a child sleeps")
        form.get_by_role("button", name="Compare").click()
        at.ready("Compare")
        panel.get_by_text("the tokens differ").wait_for()
        assert "a child sleeps" in panel.inner_text()


def test_runs_that_read_other_things_are_refused(trained, image_classifier, language, tiny_run):
    with pytest.raises(UsageError, match="cannot be shown beside"):
        Session([trained, image_classifier])
    with pytest.raises(UsageError, match="cannot be shown beside"):
        Session([language, regard.load(tiny_run("play"))])
    session = Session([trained, language], {"text": TEXT, "target": "der"})
    assert session.input_for(1, session.first) == {"text": TEXT}
