"""Bad lines that are skipped: every form of data counts them, file by file, and a file that is divided once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.data.conversations import conversation_splits
from regard.data.labelled import labelled_splits
from regard.data.lines import Skipped, skipped_lines
from regard.data.pairs import pair_splits
from regard.data.questions import question_splits
from regard.settings import ChatData, LabelledData, PairData, QuestionData, SummaryData

GOOD = {
    "source": "A dog.",
    "target": "Ein Hund.",
    "text": "Mary went home.",
    "summary": "Gone.",
    "label": "a",
    "question": "Where is Mary?",
    "context": "Mary went home.",
    "answer": "home",
    "turns": ["Hello!", "Hi."],
}
FORMS = {
    "pairs": (pair_splits, PairData),
    "summaries": (pair_splits, SummaryData),
    "labelled": (labelled_splits, LabelledData),
    "questions": (question_splits, QuestionData),
    "conversations": (conversation_splits, ChatData),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_bad_lines_of_each_file_are_counted_once_and_the_first_are_named(form, tmp_path, capsys):
    good = [json.dumps(GOOD)] * 30
    (tmp_path / "a.jsonl").write_bytes("\n".join([*good, "[]", "{}", *good, "3", "no"]).encode() + b"\n\xff\n")
    (tmp_path / "b.jsonl").write_text("\n".join([good[0], "4"]))
    split, settings = FORMS[form]
    skip = {} if form == "conversations" else {"bad_lines": "skip"}
    sources = split(settings(root=str(tmp_path), train=["a.jsonl"], test=["b.jsonl"], held_out=0.3, **skip))
    skipped = skipped_lines(sources.values())
    assert skipped.total == 6
    skipped.warn()
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("5 lines of") == 1 and f"{tmp_path / 'a.jsonl'}' are left out: line 31: It" in told
    assert f"1 line of '{tmp_path / 'b.jsonl'}' is left out: line 2: It" in told
    assert "line 32:" in told and "line 63:" in told and "line 64:" not in told


def test_nothing_is_counted_where_a_bad_line_is_an_error(tmp_path: Path):
    (tmp_path / "a.tsv").write_text("one\n")
    assert not skipped_lines(pair_splits(PairData(root=str(tmp_path), train=["a.tsv"])).values()).files


def test_questions_of_one_json_are_counted_as_questions(tmp_path: Path):
    asked = [{"question": "Who?", "answer": "Mary"}, {"question": 3}, {"question": " "}]
    (tmp_path / "a.json").write_text(json.dumps({"paragraphs": [{"context": "Mary went.", "qas": asked}]}))
    (tmp_path / "b.jsonl").write_text(json.dumps({"context": "Mary went.", "qas": asked}))
    sources = question_splits(QuestionData(root=str(tmp_path), train=["a.json", "b.jsonl"], bad_lines="skip"))
    first, second = skipped_lines(sources.values()).told()
    assert first.startswith("2 questions of") and "question 2: It has no text in the field 'question'" in first
    assert second.startswith("1 line of")


def test_what_two_readings_of_a_file_have_found_counts_once():
    skipped, again = Skipped(), Skipped()
    for each in (skipped, again):
        each.note(Path("a"), 3, "It is bad.")
    skipped.add(again)
    again.note(Path("b"), 1, "It is bad.")
    skipped.add(again)
    assert skipped.total == 2 and skipped.told()[0] == "1 line of 'a' is left out: line 3: It is bad."
