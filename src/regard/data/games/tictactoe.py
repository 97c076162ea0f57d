"""Tic-tac-toe: three in a row on a board of three by three.

  a b c
1 x . .
2 . o .       a square is a bit: a1 is 1, b1 is 2, c1 is 4, a2 is 8 …
3 . . .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from regard.data.games.position import DRAW, FIRST, SECOND, Position

LINES = (0b111, 0b111000, 0b111000000, 0b1001001, 0b10010010, 0b100100100, 0b100010001, 0b1010100)
FULL = 0b111111111


@dataclass(frozen=True, slots=True)
class TicTacToe(Position):
    sides: ClassVar[tuple[str, str]] = ("x", "o")
    words: ClassVar[tuple[str, ...]] = tuple(f"{column}{row}" for row in "123" for column in "abc")
    solved: ClassVar[bool] = True

    crosses: int = 0
    noughts: int = 0

    @classmethod
    def start(cls) -> TicTacToe:
        return cls()

    @property
    def side(self) -> int:
        return (self.crosses | self.noughts).bit_count() % 2

    @property
    def legal(self) -> list[int]:
        if self.result is not None:
            return []
        taken = self.crosses | self.noughts
        return [square for square in range(9) if not taken >> square & 1]

    def play(self, move: int) -> TicTacToe:
        if self.side == FIRST:
            return TicTacToe(self.crosses | 1 << move, self.noughts)
        return TicTacToe(self.crosses, self.noughts | 1 << move)

    @property
    def result(self) -> int | None:
        for line in LINES:
            if self.crosses & line == line:
                return FIRST
            if self.noughts & line == line:
                return SECOND
        return DRAW if self.crosses | self.noughts == FULL else None

    @property
    def board(self) -> list[int | None]:
        return [
            FIRST if self.crosses >> square & 1 else SECOND if self.noughts >> square & 1 else None
            for square in range(9)
        ]

    def show(self) -> str:
        return grid(self.board, "abc", "xo")


def grid(board: list[int | None], columns: str, pieces: str) -> str:
    """A square board as text, with the names of its columns and rows; `pieces`: the sign of each side."""
    signs = ["." if side is None else pieces[side] for side in board]
    width = len(columns)
    rows = [f"{row + 1} {' '.join(signs[row * width : (row + 1) * width])}" for row in range(width)]
    return "\n".join([f"  {' '.join(columns)}", *rows])
