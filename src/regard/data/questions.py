"""Questions with the text that answers them: JSON or JSONL with SQuAD's fields, or TSV; plain or gzipped.

A record is a question, a paragraph with its questions, or, in .json, everything at once:

    {"question": …, "context": …, "answers": {"text": […], "answer_start": […]}}        a line of .jsonl
    {"context": …, "qas": [{"question": …, "answers": [{"text": …, "answer_start": …}]}]}
    {"data": [{"paragraphs": [{"context": …, "qas": […]}]}]}                            the official .json

`answer` with one text, or a list of them, will do for `answers`. Where no answer is given, the context has none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.fingerprints import fingerprint
from regard.data.lines import (
    HALF_A_CHARACTER,
    Skipped,
    bad_line,
    encodable,
    ending_of,
    numbered_lines,
    open_file,
    readable,
    wrong_columns,
)
from regard.data.samples.stories import Stories, StoryQuestion, stories
from regard.data.splits import SPLITS, Division, divided, named_path
from regard.errors import RegardError, UsageError
from regard.settings import FileList, QuestionData

LARGEST = 2**30  # bytes of a .json file, which is read as a whole


class Question(NamedTuple):
    """`starts` has the character at which each answer begins, None where that is not known."""

    question: str
    context: str
    answers: tuple[str, ...] = ()
    starts: tuple[int | None, ...] = ()
    title: str = ""  # of the article that the context is from

    @property
    def group(self) -> str:
        """Questions of one group are in the same split."""
        return self.title or self.context


class Place(NamedTuple):
    """Characters `start` to `end` (not included) of a context."""

    start: int
    end: int


def places(question: Question) -> list[Place]:
    """Where the answers stand in the context: where the data says, or else all places that have their text."""
    found: dict[Place, None] = {}
    for answer, start in zip(question.answers, question.starts, strict=True):
        if start is not None and answer and question.context[start : start + len(answer)] == answer:
            found[Place(start, start + len(answer))] = None
        else:
            found |= dict.fromkeys(_occurrences(answer.strip(), question.context))
    return list(found)


def _occurrences(answer: str, context: str) -> list[Place]:
    """As a whole word or words; if there are none, within words; if there are none, in other case."""
    if not answer:
        return []
    text = re.escape(answer)
    for pattern, flags in ((rf"(?<!\w){text}(?!\w)", 0), (text, 0), (text, re.IGNORECASE)):
        if matches := [Place(*match.span()) for match in re.finditer(pattern, context, flags)]:
            return matches
    return []


# ---------------------------------------------------------------- splits


@dataclass(frozen=True)
class QuestionSource:
    """One split of the data. Every iteration reads it from the start."""

    name: str
    settings: QuestionData
    paths: tuple[Path, ...]
    division: Division | None = None  # where train is divided, the part that this split has of it

    def __iter__(self) -> Iterator[Question]:
        return self.read(Skipped())

    @property
    def files(self) -> tuple[Path, ...]:
        return self.paths

    @property
    def skips(self) -> bool:
        return self.settings.bad_lines == "skip"

    def read(self, skipped: Skipped) -> Iterator[Question]:
        """All questions; those that cannot be used are noted."""
        if self.settings.sample:
            yield from (_from_story(asked) for asked in getattr(_stories(), self.name))
            return
        for path in self.paths:
            for question in read_questions(path, self.settings, skipped):
                if self.division is None or self.division.split(question.group) == self.name:
                    yield question

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the questions change."""
        data = self.settings
        if data.sample:
            return fingerprint([], self.name, list(self))
        forms = [form_of(path) for path in self.paths]
        return fingerprint(self.paths, self.name, self.division, forms, data.columns, data.bad_lines)


@cache
def _stories() -> Stories:
    return stories()


def _from_story(asked: StoryQuestion) -> Question:
    if not asked.answer:
        return Question(asked.question, asked.story)
    return Question(asked.question, asked.story, (asked.answer,), (asked.start,))


def question_splits(data: QuestionData) -> dict[str, QuestionSource]:
    """Train, valid and test as the settings name them; what is not named is held out of train."""
    if data.sample:
        return {split: QuestionSource(split, data, ()) for split in SPLITS}
    if not data.train:
        raise RegardError(
            "No training data is named.",
            "The recipe's data.train is empty.",
            'Set data.train to files of questions, for example data.train=["train.jsonl"].',
        )
    paths = {split: question_files(getattr(data, split), data, f"data.{split}") for split in SPLITS}
    return {
        split: QuestionSource(split, data, files, division)
        for split, (files, division) in divided(paths, data.held_out).items()
    }


def question_source(listed: FileList, data: QuestionData) -> QuestionSource:
    """Other files to test on, read as the settings say; their paths start where the command was given."""
    data = data.model_copy(update={"root": ".", "sample": ""})
    return QuestionSource("test", data, question_files(listed, data, "the test data"))


def question_files(listed: FileList, data: QuestionData, key: str) -> tuple[Path, ...]:
    """The files that a setting names, each there and of a known form."""
    paths = tuple(named_path(name, data.root, key, '["a.jsonl", "b.jsonl"]') for name in listed)
    for path in paths:
        form_of(path)
    return paths


# ---------------------------------------------------------------- reading


def form_of(path: Path) -> str:
    ending = ending_of(path)
    if ending not in (".json", ".jsonl", ".tsv"):
        raise UsageError(
            f"The form of '{path}' is not known.",
            "Its name does not end in .json, .jsonl or .tsv, with or without .gz or .xz.",
            "Rename the file, or convert it.",
        )
    return ending[1:]


def read_questions(path: Path, settings: QuestionData, skipped: Skipped | None = None) -> Iterator[Question]:
    """The questions of one file. A bad record is an error, or is left out where it is to be skipped."""
    form = form_of(path)
    with readable(path), open_file(path) as file:
        if form == "json":
            raw = file.read(LARGEST + 1)
            if len(raw) > LARGEST:
                raise RegardError(f"'{path}' is too large.", "A .json is read as a whole.", "Write it as .jsonl.")
            for number, found in enumerate(_of_text(raw), start=1):
                if (question := _checked(found, path, number, settings, skipped, "question")) is not None:
                    yield question
            return
        for number, line, problem in numbered_lines(file):
            parsed: list[Question | str] = [problem] if problem else []
            if line.strip():
                parsed = [_from_tsv(line, settings.columns)] if form == "tsv" else list(_of_text(line))
            for found in parsed:
                if (question := _checked(found, path, number, settings, skipped)) is not None:
                    yield question


def _checked(
    found: Question | str,
    path: Path,
    number: int,
    settings: QuestionData,
    skipped: Skipped | None,
    unit: str = "line",
) -> Question | None:
    """None: it cannot be used, and is left out."""
    problem = found if isinstance(found, str) else _problem(found)
    if problem:
        bad_line(path, number, problem, settings.bad_lines, skipped, unit=unit)
    return None if isinstance(found, str) or problem else found


def _problem(question: Question) -> str:
    if not encodable(question.question, question.context, *question.answers):
        return HALF_A_CHARACTER
    return "" if question.question.strip() and question.context.strip() else "Its question or its context is empty."


def _from_tsv(line: str, columns: list[int]) -> Question | str:
    fields = line.split("\t")
    if len(fields) <= max(columns):
        return wrong_columns(len(fields), columns)
    question, context, answer = (fields[column] for column in columns)
    return Question(question, context, (answer,), (None,)) if answer.strip() else Question(question, context)


def _of_text(raw: str | bytes) -> Iterator[Question | str]:
    """What a JSON text holds: questions, and for those that cannot be read why."""
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        yield "It is not valid JSON."
        return
    if not isinstance(record, dict):
        yield "It is not a JSON object."
    elif isinstance(record.get("data"), list):
        for article in record["data"]:
            yield from _of_article(article)
    elif isinstance(record.get("paragraphs"), list):
        yield from _of_article(record)
    else:
        yield from _of_paragraph(record, _text(record, "title"))


def _of_article(article: Any) -> Iterator[Question | str]:
    if not isinstance(article, dict) or not isinstance(article.get("paragraphs"), list):
        yield "An article of it has no list of paragraphs."
        return
    for paragraph in article["paragraphs"]:
        if isinstance(paragraph, dict):
            yield from _of_paragraph(paragraph, _text(article, "title"))
        else:
            yield "A paragraph of it is not a JSON object."


def _of_paragraph(record: dict[str, Any], title: str) -> Iterator[Question | str]:
    context = record.get("context")
    if not isinstance(context, str):
        yield "It has no text in the field 'context'."
        return
    listed = record.get("qas", [record])
    for asked in listed if isinstance(listed, list) else [listed]:
        yield _question(asked, context, title)


def _question(asked: Any, context: str, title: str) -> Question | str:
    """From an object with SQuAD's fields, or a list: the question, and then its answers."""
    if isinstance(asked, list) and asked and all(isinstance(text, str) for text in asked):
        asked = {"question": asked[0], "answer": asked[1:]}
    if not isinstance(asked, dict) or not isinstance(asked.get("question"), str):
        return "It has no text in the field 'question'."
    if asked.get("is_impossible") is True:
        return Question(asked["question"], context, title=title)
    given = asked.get("answers", asked.get("answer", []))
    if isinstance(given, dict):  # lists side by side
        texts, starts = given.get("text", []), given.get("answer_start")
    else:
        listed = given if isinstance(given, list) else [given]
        texts = [each.get("text") if isinstance(each, dict) else each for each in listed]
        starts = [each.get("answer_start") if isinstance(each, dict) else None for each in listed]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return "An answer of it is not a text."
    if starts is None:
        starts = [None] * len(texts)
    if not isinstance(starts, list) or len(starts) != len(texts):
        return "Its answers and their places are not equally many."
    known = tuple(start if isinstance(start, int) and start >= 0 else None for start in starts)
    kept = [(text, start) for text, start in zip(texts, known, strict=True) if text.strip()]
    return Question(asked["question"], context, tuple(t for t, _ in kept), tuple(s for _, s in kept), title)


def _text(record: dict[str, Any], name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""
