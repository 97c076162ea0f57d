"""Chess, by the rules of python-chess. A move is written as in UCI: e2e4, e1g1 to castle, e7e8q to promote.

A game is over by mate or stalemate, when neither side can mate any more, or after 75 moves of each side without a
capture or a pawn's move. Players may go on in the last two cases: games of theirs that do are not refused. Repetition
is left to the players.
"""

from __future__ import annotations

from typing import ClassVar

import chess
import numpy as np

from regard.data.games.position import DRAW, FIRST, SECOND, Played, Position


def _all_moves() -> tuple[str, ...]:
    """From every square to wherever a queen or a knight could go on an empty board; and all promotions."""
    moves = []
    for start in chess.SQUARES:
        ends = chess.BB_DIAG_ATTACKS[start][0] | chess.BB_RANK_ATTACKS[start][0] | chess.BB_FILE_ATTACKS[start][0]
        ends |= chess.BB_KNIGHT_ATTACKS[start]
        for end in chess.scan_forward(ends):
            moves.append(chess.Move(start, end).uci())
            ranks = chess.square_rank(start), chess.square_rank(end)
            if ranks in ((6, 7), (1, 0)) and chess.square_distance(start, end) == 1:
                moves += [chess.Move(start, end, piece).uci() for piece in range(chess.KNIGHT, chess.KING)]
    return tuple(moves)


WORDS = _all_moves()
NUMBERS = {chess.Move.from_uci(word): number for number, word in enumerate(WORDS)}
ALL = list(NUMBERS)


class Chess(Position):
    sides: ClassVar[tuple[str, str]] = ("white", "black")
    words: ClassVar[tuple[str, ...]] = WORDS
    block: ClassVar[int] = 500  # a second or more for each hundred

    def __init__(self, position: chess.Board):
        self.position = position

    @classmethod
    def start(cls) -> Chess:
        return cls(chess.Board())

    @property
    def side(self) -> int:
        return FIRST if self.position.turn == chess.WHITE else SECOND

    @property
    def legal(self) -> list[int]:
        return [NUMBERS[move] for move in self.position.legal_moves]

    def allows(self, move: int) -> bool:
        end = ALL[move].to_square  # python-chess also takes a king that captures its own rook for castling
        return self.position.is_legal(ALL[move]) and self.position.color_at(end) != self.position.turn

    def play(self, move: int) -> Chess:
        after = self.position.copy(stack=False)
        after.push(ALL[move])
        after.clear_stack()
        return Chess(after)

    @classmethod
    def random_games(
        cls, count: int, generator: np.random.Generator, perfect: float = 0.0, longest: int | None = None
    ) -> list[Played]:
        """On one board that is moved on: copies take most of the time. Nobody plays chess perfectly."""
        games = []
        for _ in range(count):
            board = chess.Board()
            moves: list[chess.Move] = []
            while len(moves) != longest:
                legal = list(board.generate_legal_moves())
                if not legal or board.is_insufficient_material() or board.is_seventyfive_moves():
                    break
                moves.append(legal[int(generator.integers(len(legal)))])
                board.push(moves[-1])
                board.clear_stack()
            result = Chess(board).result
            games.append(Played(DRAW if result is None else result, [NUMBERS[move] for move in moves]))
        return games

    @property
    def result(self) -> int | None:
        outcome = self.position.outcome()
        if outcome is None:
            return None
        return DRAW if outcome.winner is None else FIRST if outcome.winner == chess.WHITE else SECOND

    @property
    def board(self) -> list[int | None]:
        pieces = self.position.piece_map()
        return [
            (FIRST if pieces[square].color == chess.WHITE else SECOND) if square in pieces else None
            for square in chess.SQUARES
        ]

    def show(self) -> str:
        rows = str(self.position).splitlines()
        return "\n".join([*(f"{8 - number} {row}" for number, row in enumerate(rows)), "  a b c d e f g h"])
