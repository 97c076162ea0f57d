"""Sentence pairs from files: two line-aligned files, or one TSV; plain or gzipped.

Everything is read as a stream, so a corpus may be larger than memory.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import BinaryIO

from regard.settings import DataSettings, FileList
from regard.data.samples import english_german
from regard.errors import RegardError

Pair = tuple[str, str]
LONGEST_LINE = 1_000_000  # bytes; a longer line is no sentence, and would swamp the tokenizer


@dataclass(frozen=True)
class PairSource:
    """One split of the data. Iterating reads it anew from the start."""

    name: str
    settings: DataSettings
    corpora: tuple[tuple[Path, ...], ...]
    # When train is divided: the splits held out of it, and the share of each.
    division: tuple[tuple[str, ...], float] | None = None

    def __iter__(self) -> Iterator[Pair]:
        pairs = self._built_in() if self.settings.sample else self._from_files()
        if self.division is None:
            return pairs
        held_out, share = self.division
        return (pair for pair in pairs if which_split(pair[0], share, held_out) == self.name)

    def _built_in(self) -> Iterator[Pair]:
        yield from getattr(_sample_corpus(), self.name)

    def _from_files(self) -> Iterator[Pair]:
        for paths in self.corpora:
            if len(paths) == 2:
                yield from read_aligned(paths[0], paths[1], self.settings.bad_lines)
            else:
                yield from read_tsv(paths[0], self.settings.columns, self.settings.bad_lines)

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the pairs change."""
        # The same files in other groups are other pairs: two aligned files, or two TSVs.
        groups = [len(paths) for paths in self.corpora]
        digest = hashlib.sha256(
            repr((self.name, self.division, self.settings.columns, self.settings.bad_lines, groups)).encode()
        )
        if self.settings.sample:
            for pair in self:
                digest.update("\t".join(pair).encode())
        for path in (path for paths in self.corpora for path in paths):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()


def splits(settings: DataSettings) -> dict[str, PairSource]:
    """Train, valid and test as the settings name them; what is not named is held out of train."""
    if settings.sample:
        return {name: PairSource(name, settings, ()) for name in ("train", "valid", "test")}
    if not settings.train:
        raise RegardError(
            "No training data is named.",
            "The recipe's data.train is empty.",
            'Set data.train to two aligned files or one TSV, for example data.train=["train.en", "train.de"].',
        )
    corpora = {name: _corpora(settings, name) for name in ("train", "valid", "test")}
    for path in (path for paths in corpora.values() for corpus in paths for path in corpus):
        if not path.is_file():
            raise RegardError(
                f"The data file '{path}' is missing.",
                f"The recipe looks for it from the folder '{settings.root}'.",
                "Correct the path in [data], or give the folder with --data DIR.",
            )
    held_out = tuple(name for name in ("valid", "test") if not corpora[name])
    sources = {}
    for name, paths in corpora.items():
        division = (held_out, settings.held_out) if held_out and name in ("train", *held_out) else None
        sources[name] = PairSource(name, settings, paths or corpora["train"], division)
    return sources


def which_split(source: str, share: float, held_out: Sequence[str] = ("valid", "test")) -> str:
    """The side a pair falls on, from its source alone: equal sentences are never on two sides."""
    place = int.from_bytes(hashlib.blake2b(source.encode(), digest_size=6).digest()) / 2**48
    for number, split in enumerate(held_out, start=1):
        if place < number * share:
            return split
    return "train"


def _corpora(settings: DataSettings, name: str) -> tuple[tuple[Path, ...], ...]:
    return file_groups(getattr(settings, name), settings.root, f"data.{name}")


def file_groups(listed: FileList, root: str, key: str) -> tuple[tuple[Path, ...], ...]:
    """`["a.en", "a.de"]` or `[["a.en", "a.de"], ["b.tsv"]]` as groups of one or two paths."""
    groups = [listed] if listed and isinstance(listed[0], str) else listed
    for group in groups:
        if not 1 <= len(group) <= 2:
            raise RegardError(
                f"{key} lists {len(group)} files where one or two are meant.",
                "A corpus is two line-aligned files, or one TSV.",
                'Write several corpora as a list of lists: [["a.en", "a.de"], ["b.en", "b.de"]].',
            )
    return tuple(tuple(Path(root, path) for path in group) for group in groups)


# ---------------------------------------------------------------- reading lines


def read_aligned(source: Path, target: Path, bad_lines: str = "error") -> Iterator[Pair]:
    """Line n of one file with line n of the other."""
    sources, targets = read_lines(source, bad_lines), read_lines(target, bad_lines)
    count = 0
    while True:
        left, right = next(sources, END), next(targets, END)
        if left is END and right is END:
            return
        if left is END or right is END:
            # Read on, so that the error can say how many lines each file has.
            left_count = count + (left is not END) + sum(1 for _ in sources)
            right_count = count + (right is not END) + sum(1 for _ in targets)
            raise RegardError(
                f"'{source}' and '{target}' are not aligned.",
                f"The first has {left_count:,} lines, the second {right_count:,}.",
                "Line n of one must be the translation of line n of the other; mend the files.",
            )
        count += 1
        if isinstance(left, str) and isinstance(right, str):
            yield left, right


def read_tsv(path: Path, columns: list[int], bad_lines: str = "error") -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path, bad_lines), start=1):
        if line is None:
            continue
        fields = line.split("\t")
        if len(fields) <= max(columns):
            if bad_lines == "skip":
                continue
            raise RegardError(
                f"Line {number:,} of '{path}' has {len(fields)} column(s).",
                f"Columns {columns[0]} and {columns[1]} are wanted (counted from 0), separated by tabs.",
                'Mend the line, set data.columns, or skip such lines with data.bad_lines="skip".',
            )
        yield fields[columns[0]], fields[columns[1]]


END = object()


SKIP_THEM = 'Mend the line, or skip such lines with data.bad_lines="skip".'


def read_lines(path: Path, bad_lines: str = "error", advice: str = SKIP_THEM) -> Iterator[str | None]:
    """Lines without their line ends; None for a bad line that is to be skipped."""
    try:
        with open_file(path) as file:
            yield from _lines(file, path, bad_lines, advice)
    except (OSError, EOFError, zlib.error) as error:
        raise RegardError(
            f"Cannot read '{path}'.", f"{error}", "Check the file and its permissions; a .gz must be whole."
        ) from None


def _lines(file: BinaryIO, path: Path, bad_lines: str, advice: str) -> Iterator[str | None]:
    number = 0
    while raw := file.readline(LONGEST_LINE + 1):
        number += 1
        too_long = len(raw) > LONGEST_LINE
        while too_long and not raw.endswith(b"\n") and (rest := file.readline(LONGEST_LINE)):
            raw = raw[:LONGEST_LINE] + rest[-1:]
        problem = f"It is longer than {LONGEST_LINE:,} bytes." if too_long else ""
        text = ""
        if not too_long:
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                problem = f"It is not valid UTF-8: {error.reason} at byte {error.start}."
        if not problem:
            yield text
        elif bad_lines == "skip":
            yield None
        else:
            raise RegardError(
                f"Line {number:,} of '{path}' cannot be used.",
                problem,
                advice,
            )


def open_file(path: Path) -> BinaryIO:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


@cache
def _sample_corpus() -> english_german.Corpus:
    return english_german.corpus()


def not_empty(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Pairs with text on both sides: an empty side teaches nothing."""
    return (pair for pair in pairs if pair[0].strip() and pair[1].strip())
