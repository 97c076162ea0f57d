"""Sentence pairs from files: two line-aligned files, or one TSV; plain or gzipped.

Everything is read as a stream, so a corpus may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from regard.data.cache import cache_folder, cached
from regard.data.fingerprints import fingerprint
from regard.data.lines import read_lines
from regard.data.samples import english_german
from regard.data.splits import SPLITS, Division, divided, missing_file
from regard.errors import RegardError
from regard.files import sha256
from regard.settings import FileList, PairData

Pair = tuple[str, str]
Corpora = tuple[tuple[Path, ...], ...]  # each two aligned files, or one TSV


@dataclass(frozen=True)
class PairSource:
    """One split of the data. Every iteration reads it from the start."""

    name: str
    settings: PairData
    corpora: Corpora
    division: Division | None = None  # where train is divided, the part that this split has of it

    def __iter__(self) -> Iterator[Pair]:
        return (pair for pair in self.lines() if pair is not None)

    def lines(self) -> Iterator[Pair | None]:
        """A pair for every line; None for a bad one that is to be skipped, which belongs to no part of a division."""
        for pair in self._built_in() if self.settings.sample else self._from_files():
            # By its source alone: translations of the same sentence are in the same split.
            if self.division is None or (pair is not None and self.division.split(pair[0]) == self.name):
                yield pair

    def _built_in(self) -> Iterator[Pair]:
        yield from _sample_pairs(self.name, cache_folder(self.settings.cache))

    def _from_files(self) -> Iterator[Pair | None]:
        for paths in self.corpora:
            if len(paths) == 2:
                yield from read_aligned(paths[0], paths[1], self.settings.bad_lines)
            else:
                yield from read_tsv(paths[0], self.settings.columns, self.settings.bad_lines)

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the pairs change."""
        if self.settings.sample:
            return fingerprint([], self.name, list(self))
        # The same files in other groups are other pairs: two aligned files, or two TSVs.
        groups = [len(paths) for paths in self.corpora]
        files = (path for paths in self.corpora for path in paths)
        return fingerprint(files, self.name, self.division, self.settings.columns, self.settings.bad_lines, groups)


def pair_splits(data: PairData) -> dict[str, PairSource]:
    """Train, valid and test as the settings name them; what is not named is held out of train."""
    if data.sample:
        return {split: PairSource(split, data, ()) for split in SPLITS}
    if not data.train:
        raise RegardError(
            "No training data is named.",
            "The recipe's data.train is empty.",
            'Set data.train to two aligned files or one TSV, for example data.train=["train.en", "train.de"].',
        )
    corpora = {split: pair_files(getattr(data, split), data.root, f"data.{split}") for split in SPLITS}
    return {
        split: PairSource(split, data, paths, division)
        for split, (paths, division) in divided(corpora, data.held_out).items()
    }


def pair_source(listed: FileList, data: PairData) -> PairSource:
    """Other files to test on, read as the settings say; their paths start where the command was given."""
    return PairSource("test", data.model_copy(update={"sample": ""}), pair_files(listed, ".", "the test data"))


def pair_files(listed: FileList, root: str, key: str) -> Corpora:
    """`["a.en", "a.de"]` or `[["a.en", "a.de"], ["b.tsv"]]` as groups of one or two paths, all of them files."""
    groups = [listed] if listed and isinstance(listed[0], str) else listed
    for group in groups:
        if not 1 <= len(group) <= 2:
            raise RegardError(
                f"{key} lists {len(group)} files where one or two are meant.",
                "A corpus is two line-aligned files, or one TSV.",
                'Write several corpora as a list of lists: [["a.en", "a.de"], ["b.en", "b.de"]].',
            )
    corpora = tuple(tuple(Path(root, path) for path in group) for group in groups)
    for path in (path for paths in corpora for path in paths):
        if not path.is_file():
            raise missing_file(path, root)
    return corpora


OVER = object()  # a file has no further lines


def read_aligned(source: Path, target: Path, bad_lines: str = "error") -> Iterator[Pair | None]:
    """Line n of one file with line n of the other; None where one of them is bad and is to be skipped."""
    sources, targets = read_lines(source, bad_lines), read_lines(target, bad_lines)
    count = 0
    while True:
        left, right = next(sources, OVER), next(targets, OVER)
        if left is OVER and right is OVER:
            return
        if left is OVER or right is OVER:
            # Read on, so that the error can say how many lines each file has.
            left_count = count + (left is not OVER) + sum(1 for _ in sources)
            right_count = count + (right is not OVER) + sum(1 for _ in targets)
            raise RegardError(
                f"'{source}' and '{target}' are not aligned.",
                f"The first has {left_count:,} lines, the second {right_count:,}.",
                "Line n of one must be the translation of line n of the other; fix the files.",
            )
        count += 1
        yield (left, right) if isinstance(left, str) and isinstance(right, str) else None


def read_tsv(path: Path, columns: list[int], bad_lines: str = "error") -> Iterator[Pair | None]:
    """Two columns of every line; None for a bad line that is to be skipped."""
    for number, line in enumerate(read_lines(path, bad_lines), start=1):
        if line is None:
            yield None
            continue
        fields = line.split("\t")
        if len(fields) <= max(columns):
            if bad_lines == "skip":
                yield None
                continue
            raise RegardError(
                f"Line {number:,} of '{path}' has {len(fields)} column(s).",
                f"Columns {columns[0]} and {columns[1]} are wanted (counted from 0), separated by tabs.",
                'Fix the line, set data.columns, or skip such lines with data.bad_lines="skip".',
            )
        yield fields[columns[0]], fields[columns[1]]


@cache
def _sample_pairs(split: str, kept_in: Path) -> list[Pair]:
    """A split of the built-in corpus. To make up its sentences takes seconds, so they are kept."""
    key = ["english-german", *(sha256(path) for path in sorted(Path(english_german.__file__).parent.glob("*.py")))]
    try:
        path = cached(kept_in, key, _write_sample) / f"{split}.tsv"
        lines = path.read_text(encoding="utf-8").splitlines()
    except (RegardError, OSError):  # there is no place to keep them
        pairs: list[Pair] = getattr(english_german.corpus(), split)
        return pairs
    return [(source, target) for source, target in (line.split("\t") for line in lines)]


def _write_sample(folder: Path) -> None:
    corpus = english_german.corpus()
    for split in SPLITS:
        text = "".join(f"{source}\t{target}\n" for source, target in getattr(corpus, split))
        (folder / f"{split}.tsv").write_text(text, encoding="utf-8")


def not_empty(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Pairs with text on both sides: an empty side teaches nothing."""
    return (pair for pair in pairs if has_text(pair))


def has_text(pair: Pair) -> bool:
    return all(side.strip() for side in pair)
