"""Labelled text for classification: TSV, CSV, JSONL, or the label as the first word; plain or gzipped.

Every form becomes a stream of examples, so the data may be larger than memory.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from regard.data.fingerprints import fingerprint
from regard.data.lines import (
    LONGEST_LINE,
    CsvLines,
    Skipped,
    bad_line,
    encodable,
    ending_of,
    numbered_lines,
    open_file,
    readable,
    wrong_columns,
)
from regard.data.splits import SPLITS, Division, divided, named_path
from regard.errors import RegardError, UsageError
from regard.settings import FileList, LabelledData
from regard.words import counted

LONGEST_LABEL = 1000  # letters
MOST_CLASSES = 100_000


class Example(NamedTuple):
    label: str
    text: str


@dataclass(frozen=True)
class LabelledSource:
    """One split of the data. Every iteration reads it from the start."""

    name: str
    settings: LabelledData
    paths: tuple[Path, ...]
    division: Division | None = None  # where train is divided, the part that this split has of it

    def __iter__(self) -> Iterator[Example]:
        return (example for example in self.records() if example is not None)

    def records(self) -> Iterator[Example | None]:
        """An example for every record; None for one that is left out, which belongs to no part of a division."""
        return self.read(Skipped())

    @property
    def files(self) -> tuple[Path, ...]:
        return self.paths

    @property
    def skips(self) -> bool:
        return self.settings.bad_lines == "skip"

    def read(self, skipped: Skipped) -> Iterator[Example | None]:
        """All records; bad ones are noted."""
        for path in self.paths:
            for example in read_records(path, self.settings, skipped):
                division = self.division
                if division is None or (example is not None and division.split(example.text) == self.name):
                    yield example

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the examples change."""
        data = self.settings
        forms = [form_of(path, data) for path in self.paths]
        fields = (data.columns, data.text_field, data.label_field, data.label_until, data.encoding, data.bad_lines)
        return fingerprint(self.paths, self.name, self.division, forms, fields)


def labelled_splits(data: LabelledData) -> dict[str, LabelledSource]:
    """Train, valid and test as the settings name them; what is not named is held out of train."""
    if not data.train:
        raise RegardError(
            "No training data is named.",
            "The recipe's data.train is empty.",
            'Set data.train to files of labelled text, for example data.train=["train.tsv"].',
        )
    paths = {split: labelled_files(getattr(data, split), data, f"data.{split}") for split in SPLITS}
    return {
        split: LabelledSource(split, data, files, division)
        for split, (files, division) in divided(paths, data.held_out).items()
    }


def labelled_source(listed: FileList, data: LabelledData) -> LabelledSource:
    """Other files to test on, read as the settings say; their paths start where the command was given."""
    data = data.model_copy(update={"root": "."})
    return LabelledSource("test", data, labelled_files(listed, data, "the test data"))


def labelled_files(listed: FileList, data: LabelledData, key: str) -> tuple[Path, ...]:
    """The files that a setting names, each there and of a known form."""
    paths = tuple(named_path(name, data.root, key, '["a.tsv", "b.tsv"]') for name in listed)
    for path in paths:
        form_of(path, data)
    return paths


def check_labels(content: Any, where: Path, fewest: int = 2) -> list[str]:
    """The classes that a run's labels.json names; a clear error if it does not."""
    named = isinstance(content, list) and all(isinstance(label, str) and label for label in content)
    if not named or len(set(content)) != len(content) or len(content) < fewest:
        raise RegardError(
            f"'{where}' does not name the classes of the run.",
            f"It is to be a list of {'two names' if fewest == 2 else 'one name'} or more, each there once.",
            "Restore the file, or train again.",
        )
    return list(content)


def labels_of(source: LabelledSource) -> list[str]:
    """The classes of the training texts, by name. One class alone is not a task."""
    counts: Counter[str] = Counter()
    for example in source:
        counts[example.label] += 1
        if len(counts) > MOST_CLASSES:
            raise RegardError(
                f"The training texts have more than {MOST_CLASSES:,} different labels.",
                "A classifier has an output for each; most likely these are not labels.",
                "Check where the label is: data.form, data.columns, data.label_field, data.label_until.",
            )
    files = ", ".join(f"'{path}'" for path in source.paths)
    if not counts:
        raise RegardError(
            "There are no training texts.",
            f"Nothing with a text is left to train on in {files}.",
            "Check the files, and lower data.held_out if they are small.",
        )
    if len(counts) == 1:
        [(label, count)] = counts.items()
        raise RegardError(
            f"All {count:,} training texts have the label '{label}'.",
            f"A classifier needs two classes or more; these come from {files}.",
            "Check the files, and where the label is: data.form, data.columns, data.label_field, data.label_until.",
        )
    return sorted(counts)


# ---------------------------------------------------------------- reading records


# What a record gives: an example, or else why it is bad.
Parsed = Example | str


def form_of(path: Path, settings: LabelledData) -> str:
    if settings.form != "auto":
        return settings.form
    ending = ending_of(path)
    if ending not in (".tsv", ".csv", ".jsonl"):
        raise UsageError(
            f"The form of '{path}' is not known.",
            "Its name does not end in .tsv, .csv or .jsonl, with or without .gz or .xz.",
            'Set data.form to "tsv", "csv", "jsonl" or "label-first".',
        )
    return ending[1:]


def read_examples(path: Path, settings: LabelledData) -> Iterator[Example]:
    """The examples of one file, without those of empty text."""
    return (example for example in read_records(path, settings) if example is not None)


def read_records(path: Path, settings: LabelledData, skipped: Skipped | None = None) -> Iterator[Example | None]:
    """The examples of one file; None for a record that is left out: without text, or bad and to be skipped."""
    form = form_of(path, settings)
    with readable(path), open_file(path) as file:
        records = _csv_records(file, path, settings) if form == "csv" else _line_records(file, form, settings)
        for number, parsed in records:
            example = _checked(parsed, settings) if isinstance(parsed, Example) else parsed  # None: a blank line
            if isinstance(example, str):
                bad_line(path, number, example, settings.bad_lines, skipped)
                yield None
            else:
                yield example if example and example.text.strip() else None


def _checked(example: Example, settings: LabelledData) -> Parsed:
    """The example with its label as the settings want it."""
    label = example.label
    if settings.label_until:
        label = label.split(settings.label_until, 1)[0]
    label = label.strip()
    if not encodable(label, example.text):
        return "It is not valid UTF-8, or holds half a character."
    if len(label) > LONGEST_LABEL:
        return f"Its label has {len(label):,} letters, more than {LONGEST_LABEL:,}: is it the text?"
    return Example(label, example.text) if label else "Its label is empty."


# ---------------------------------------------------------------- one record per line


def _line_records(file: BinaryIO, form: str, settings: LabelledData) -> Iterator[tuple[int, Parsed | None]]:
    parse = LINE_FORMS[form]
    for number, line, problem in numbered_lines(file, settings.encoding):
        if problem:
            yield number, problem
        else:
            yield number, parse(line, settings) if line.strip() else None


def _from_tsv(line: str, settings: LabelledData) -> Parsed:
    fields = line.split("\t")
    label, text = settings.columns
    if len(fields) <= max(label, text):
        return wrong_columns(len(fields), settings.columns)
    return Example(fields[label], fields[text])


def _from_json(line: str, settings: LabelledData) -> Parsed:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return "It is not valid JSON."
    if not isinstance(record, dict):
        return "It is not a JSON object."
    label, text = record.get(settings.label_field), record.get(settings.text_field)
    if not isinstance(label, str | int):
        return f"It has no text, whole number, true or false in the field '{settings.label_field}' (data.label_field)."
    if not isinstance(text, str):
        return f"It has no text in the field '{settings.text_field}' (data.text_field)."
    return Example(label if isinstance(label, str) else json.dumps(label), text)


def _label_first(line: str, settings: LabelledData) -> Parsed:
    label, *rest = line.split(maxsplit=1)
    return Example(label, rest[0] if rest else "")


LINE_FORMS: dict[str, Callable[[str, LabelledData], Parsed]] = {
    "tsv": _from_tsv,
    "jsonl": _from_json,
    "label-first": _label_first,
}


# ---------------------------------------------------------------- a record may be several lines


def _csv_records(file: BinaryIO, path: Path, settings: LabelledData) -> Iterator[tuple[int, Parsed | None]]:
    """Records numbered by the line they start on. A quoted text may hold commas and line ends.

    A byte that is not of the encoding becomes a surrogate, which `_checked` refuses when the record is cut into fields:
    so a bad byte costs one record, never the quotes of the next.
    """
    encoding = "utf-8-sig" if settings.encoding == "utf-8" else settings.encoding
    csv.field_size_limit(LONGEST_LINE)  # Python's own limit of 131,072 is short for a document
    lines = CsvLines(io.TextIOWrapper(file, encoding, errors="surrogateescape", newline="\n"))
    reader = csv.reader(lines, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error:
        header = []
    wanted = (settings.label_field, settings.text_field)
    missing = [name for name in wanted if name not in header]
    if missing:
        raise RegardError(
            f"'{path}' has no column {' and no column '.join(repr(name) for name in missing)}.",
            f"Its header, the first line, is: {', '.join(header)[:200] or 'empty, or not valid CSV'}.",
            "Correct the header, or set data.label_field and data.text_field to names in it.",
        )
    label, text = (header.index(name) for name in wanted)
    while True:
        number = lines.begin()
        try:
            fields = next(reader, None)
        except csv.Error as error:
            yield number, f"It is not valid CSV: {error}."
            continue
        if fields is None:
            return
        if len(fields) == len(header):
            yield number, Example(fields[label], fields[text])
        elif any(field.strip() for field in fields):
            # A comma outside quotes would cut the text short unseen.
            yield number, f"It has {counted(len(fields), 'column')} where the header has {len(header)}."
