"""`regard answer` and `regard explain` as a person types them."""

from __future__ import annotations

import json

import pytest

import regard
from command import regard as command

SHORT = ["model.layers=1", "model.width=16", "model.heads=2", "model.feedforward=16", "tokenizer.kind=word"]
SHORT += ["training.steps=2", "training.validate_every=2", "training.warmup=1", "data.max_length=64"]
SHORT += ["training.row_length=64", "training.tokens_per_batch=512", "data.no_answer=false"]
CONTEXT = "Mary went to the kitchen. John took the ball.\n"


@pytest.fixture(scope="session")
def answers_run(made_once, questions):
    return made_once("answers", lambda out: regard.train("starter-answer", *SHORT, out=out, data=questions))


def test_an_answer_is_shown_in_its_sentence_and_is_the_same_from_a_file_and_standard_input(answers_run, tmp_path):
    (tmp_path / "context.txt").write_text(CONTEXT)
    question = "Where is Mary?"
    from_file = command("answer", answers_run, question, "--context", tmp_path / "context.txt", "--top", "3", "--json")
    piped = command("answer", answers_run, question, "--top", "3", "--json", stdin=CONTEXT)
    assert from_file.stdout == piped.stdout
    [asked] = json.loads(piped.stdout)
    assert asked["question"] == question and len(asked["answers"]) == 3
    for answer in asked["answers"]:
        assert answer["text"] == CONTEXT[answer["start"] : answer["end"]]
        assert f"[{answer['text']}]" in answer["shown"]
        sentences = answer["shown"].replace("[", "").replace("]", "")
        assert sentences in " ".join(CONTEXT.split()) and sentences[0] in "MJ" and sentences.endswith(".")
    shown = command("answer", answers_run, question, "Who has the ball?", stdin=CONTEXT).stdout
    assert shown.startswith(question) and asked["answers"][0]["shown"] in shown and "Who has the ball?" in shown


def test_what_is_missing_is_named(answers_run, tmp_path):
    assert "no text" in command("answer", answers_run, "Where?", stdin=" \n", code=2).error[0]
    assert "missing" in command("answer", answers_run, "Where?", "--context", tmp_path / "no.txt", code=1).error[0]
    assert "context is missing" in command("explain", answers_run, "Where is Mary?", code=2).error[0]
    (tmp_path / "latin.txt").write_bytes("Übung".encode("latin-1"))
    assert (
        "Cannot read" in command("answer", answers_run, "Where?", "--context", tmp_path / "latin.txt", code=1).error[0]
    )


def test_the_words_behind_an_answer_are_drawn(answers_run, tmp_path):
    (tmp_path / "context.txt").write_text(CONTEXT)
    arguments = ["Where is Mary?", "--context", tmp_path / "context.txt", "-o", tmp_path / "words.png", "--json"]
    shown = json.loads(command("explain", answers_run, *arguments).stdout)
    assert (tmp_path / "words.png").read_bytes().startswith(b"\x89PNG")
    effect = shown["arrays"]["effect"]
    words = [word for word, part in zip(effect["labels"][0], effect["part"], strict=True) if part == "context"]
    assert words == CONTEXT.split()
    assert shown["answer"] in CONTEXT and shown["what"] == "attribution"


def test_answers_of_an_evaluation_can_be_written_and_the_baseline_is_shown(answers_run, questions, tmp_path):
    arguments = [questions / "test.tsv", "-o", tmp_path / "out.txt", "--json"]
    shown = json.loads(command("evaluate", answers_run, *arguments).stdout)
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert len(lines) == shown["questions"] == len((questions / "test.tsv").read_text().splitlines())
    assert [baseline["name"] for baseline in shown["baselines"]] == ["sliding window"]
    parts = shown["parts"]
    assert sum(part["questions"] for part in parts.values()) == shown["questions"]
    total = sum(part["questions"] * part["exact_match"] for part in parts.values()) / shown["questions"]
    assert total == pytest.approx(shown["metrics"]["exact_match"])
