"""Othello: a move takes what lies between it and another disc of its side, in all eight directions.

A board is two numbers of 64 bits, one for each side; bit 8·row + column is a square, a1 first. What holds for one board
is written with operators that numpy has too: the same lines play one game, or many thousand side by side.

    moved(b)   all squares of b, one step further in a direction; what leaves the board is gone
    line       the discs to be taken in a direction: theirs, next to the move, with one of mine behind them

A player without a move passes, which is not written down: the other moves twice. The game ends when neither can move.

Shapes: B games · L moves · S squares
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from regard.data.games.position import DRAW, FIRST, SECOND, Played, Position
from regard.data.games.tictactoe import grid

FULL = (1 << 64) - 1
NOT_A, NOT_H = 0xFEFEFEFEFEFEFEFE, 0x7F7F7F7F7F7F7F7F  # all squares but those of the first column, of the last
# How far the bit of a neighbour is, and where a step there may end.
DIRECTIONS = ((1, NOT_A), (9, NOT_A), (-7, NOT_A), (-1, NOT_H), (-9, NOT_H), (7, NOT_H), (8, FULL), (-8, FULL))
BLACK, WHITE = 1 << 28 | 1 << 35, 1 << 27 | 1 << 36  # e4, d5 and d4, e5
LONGEST = 60  # moves

Bits = Any  # int, or NDArray[np.uint64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Othello(Position):
    """`mine` are the discs of who moves."""

    sides: ClassVar[tuple[str, str]] = ("black", "white")
    words: ClassVar[tuple[str, ...]] = tuple(f"{column}{row}" for row in "12345678" for column in "abcdefgh")

    mine: int = BLACK
    theirs: int = WHITE
    side: int = FIRST  # type: ignore[misc]

    @classmethod
    def start(cls) -> Othello:
        return cls()

    @property
    def legal(self) -> list[int]:
        moves = legal_bits(self.mine, self.theirs)
        return [square for square in range(64) if moves >> square & 1]

    def play(self, move: int) -> Othello:
        flipped = flips(1 << move, self.mine, self.theirs)
        mine, theirs = self.mine | flipped | 1 << move, self.theirs & ~flipped
        if not legal_bits(theirs, mine) and legal_bits(mine, theirs):
            return Othello(mine, theirs, self.side)  # the other passes
        return Othello(theirs, mine, 1 - self.side)

    @property
    def result(self) -> int | None:
        if legal_bits(self.mine, self.theirs):  # who cannot move has passed already
            return None
        mine, theirs = self.mine.bit_count(), self.theirs.bit_count()
        return DRAW if mine == theirs else self.side if mine > theirs else 1 - self.side

    @property
    def board(self) -> list[int | None]:
        return [
            self.side if self.mine >> square & 1 else 1 - self.side if self.theirs >> square & 1 else None
            for square in range(64)
        ]

    def show(self) -> str:
        discs = [self.board.count(side) for side in (FIRST, SECOND)]
        return f"{grid(self.board, 'abcdefgh', 'xo')}\nblack x: {discs[0]}, white o: {discs[1]}"

    @classmethod
    def random_games(
        cls, count: int, generator: np.random.Generator, perfect: float = 0.0, longest: int | None = None
    ) -> list[Played]:
        """All side by side, to the end, which is never far. Nobody plays Othello perfectly."""
        results_B, moves_BL, lengths_B = _side_by_side(count, generator)
        games = zip(results_B.tolist(), moves_BL.tolist(), lengths_B.tolist(), strict=True)
        return [Played(result, moves[:length]) for result, moves, length in games]


def legal_bits(mine: Bits, theirs: Bits) -> Bits:
    """The squares where who has `mine` may move."""
    empty = ~(mine | theirs) & FULL
    moves = empty & 0
    for step, inside in DIRECTIONS:
        line = _moved(mine, step, inside) & theirs
        for _ in range(5):
            line = line | _moved(line, step, inside) & theirs
        moves = moves | _moved(line, step, inside) & empty
    return moves


def flips(move: Bits, mine: Bits, theirs: Bits) -> Bits:
    """The discs that a move, given as its bit, takes."""
    taken = mine & 0
    for step, inside in DIRECTIONS:
        line = _moved(move, step, inside) & theirs
        for _ in range(5):
            line = line | _moved(line, step, inside) & theirs
        closed = (_moved(line, step, inside) & mine) != 0
        taken = taken | line * closed
    return taken


def _moved(squares: Bits, step: int, inside: int) -> Bits:
    return (squares << step if step > 0 else squares >> -step) & inside


def _side_by_side(count: int, generator: np.random.Generator) -> tuple[Numbers, Numbers, Numbers]:
    """Games at random: their results, [B], their moves, [B, L], and how many each has, [B]."""
    squares_S = np.arange(64, dtype=np.uint64)
    mine_B, theirs_B = np.full(count, BLACK, np.uint64), np.full(count, WHITE, np.uint64)
    side_B = np.zeros(count, np.int64)
    moves_BL, lengths_B = np.zeros((count, LONGEST), np.int64), np.zeros(count, np.int64)
    for number in range(LONGEST):
        legal_B = legal_bits(mine_B, theirs_B)
        passes_B = legal_B == 0
        mine_B, theirs_B = np.where(passes_B, theirs_B, mine_B), np.where(passes_B, mine_B, theirs_B)
        legal_B = legal_bits(mine_B, theirs_B)
        going_B = legal_B != 0
        allowed_BS = (legal_B[:, None] >> squares_S & np.uint64(1)).astype(np.int8)
        chosen_B = (generator.random(count) * allowed_BS.sum(1)).astype(np.int8)  # of the legal moves, in their order
        move_B = (allowed_BS.cumsum(1, dtype=np.int8) > chosen_B[:, None]).argmax(1)
        bit_B = np.where(going_B, np.uint64(1) << move_B.astype(np.uint64), np.uint64(0))
        taken_B = flips(bit_B, mine_B, theirs_B)
        moves_BL[:, number] = move_B
        lengths_B += going_B
        mine_B, theirs_B = theirs_B & ~taken_B, mine_B | taken_B | bit_B
        side_B = 1 - np.where(passes_B, 1 - side_B, side_B)
    ahead_B = np.bitwise_count(mine_B).astype(int) - np.bitwise_count(theirs_B)
    results_B = np.where(ahead_B == 0, DRAW, np.where(ahead_B > 0, side_B, 1 - side_B))
    return results_B, moves_BL, lengths_B
