"""Labelled text for classification: TSV, CSV, JSONL, or the label as the first word; plain or gzipped.

Every form becomes a stream of examples, so the data may be larger than memory. A byte that is not of the encoding is
kept as a mark until its record is cut into fields: so a bad byte costs one record, never the quotes of the next.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TextIO

from regard.settings import DataSettings
from regard.data.named import named_path
from regard.data.pairs import LONGEST_LINE, SKIP_THEM, open_file, which_split
from regard.errors import RegardError, UsageError
from regard.files import sha256


class Example(NamedTuple):
    label: str
    text: str


@dataclass(frozen=True)
class LabelledSource:
    """One split of the data. Iterating reads it anew from the start."""

    name: str
    settings: DataSettings
    paths: tuple[Path, ...]
    # When train is divided: the splits held out of it, and the share of each.
    division: tuple[tuple[str, ...], float] | None = None

    @classmethod
    def of(cls, name: str, settings: DataSettings) -> LabelledSource:
        """The files that `data.train`, `data.valid` or `data.test` names, each there and of a known form."""
        paths = []
        for listed in getattr(settings, name):
            path = named_path(listed, settings.root, f"data.{name}", '["a.tsv", "b.tsv"]')
            form_of(path, settings)
            paths.append(path)
        return cls(name, settings, tuple(paths))

    def __iter__(self) -> Iterator[Example]:
        for path in self.paths:
            for example in read_examples(path, self.settings):
                if self.division is None or which_split(example.text, self.division[1], self.division[0]) == self.name:
                    yield example

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the examples change."""
        data = self.settings
        forms = [form_of(path, data) for path in self.paths]
        fields = (data.columns, data.text_field, data.label_field, data.label_until, data.encoding, data.bad_lines)
        digest = hashlib.sha256(repr((self.name, self.division, forms, fields)).encode())
        for path in self.paths:
            digest.update(sha256(path).encode())
        return digest.hexdigest()


def splits(settings: DataSettings) -> dict[str, LabelledSource]:
    """Train, valid and test as the settings name them; what is not named is held out of train."""
    if not settings.train:
        raise RegardError(
            "No training data is named.",
            "The recipe's data.train is empty.",
            'Set data.train to files of labelled text, for example data.train=["train.tsv"].',
        )
    sources = {name: LabelledSource.of(name, settings) for name in ("train", "valid", "test")}
    held_out = tuple(name for name, source in sources.items() if not source.paths)
    if held_out:
        for name in ("train", *held_out):
            division = (held_out, settings.held_out)
            sources[name] = replace(sources[name], paths=sources["train"].paths, division=division)
    return sources


def labels_of(source: LabelledSource) -> list[str]:
    """The classes of the training texts, by name. One class alone is no task."""
    counts = Counter(example.label for example in source)
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


def form_of(path: Path, settings: DataSettings) -> str:
    if settings.form != "auto":
        return settings.form
    ending = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if ending not in (".tsv", ".csv", ".jsonl"):
        raise UsageError(
            f"The form of '{path}' is not known.",
            "Its name does not end in .tsv, .csv or .jsonl, with or without .gz.",
            'Set data.form to "tsv", "csv", "jsonl" or "label-first".',
        )
    return ending[1:]


def read_examples(path: Path, settings: DataSettings) -> Iterator[Example]:
    """The examples of one file, without those of empty text."""
    form = form_of(path, settings)
    # A byte order mark is no part of the text. Bytes that are no UTF-8 become surrogates, which `_checked` finds.
    encoding = "utf-8-sig" if settings.encoding == "utf-8" else settings.encoding
    try:
        with (
            open_file(path) as raw,
            io.TextIOWrapper(raw, encoding, errors="surrogateescape", newline="\n") as file,
        ):
            records = _csv_records(file, path, settings) if form == "csv" else _line_records(file, form, settings)
            for number, parsed in records:
                found = _checked(parsed, settings) if isinstance(parsed, Example) else parsed
                if isinstance(found, Example):
                    if found.text.strip():
                        yield found
                elif settings.bad_lines == "error":
                    raise RegardError(f"Line {number:,} of '{path}' cannot be used.", found, SKIP_THEM)
    except (OSError, EOFError, zlib.error) as error:
        raise RegardError(
            f"Cannot read '{path}'.", f"{error}", "Check the file and its permissions; a .gz must be whole."
        ) from None


def _checked(example: Example, settings: DataSettings) -> Parsed:
    """The example with its label as the settings want it."""
    label = example.label
    if settings.label_until:
        label = label.split(settings.label_until, 1)[0]
    label = label.strip()
    try:
        (label + example.text).encode()
    except UnicodeEncodeError:
        return "It is not valid UTF-8, or holds half a character."
    return Example(label, example.text) if label else "Its label is empty."


# ---------------------------------------------------------------- one record a line


def _line_records(file: TextIO, form: str, settings: DataSettings) -> Iterator[tuple[int, Parsed]]:
    parse = LINE_FORMS[form]
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            # Read on to the end of the line, keeping nothing of it.
            while not line.endswith("\n") and (rest := file.readline(LONGEST_LINE)):
                line = rest
            yield number, f"It is longer than {LONGEST_LINE:,} characters."
        elif line.strip():
            yield number, parse(line.rstrip("\r\n"), settings)


def _from_tsv(line: str, settings: DataSettings) -> Parsed:
    fields = line.split("\t")
    label, text = settings.columns
    if len(fields) <= max(label, text):
        return f"It has {len(fields)} column(s); columns {label} and {text} are wanted (data.columns, from 0)."
    return Example(fields[label], fields[text])


def _from_json(line: str, settings: DataSettings) -> Parsed:
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


def _label_first(line: str, settings: DataSettings) -> Parsed:
    label, *rest = line.split(maxsplit=1)
    return Example(label, rest[0] if rest else "")


LINE_FORMS: dict[str, Callable[[str, DataSettings], Parsed]] = {
    "tsv": _from_tsv,
    "jsonl": _from_json,
    "label-first": _label_first,
}


# ---------------------------------------------------------------- a record may be several lines


def _csv_records(file: TextIO, path: Path, settings: DataSettings) -> Iterator[tuple[int, Parsed]]:
    """Records numbered by the line they start on. A quoted text may hold commas and line ends."""
    csv.field_size_limit(LONGEST_LINE)  # Python's own limit of 131,072 is short for a document
    reader = csv.reader(file, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error:
        header = []
    wanted = (settings.label_field, settings.text_field)
    missing = [name for name in wanted if name not in header]
    if missing:
        raise RegardError(
            f"'{path}' has no column {' and no column '.join(repr(name) for name in missing)}.",
            f"Its header, the first line, is: {', '.join(header) or 'empty, or not valid CSV'}.",
            "Correct the header, or set data.label_field and data.text_field to names in it.",
        )
    label, text = (header.index(name) for name in wanted)
    while True:
        number = reader.line_num + 1
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
            yield number, f"It has {len(fields)} column(s) where the header has {len(header)}."
