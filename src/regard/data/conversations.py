"""Conversations from files: .jsonl with a list of turns, or one conversation on a line of .tsv or .txt.

    {"turns": [{"who": "Ann", "text": "Hello!"}, {"who": "Ben", "text": "Hi."}]}
    {"turns": ["Hello!", "Hi."]}
    Ann: Hello! ↵ Ben: Hi.

What cannot be used is left out, counted and named; it never stops a training.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.fingerprints import fingerprint
from regard.data.lines import HALF_A_CHARACTER, Skipped, encodable, numbered_lines, open_file, readable, wrong_columns
from regard.data.pairs import is_jsonl
from regard.data.samples import small_talk
from regard.data.splits import SPLITS, Division, divided, named_path
from regard.errors import RegardError
from regard.settings import ChatData, FileList


class Turn(NamedTuple):
    ours: bool  # whether it is marked as ours: what the model says when it is talked to
    learned: bool
    text: str


Conversation = list[Turn]


@dataclass(frozen=True)
class ConversationSource:
    """One split of the data. Every iteration reads it from the start."""

    name: str
    settings: ChatData
    paths: tuple[Path, ...]
    division: Division | None = None  # where train is divided, the part that this split has of it

    def __iter__(self) -> Iterator[Conversation]:
        return self.read(Skipped())

    @property
    def files(self) -> tuple[Path, ...]:
        return self.paths

    @property
    def skips(self) -> bool:
        return True

    def read(self, skipped: Skipped) -> Iterator[Conversation]:
        """Every conversation; what cannot be one is noted."""
        for said in self._said(skipped):
            content = "\n".join(text for _, text in said)
            if self.division is None or self.division.split(content) == self.name:
                yield with_sides(said, self.settings.us)

    def _said(self, skipped: Skipped) -> Iterator[list[tuple[str, str]]]:
        """The turns of each conversation: who, and what; without names, speakers take turns."""
        if self.settings.sample:
            for texts in getattr(small_talk.corpus(), self.name):
                yield [(str(number % 2), text) for number, text in enumerate(texts)]
            return
        for path in self.paths:
            with readable(path), open_file(path) as file:
                for line in numbered_lines(file):
                    if not line.problem and not line.text.strip():
                        continue
                    said = line.problem or _turns(line.text, path, self.settings)
                    if isinstance(said, str):
                        skipped.note(path, line.number, said)
                    else:
                        yield said

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the conversations change, or how they are read."""
        data = self.settings
        if data.sample:
            return fingerprint([], self.name, list(self))
        how = (data.us, data.turns_field, data.column, data.separator, data.name_until)
        return fingerprint(self.paths, self.name, self.division, how, [is_jsonl(path) for path in self.paths])


def with_sides(said: list[tuple[str, str]], us: str) -> Conversation:
    """Who is us: the second to speak, or the one named; with "both", everybody's turns are learned."""
    speakers = list(dict.fromkeys(who for who, _ in said))
    ours = us if us not in ("second", "both") else speakers[1] if len(speakers) > 1 else None
    return [Turn(who == ours, us == "both" or who == ours, text) for who, text in said]


def _turns(line: str, path: Path, data: ChatData) -> list[tuple[str, str]] | str:
    """Who said what; or why the line is no conversation."""
    said = _from_json(line, data.turns_field) if is_jsonl(path) else _from_line(line, data)
    if isinstance(said, str):
        return said
    if not encodable(*(part for turn in said for part in turn)):
        return HALF_A_CHARACTER
    said = [(who, text.strip()) for who, text in said if text.strip()]
    return said if len(said) > 1 else "It has fewer than two turns."


def _from_json(line: str, field: str) -> list[tuple[str, str]] | str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"It is not valid JSON: {error}."
    turns: Any = record.get(field) if isinstance(record, dict) else None
    if not isinstance(turns, list):
        return f"It has no list in the field '{field}' (data.turns_field)."
    if all(isinstance(turn, str) for turn in turns):
        return [(str(number % 2), turn) for number, turn in enumerate(turns)]
    if not all(isinstance(turn, dict) and isinstance(turn.get("text"), str) and "who" in turn for turn in turns):
        return "A turn is neither a text nor an object with who and text."
    return [(str(turn["who"]), turn["text"]) for turn in turns]


def _from_line(line: str, data: ChatData) -> list[tuple[str, str]] | str:
    fields = line.split("\t")
    if len(fields) <= data.column:
        return wrong_columns(len(fields), [data.column])
    said = []
    for number, turn in enumerate(fields[data.column].split(data.separator)):
        who, found, text = turn.partition(data.name_until) if data.name_until else ("", "", turn)
        said.append((who.strip(), text) if found else (str(number % 2), turn))
    return said


def conversation_splits(data: ChatData) -> dict[str, ConversationSource]:
    """Train, valid and test as the settings name them; what is not named is held out of train."""
    if data.sample:
        return {split: ConversationSource(split, data, ()) for split in SPLITS}
    if not data.train:
        raise RegardError(
            "No training data is named.",
            "The recipe's data.train is empty.",
            'Set data.train to files of conversations, for example data.train=["train.jsonl"].',
        )
    paths = {split: conversation_files(getattr(data, split), data, f"data.{split}") for split in SPLITS}
    return {
        split: ConversationSource(split, data, files, division)
        for split, (files, division) in divided(paths, data.held_out).items()
    }


def conversation_files(listed: FileList, data: ChatData, key: str) -> tuple[Path, ...]:
    paths = tuple(named_path(name, data.root, key, '["a.jsonl", "b.jsonl"]') for name in listed)
    for path in paths:
        if not path.is_file():
            raise RegardError(f"'{path}' is a folder.", f"{key} names files.", "Name the files in it.")
    return paths
