"""Packing: sentence pairs put into rows of constant length, several to a row; or one per row, by length.

Source and target of a pair go into the same row, so a row is full when either side is. To waste little
of the other side, a row takes pairs in the order given until there is room for about two more, and then
looks for two pairs that together fill both sides to the last token, or nearly.

Plain Python lists and dicts: the work is one small decision after another.
"""

from __future__ import annotations

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
    sources, targets = source_lengths.tolist(), target_lengths.tolist()
    pool = _Pool(sources, targets, room)
    for_two_more = 3 * float(np.mean(source_lengths)) if len(source_lengths) else 0.0
    rows: Rows = []
    while pool.left:
        row: list[int] = []
        source, target = room
        while source > for_two_more and (pair := pool.first) is not None:
            if sources[pair] > source or targets[pair] > target:
                break
            pool.take(pair)
            row.append(pair)
            source -= sources[pair]
            target -= targets[pair]
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
    sources, targets = pool.sources, pool.targets
    taken: list[int] = []
    while candidates := [pair for pair in pool.next_few() if sources[pair] <= source and targets[pair] <= target]:
        if two := _two_that_fill(pool, candidates, source, target):
            return taken + two
        largest = max(candidates, key=lambda pair: sources[pair] + targets[pair])
        pool.take(largest)
        taken.append(largest)
        source -= sources[largest]
        target -= targets[largest]
    return taken


def _two_that_fill(pool: _Pool, candidates: list[int], source: int, target: int) -> list[int] | None:
    room, kinds, with_kind = pool.kind(source, target), pool.kinds, pool.with_kind
    left = [room - kinds[first] for first in candidates]  # of the room, next to each of them
    for spare in pool.spare:
        for first, room_left in zip(candidates, left, strict=True):
            if room_left - spare in with_kind:
                second = pool.find(room_left - spare, other_than=first)
                if second is not None:
                    pool.take(first)
                    pool.take(second)
                    return [first, second]
    return None


class _Pool:
    """The pairs not yet packed, as a ring of links in the order given, so that taking one is a single step.

    The two lengths of a pair are one number, its kind: kinds add up as lengths do, and are found faster than two.
    """

    def __init__(self, sources: list[int], targets: list[int], room: Lengths):
        self.sources, self.targets = sources, targets
        self.used = bytearray(len(sources))
        self.left = len(sources)
        # The ring closes at `end`, which stands after the last pair and before the first.
        self.end = len(sources)
        self.after = [*range(1, self.end + 1), 0]
        self.before = [self.end, *range(self.end)]
        # More than the targets of two kinds can differ by, so that two kinds are equal only if both lengths are.
        self.unit = room[1] + max(spare for _, spare in SPARE) + 1
        self.spare = [self.kind(*spare) for spare in SPARE]
        self.kinds = [self.kind(source, target) for source, target in zip(sources, targets, strict=True)]
        # The pairs of each kind, the first in order last.
        self.with_kind: dict[int, list[int]] = {}
        for index in range(len(sources) - 1, -1, -1):
            self.with_kind.setdefault(self.kinds[index], []).append(index)

    def kind(self, source: int, target: int) -> int:
        return source * self.unit + target

    def take(self, pair: int) -> None:
        self.used[pair] = 1
        self.left -= 1
        after, before = self.after[pair], self.before[pair]
        self.after[before], self.before[after] = after, before

    @property
    def first(self) -> int | None:
        """The first pair in order that is left."""
        pair = self.after[self.end]
        return None if pair == self.end else pair

    def next_few(self) -> list[int]:
        """The next pairs in order that are left."""
        few: list[int] = []
        after, pair = self.after, self.after[self.end]
        while pair != self.end and len(few) < LOOK_AHEAD:
            few.append(pair)
            pair = after[pair]
        return few

    def find(self, kind: int, other_than: int) -> int | None:
        """A pair of exactly this kind."""
        stack = self.with_kind[kind]
        while stack and self.used[stack[-1]]:
            stack.pop()
        if not stack:
            del self.with_kind[kind]
            return None
        if stack[-1] == other_than:
            # The next one below may have been used meanwhile; then there is none to be had cheaply.
            return stack[-2] if len(stack) > 1 and not self.used[stack[-2]] else None
        return stack[-1]
