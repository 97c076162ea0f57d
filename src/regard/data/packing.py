"""Packing: sentence pairs put into rows of constant length, several to a row; or one per row, by length.

Source and target of a pair go into the same row, so a row is full when either side is. To waste little
of the other side, a row takes pairs in the order given until there is room for about two more, and then
looks for two pairs that together fill both sides to the last token, or nearly.

Plain Python lists and dicts: the work is one small decision after another.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Rows = list[list[int]]
Lengths = tuple[int, int]  # of source and target

# 8, 12, 16, 24, 32, 48 … : never more than half as long again as needed
ROW_LENGTHS = [size << power for power in range(2, 24) for size in (2, 3)]
LOOK_AHEAD = 16  # pairs considered for the end of a row
# Tokens of (source, target) that may be left over, tried in this order.
SPARE = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1), (2, 2)]


def pack(source_lengths: NDArray[np.int64], target_lengths: NDArray[np.int64], room: Lengths) -> Rows:
    """Put pairs, in the order given, into rows with `room` for (source, target) tokens.

    Every pair must fit into an empty row. Each pair is used once; the result depends on nothing else.
    """
    pool = _Pool(list(zip(source_lengths.tolist(), target_lengths.tolist(), strict=True)))
    for_two_more = 3 * float(np.mean(source_lengths)) if len(source_lengths) else 0.0
    rows: Rows = []
    while pool.left:
        row: list[int] = []
        source, target = room
        while source > for_two_more and (pair := pool.first()) is not None:
            if pool.lengths[pair][0] > source or pool.lengths[pair][1] > target:
                break
            pool.take(pair)
            row.append(pair)
            source -= pool.lengths[pair][0]
            target -= pool.lengths[pair][1]
        rows.append(row + _last_pairs(pool, source, target))
    return rows


def group_by_length(lengths: NDArray[np.int64], positions: int) -> list[tuple[int, list[int]]]:
    """Samples in batches of `positions`, one sample per row; with each batch the length of its rows.

    There are few lengths, so that few shapes are computed with. What does not fill a batch goes to the next longer
    rows, so that only the last batch has empty ones.
    """
    groups: list[tuple[int, list[int]]] = []
    waiting: list[int] = []
    shorter = 0
    for length in ROW_LENGTHS:
        waiting += np.flatnonzero((lengths > shorter) & (lengths <= length)).tolist()
        shorter, rows = length, rows_of_length(length, positions)
        while len(waiting) >= rows:
            groups.append((length, waiting[:rows]))
            waiting = waiting[rows:]
    if waiting:
        longest = int(lengths[waiting].max())
        groups.append((next(length for length in ROW_LENGTHS if length >= longest), waiting))
    return groups


def rows_of_length(length: int, positions: int) -> int:
    """How many rows make a batch of about this many positions."""
    return max(1, positions // length)


def _last_pairs(pool: _Pool, source: int, target: int) -> list[int]:
    """Two pairs that fill the room; if there are none, the largest that fits, and so on."""
    taken: list[int] = []
    while candidates := [
        pair for pair in pool.next_few() if pool.lengths[pair][0] <= source and pool.lengths[pair][1] <= target
    ]:
        if two := _two_that_fill(pool, candidates, source, target):
            return taken + two
        largest = max(candidates, key=lambda pair: sum(pool.lengths[pair]))
        pool.take(largest)
        taken.append(largest)
        source -= pool.lengths[largest][0]
        target -= pool.lengths[largest][1]
    return taken


def _two_that_fill(pool: _Pool, candidates: list[int], source: int, target: int) -> list[int] | None:
    for spare_source, spare_target in SPARE:
        for first in candidates:
            missing = (
                source - spare_source - pool.lengths[first][0],
                target - spare_target - pool.lengths[first][1],
            )
            if missing in pool.by_lengths and (second := pool.find(missing, other_than=first)) is not None:
                pool.take(first)
                pool.take(second)
                return [first, second]
    return None


class _Pool:
    """The pairs not yet packed, as a ring of links in the order given, so that taking one is a single step."""

    def __init__(self, lengths: list[Lengths]):
        self.lengths = lengths
        self.used = bytearray(len(lengths))
        self.left = len(lengths)
        # The ring closes at `end`, which stands after the last pair and before the first.
        self.end = len(lengths)
        self.after = [*range(1, self.end + 1), 0]
        self.before = [self.end, *range(self.end)]
        # The pairs of each two lengths, the first in order last.
        self.by_lengths: dict[Lengths, list[int]] = {}
        for index in range(len(lengths) - 1, -1, -1):
            self.by_lengths.setdefault(lengths[index], []).append(index)

    def take(self, pair: int) -> None:
        self.used[pair] = 1
        self.left -= 1
        self.after[self.before[pair]] = self.after[pair]
        self.before[self.after[pair]] = self.before[pair]

    def first(self) -> int | None:
        """The first pair in order that is left."""
        return next(self.next_few(), None)

    def next_few(self) -> Iterator[int]:
        """The next pairs in order that are left."""
        pair = self.after[self.end]
        for _ in range(LOOK_AHEAD):
            if pair == self.end:
                return
            yield pair
            pair = self.after[pair]

    def find(self, lengths: Lengths, other_than: int) -> int | None:
        """A pair of exactly these lengths."""
        stack = self.by_lengths[lengths]
        while stack and self.used[stack[-1]]:
            stack.pop()
        if stack and stack[-1] == other_than:
            # The next one below may have been used meanwhile; then there is none to be had cheaply.
            return stack[-2] if len(stack) > 1 and not self.used[stack[-2]] else None
        return stack[-1] if stack else None
