"""Every task that has layers can be looked into: the page gets an answer to all that it asks, as one file has it."""

import json

import pytest

import regard
from regard import registry
from regard.errors import UsageError
from regard.explore import recording
from regard.explore.questions import QUESTIONS
from regard.explore.recording import recorded, unpacked_answers
from regard.explore.session import Session

LAYERED = [name for name in registry.names("tasks") if name != "embeddings"]


@pytest.fixture
def few_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is alike for every head, position and answer, a few."""
    monkeypatch.setattr(recording, "MOST_ABLATIONS", 8)
    monkeypatch.setattr(recording, "MOST_ATTRIBUTED", 1)
    monkeypatch.setattr(recording, "MOST_CONTRIBUTIONS", 2)


@pytest.mark.parametrize("task", LAYERED)
def test_everything_that_the_page_asks_is_answered(task, tiny_run, few_of_each):
    session = Session([regard.load(tiny_run(task))])
    content, _ = recorded(session)
    session.close()
    answers = unpacked_answers(content)
    asked = {json.loads(key)["what"] for key in answers}
    assert {"overview", "steps", "candidates"} <= asked <= set(QUESTIONS)
    overview = next(each["value"] for key, each in answers.items() if json.loads(key)["what"] == "overview")
    assert overview["difference"] < 1e-4 and overview["answers"]
    assert all(set(each) in ({"value"}, {"error"}) for each in answers.values())


def test_word_vectors_cannot_be_traced(words):
    with pytest.raises(UsageError, match="cannot be traced"):
        Session([words])
