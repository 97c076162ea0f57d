"""Packing: sentence pairs laid into rows of constant length, several to a row.

Source and target of a pair go into the same row, so a row is full when either side is. To waste little
of the other side, a row takes pairs in their shuffled order until it is nearly full, and then looks for
two pairs whose lengths fill both sides to the last token.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = list[list[int]]


def pack(source_lengths: NDArray[np.int64], target_lengths: NDArray[np.int64], room: tuple[int, int]) -> Rows:
    """Lay pairs, in the order given, into rows with `room` for (source, target) tokens.

    Every pair must fit into an empty row. Each pair is used once; the result depends on nothing else.
    """
    pool = _Pool(source_lengths, target_lengths, room)
    # Two pairs more than the mean's worth of room: enough choice for the last two.
    near_full = 3 * float(np.mean(source_lengths)) if len(source_lengths) else 0.0
    rows: Rows = []
    while len(pool):
        row: list[int] = []
        left_source, left_target = room
        while left_source > near_full and (pair := pool.next_in_order(left_source, left_target)) is not None:
            row.append(pair)
            left_source -= int(source_lengths[pair])
            left_target -= int(target_lengths[pair])
        for pair in pool.fill(left_source, left_target):
            row.append(pair)
        rows.append(row)
    return rows


class _Pool:
    """The pairs not yet laid, by order and by their two lengths."""

    def __init__(self, source_lengths: NDArray[np.int64], target_lengths: NDArray[np.int64], room: tuple[int, int]):
        self.lengths = list(zip(source_lengths.tolist(), target_lengths.tolist(), strict=True))
        self.used = bytearray(len(self.lengths))
        self.left = len(self.lengths)
        self.cursor = 0
        # How many unused pairs there are of each (source length, target length).
        self.counts = np.zeros((room[0] + 1, room[1] + 1), np.int32)
        np.add.at(self.counts, (source_lengths, target_lengths), 1)
        # Every kind of pair, and its pairs with the first in order last.
        self.of_kind: dict[tuple[int, int], list[int]] = {}
        for index in range(len(self.lengths) - 1, -1, -1):
            self.of_kind.setdefault(self.lengths[index], []).append(index)
        kinds = np.array(sorted(self.of_kind), np.int64).reshape(-1, 2)
        self.kind_source, self.kind_target = kinds[:, 0], kinds[:, 1]

    def __len__(self) -> int:
        return self.left

    def next_in_order(self, room_source: int, room_target: int) -> int | None:
        """The first unused pair, if it fits."""
        while self.cursor < len(self.used) and self.used[self.cursor]:
            self.cursor += 1
        if self.cursor == len(self.used):
            return None
        source, target = self.lengths[self.cursor]
        if source > room_source or target > room_target:
            return None
        self._take(self.cursor)
        return self.cursor

    def fill(self, room_source: int, room_target: int) -> list[int]:
        """Two pairs that fill the room exactly; else the largest that fits, again and again."""
        taken: list[int] = []
        while self.left:
            fits = (self.kind_source <= room_source) & (self.kind_target <= room_target)
            fits &= self.counts[self.kind_source, self.kind_target] > 0
            source, target = self.kind_source[fits], self.kind_target[fits]
            if not len(source):
                break
            partners = self.counts[room_source - source, room_target - target]
            # A pair is no partner of itself unless there are two of its kind.
            partners = partners - ((2 * source == room_source) & (2 * target == room_target))
            exact = np.flatnonzero(partners > 0)
            # Otherwise leave as little as possible, and the two sides even.
            waste = (room_source - source) + (room_target - target) + np.abs((room_source - source) - (room_target - target))
            best = int(exact[len(exact) // 2]) if len(exact) else int(np.argmin(waste))
            pair = self._pop((int(source[best]), int(target[best])))
            taken.append(pair)
            room_source -= self.lengths[pair][0]
            room_target -= self.lengths[pair][1]
        return taken

    def _pop(self, kind: tuple[int, int]) -> int:
        stack = self.of_kind[kind]
        while self.used[stack[-1]]:
            stack.pop()
        pair = stack.pop()
        self._take(pair)
        return pair

    def _take(self, pair: int) -> None:
        self.used[pair] = 1
        self.left -= 1
        self.counts[self.lengths[pair]] -= 1
