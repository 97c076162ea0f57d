"""Word alignment against links that people drew.

    precision = |A ∩ P| / |A|        recall = |A ∩ S| / |S|
    AER = 1 − (|A ∩ P| + |A ∩ S|) / (|A| + |S|)              over the whole corpus (Och and Ney, 2003)

A: the links found · S: those that are sure · P: those that are possible, S among them. A link is (source word, target
word), counted from 0 within their sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.errors import RegardError

Links = frozenset[tuple[int, int]]
LINK = re.compile(r"(\d+)([-p?])(\d+)")  # sure or possible
NUMBERED = re.compile(r"(\d+)\s+(\d+)\s+(\d+)(?:\s+([SP]))?(?:\s+[\d.]+)?")  # sentence, two words, sure or possible


@dataclass(frozen=True)
class Gold:
    """The links of a sentence."""

    sure: Links
    possible: Links  # the sure ones too


@dataclass(frozen=True)
class AlignmentScore:
    aer: float  # %
    precision: float  # %
    recall: float  # %
    links: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def score_alignment(found: Iterable[Links], gold: Iterable[Gold]) -> AlignmentScore:
    links = sure = correct = recalled = 0
    for each, right in zip(found, gold, strict=True):
        links, sure = links + len(each), sure + len(right.sure)
        correct, recalled = correct + len(each & right.possible), recalled + len(each & right.sure)
    if not links + sure:
        return AlignmentScore(0.0, 0.0, 0.0, 0)
    return AlignmentScore(
        100 * (1 - (correct + recalled) / (links + sure)),
        100 * correct / links if links else 0.0,
        100 * recalled / sure if sure else 0.0,
        links,
    )


def read_gold(path: Path, lengths: Sequence[tuple[int, int]], first: int = 1, swapped: bool = False) -> list[Gold]:
    """The links of every sentence, of which `lengths` has the words: source and target.

    A line for each sentence with links such as 3-4 (sure) and 3p4 (possible); or a line for each link: sentence, two
    words, and S or P. Words count from `first`. `swapped`: the word of the target comes first.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RegardError(f"Cannot read '{path}'.", str(error), "Check the path of the links.") from None
    numbered = next((bool(NUMBERED.fullmatch(line.strip())) for line in lines if line.strip()), False)
    if not numbered and len(lines) != len(lengths):
        raise RegardError(
            f"'{path}' has {len(lines):,} lines for {len(lengths):,} pairs of sentences.",
            "There is one line of links for each pair.",
            "Name the texts that these links are of.",
        )
    sure: list[set[tuple[int, int]]] = [set() for _ in lengths]
    possible: list[set[tuple[int, int]]] = [set() for _ in lengths]
    for number, line in enumerate(lines, start=1):
        for sentence, left, right, is_sure in _numbered(line) if numbered else _listed(line, number):
            link = (right - first, left - first) if swapped else (left - first, right - first)
            there = 0 <= sentence < len(lengths)
            if not there or not all(0 <= word < count for word, count in zip(link, lengths[sentence], strict=True)):
                raise RegardError(
                    f"'{path}', line {number}: the link {left}-{right} leads to no word.",
                    f"Words count from {first}, and {'the target' if swapped else 'the source'} comes first.",
                    "Check --links-start and --links-swapped.",
                )
            possible[sentence].add(link)
            if is_sure:
                sure[sentence].add(link)
        if line.strip() and not (NUMBERED.fullmatch(line.strip()) if numbered else _is_listed(line)):
            raise RegardError(
                f"'{path}', line {number}: '{line.strip()[:40]}' is no list of links.",
                "A link is 3-4 if it is sure and 3p4 if it is possible; or a line of its own: sentence, word, word, S.",
                "Correct the line.",
            )
    if not any(possible):
        raise RegardError(
            f"'{path}' has no links.", "There is nothing to compare with.", "Check the path of the links."
        )
    return [Gold(frozenset(s), frozenset(p)) for s, p in zip(sure, possible, strict=True)]


def _listed(line: str, number: int) -> Iterable[tuple[int, int, int, bool]]:
    for part in line.split():
        if match := LINK.fullmatch(part):
            yield number - 1, int(match[1]), int(match[3]), match[2] == "-"


def _is_listed(line: str) -> bool:
    return all(LINK.fullmatch(part) for part in line.split())


def _numbered(line: str) -> Iterable[tuple[int, int, int, bool]]:
    if match := NUMBERED.fullmatch(line.strip()):
        yield int(match[1]) - 1, int(match[2]), int(match[3]), match[4] != "P"
