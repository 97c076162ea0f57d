"""What a game is: positions, the moves that are legal in them, and who has won.

A position never changes; a move gives another one. So taking back a move is going back to the position before it.
Moves are numbers, and `words` says how each is written; sides are 0, who moves first, and 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, Self

import numpy as np

FIRST, SECOND, DRAW = 0, 1, 2  # results: the side that has won, or neither


class Played(NamedTuple):
    """A game from its start on."""

    result: int
    moves: list[int]


class Position(ABC):
    """Two positions of a game are equal if all that can follow is the same; they can be keys of a dict."""

    sides: ClassVar[tuple[str, str]]  # what people call who moves first, and who second
    words: ClassVar[tuple[str, ...]]  # how every move that there can be is written
    block: ClassVar[int] = 10_000  # games that are made together
    solved: ClassVar[bool] = False  # whether the game is small enough to be played perfectly

    @classmethod
    @abstractmethod
    def start(cls) -> Self:
        """The position that a game begins with."""

    @property
    @abstractmethod
    def side(self) -> int:
        """Who moves: 0 or 1."""

    @property
    @abstractmethod
    def legal(self) -> list[int]:
        """The moves that are allowed. There is at least one while the game is not over."""

    def allows(self, move: int) -> bool:
        return move in self.legal

    @abstractmethod
    def play(self, move: int) -> Self:
        """The position after a legal move."""

    @property
    @abstractmethod
    def result(self) -> int | None:
        """FIRST, SECOND or DRAW; None while the game is not over."""

    @property
    @abstractmethod
    def board(self) -> list[int | None]:
        """The side that each square belongs to; None: it is empty."""

    @abstractmethod
    def show(self) -> str:
        """The board as lines of text."""

    @classmethod
    def result_names(cls) -> tuple[str, str, str]:
        """How each result is written in files: "x", "o", "draw"."""
        return (*cls.sides, "draw")

    @classmethod
    def read_result(cls, text: str) -> int | None:
        """The result that a file names; None: it is none. "1-0", "0-1" and "1/2-1/2" are of every game."""
        for names in (cls.result_names(), ("1-0", "0-1", "1/2-1/2")):
            if text in names:
                return names.index(text)
        return None

    @classmethod
    def replay(cls, moves: list[int]) -> list[Self]:
        """The start, and the position after each of these moves. A move that is not allowed is a ValueError."""
        positions = [cls.start()]
        for number, move in enumerate(moves, start=1):
            if not positions[-1].allows(move):
                over = positions[-1].result is not None
                why = "comes after the end of the game" if over else "is not allowed there"
                raise ValueError(f"move {number}, {cls.words[move]}, {why}")
            positions.append(positions[-1].play(move))
        return positions

    @classmethod
    def random_games(
        cls, count: int, generator: np.random.Generator, perfect: float = 0.0, longest: int | None = None
    ) -> list[Played]:
        """Games between players who choose at random. One that is not over after `longest` moves counts as drawn.

        `perfect`: the share of the players who choose among the best moves only, drawn for each side of each game.
        """
        games: list[Played] = []
        for is_perfect_2 in generator.random((count, 2)) < perfect:
            position: Position = cls.start()
            moves: list[int] = []
            while position.result is None and len(moves) != longest:
                choice = best_moves(position) if is_perfect_2[position.side] else position.legal
                moves.append(choice[int(generator.integers(len(choice)))])
                position = position.play(moves[-1])
            games.append(Played(DRAW if position.result is None else position.result, moves))
        return games


# ------------------------------------------------------------ perfect play

_values: dict[Position, int] = {}


def value(position: Position) -> int:
    """What a position is worth to who moves, if both play perfectly: 1 won, 0 drawn, −1 lost (minimax)."""
    known = _values.get(position)
    if known is None:
        result = position.result
        if result is not None:
            known = 0 if result == DRAW else 1 if result == position.side else -1
        else:
            known = max(_worth(position, move) for move in position.legal)
        _values[position] = known
    return known


def best_moves(position: Position) -> list[int]:
    """All moves that give away nothing; only for games that are `solved`."""
    best = value(position)
    return [move for move in position.legal if _worth(position, move) == best]


def _worth(position: Position, move: int) -> int:
    """What a move is worth to who makes it."""
    after = position.play(move)
    return value(after) if after.side == position.side else -value(after)
