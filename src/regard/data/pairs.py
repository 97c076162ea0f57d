"""Pairs of texts from files: two line-aligned files, one TSV or one .jsonl; plain or gzipped.

Everything is read as a stream, so a corpus may be larger than memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from regard.data.cache import cache_folder, cached
from regard.data.fingerprints import fingerprint
from regard.data.lines import HALF_A_CHARACTER, Skipped, bad_line, encodable, ending_of, read_lines, wrong_columns
from regard.data.samples import english_german, package_descriptions, stories
from regard.data.splits import SPLITS, Division, divided, missing_file
from regard.errors import RegardError
from regard.files import sha256
from regard.settings import FileList, PairFiles

Pair = tuple[str, str]
Sample = tuple[str, ...]  # a pair; or a source with several targets, each as good as the first
BUILT_IN: dict[str, Any] = {
    "english-german": english_german,
    "package-descriptions": package_descriptions,
    "stories": stories,  # to be answered in words
}
Corpora = tuple[tuple[Path, ...], ...]  # each two aligned files, or one TSV


@dataclass(frozen=True)
class PairSource:
    """One split of the data. Every iteration reads it from the start."""

    name: str
    settings: PairFiles
    corpora: Corpora
    division: Division | None = None  # where train is divided, the part that this split has of it

    def __iter__(self) -> Iterator[Pair]:
        return (pair for pair in self.lines() if pair is not None)

    def lines(self) -> Iterator[Pair | None]:
        """A pair for every line; None for a bad one that is to be skipped, which belongs to no part of a division."""
        return (None if sample is None else (sample[0], sample[1]) for sample in self.samples())

    def samples(self) -> Iterator[Sample | None]:
        """The same with all targets that a line has."""
        return self.read(Skipped())

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for paths in self.corpora for path in paths)

    @property
    def skips(self) -> bool:
        return self.settings.bad_lines == "skip"

    def read(self, skipped: Skipped) -> Iterator[Sample | None]:
        """All samples; bad lines are noted."""
        for sample in self._built_in() if self.settings.sample else self._from_files(skipped):
            # By its source alone: translations of the same sentence are in the same split.
            if self.division is None or (sample is not None and self.division.split(sample[0]) == self.name):
                yield sample

    def _built_in(self) -> Iterator[Pair]:
        yield from _sample_pairs(self.settings.sample, self.name, cache_folder(self.settings.cache))

    def _from_files(self, skipped: Skipped) -> Iterator[Sample | None]:
        for paths in self.corpora:
            if len(paths) == 2:
                yield from read_aligned(paths[0], paths[1], self.settings.bad_lines, skipped)
            elif is_jsonl(paths[0]):
                yield from read_jsonl(paths[0], self.settings.fields, self.settings.bad_lines, skipped)
            else:
                yield from read_tsv(paths[0], self._columns, self.settings.bad_lines, skipped)

    @property
    def _columns(self) -> list[int]:
        return [*self.settings.columns, *(self.settings.more_columns if self.name == "test" else [])]

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the pairs change."""
        if self.settings.sample:
            return fingerprint([], self.name, list(self))
        # The same files in other groups are other pairs: two aligned files, or two TSVs.
        groups = [len(paths) for paths in self.corpora]
        fields = [self.settings.fields] if any(map(is_jsonl, self.files)) else []
        return fingerprint(
            self.files, self.name, self.division, self._columns, self.settings.bad_lines, groups, *fields
        )


def pair_splits(data: PairFiles) -> dict[str, PairSource]:
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


def pair_source(listed: FileList, data: PairFiles) -> PairSource:
    """Other files to test on, read as the settings say; their paths start where the command was given."""
    return PairSource("test", data.model_copy(update={"sample": ""}), pair_files(listed, ".", "the test data"))


def pair_files(listed: FileList, root: str, key: str) -> Corpora:
    """`["a.en", "a.de"]` or `[["a.en", "a.de"], ["b.tsv"]]` as groups of one or two paths, all of them files."""
    groups = [listed] if listed and isinstance(listed[0], str) else listed
    for group in groups:
        if not 1 <= len(group) <= 2:
            raise RegardError(
                f"{key} lists {len(group)} files where one or two are meant.",
                "A corpus is two line-aligned files, one TSV or one .jsonl.",
                'Write several corpora as a list of lists: [["a.en", "a.de"], ["b.en", "b.de"]].',
            )
    corpora = tuple(tuple(Path(root, path) for path in group) for group in groups)
    for path in (path for paths in corpora for path in paths):
        if not path.is_file():
            raise missing_file(path, root)
    return corpora


OVER = object()  # a file has no further lines


def read_aligned(
    source: Path, target: Path, bad_lines: str = "error", skipped: Skipped | None = None
) -> Iterator[Pair | None]:
    """Line n of one file with line n of the other; None where one of them is bad and is to be skipped."""
    sources, targets = (read_lines(path, bad_lines, skipped=skipped) for path in (source, target))
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


def is_jsonl(path: Path) -> bool:
    return ending_of(path) == ".jsonl"


def read_jsonl(
    path: Path, fields: tuple[str, str], bad_lines: str = "error", skipped: Skipped | None = None
) -> Iterator[Sample | None]:
    """Two fields of every object, the second a text or a list of them; None for a bad line that is to be skipped."""
    advice = 'Fix the line, name other fields in [data], or skip such lines with data.bad_lines="skip".'
    for number, line in enumerate(read_lines(path, bad_lines, skipped=skipped), start=1):
        sample = None if line is None else json_sample(line, fields)
        if isinstance(sample, str):
            bad_line(path, number, sample, bad_lines, skipped, advice)
        yield None if isinstance(sample, str) else sample


def json_sample(line: str, fields: tuple[str, str]) -> Sample | str:
    """The texts of a line; or why it has none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"It is not valid JSON: {error}."
    source, target = (record.get(field) if isinstance(record, dict) else None for field in fields)
    targets = [target] if isinstance(target, str) else target
    if not isinstance(source, str):
        return f"It has no text in the field '{fields[0]}'."
    if not isinstance(targets, list) or not targets or not all(isinstance(each, str) for each in targets):
        return f"It has no text in the field '{fields[1]}'."
    return (source, *targets) if encodable(source, *targets) else HALF_A_CHARACTER


def read_tsv(
    path: Path, columns: list[int], bad_lines: str = "error", skipped: Skipped | None = None
) -> Iterator[Sample | None]:
    """Some columns of every line; None for a bad line that is to be skipped."""
    advice = 'Fix the line, set data.columns, or skip such lines with data.bad_lines="skip".'
    for number, line in enumerate(read_lines(path, bad_lines, skipped=skipped), start=1):
        fields = [] if line is None else line.split("\t")
        if fields and len(fields) <= max(columns):
            bad_line(path, number, wrong_columns(len(fields), columns), bad_lines, skipped, advice)
            fields = []
        yield tuple(fields[column] for column in columns) if fields else None


@cache
def _sample_pairs(sample: str, split: str, kept_in: Path) -> list[Pair]:
    """A split of a built-in corpus. To make up its sentences takes seconds, so they are kept."""
    key = [sample, *(sha256(path) for path in sorted(Path(english_german.__file__).parent.glob("*.py")))]
    try:
        path = cached(kept_in, key, lambda folder: _write_sample(sample, folder)) / f"{split}.tsv"
        lines = path.read_text(encoding="utf-8").splitlines()
    except (RegardError, OSError):  # there is no place to keep them
        pairs: list[Pair] = getattr(BUILT_IN[sample].corpus(), split)
        return pairs
    return [(source, target) for source, target in (line.split("\t") for line in lines)]


def _write_sample(sample: str, folder: Path) -> None:
    corpus = BUILT_IN[sample].corpus()
    for split in SPLITS:
        text = "".join(f"{source}\t{target}\n" for source, target in getattr(corpus, split))
        (folder / f"{split}.tsv").write_text(text, encoding="utf-8")


def not_empty(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Pairs with text on both sides: an empty side teaches nothing."""
    return (pair for pair in pairs if has_text(pair))


def has_text(sides: Iterable[str]) -> bool:
    return all(side.strip() for side in sides)
