"""The rules of games, against counts that are known, and against rules written another way."""

from __future__ import annotations

from collections import Counter
from functools import cache

import chess
import numpy as np
import pytest

from regard.data.games import GAMES, game_named
from regard.data.games.chess import Chess
from regard.data.games.othello import Othello
from regard.data.games.position import DRAW, FIRST, SECOND, Position, best_moves, value
from regard.data.games.tictactoe import TicTacToe

every_game = pytest.mark.parametrize("name", GAMES)


def perft(position: Position, depth: int) -> int:
    """How many ways there are to make this many moves."""
    moves = position.legal
    return len(moves) if depth == 1 else sum(perft(position.play(move), depth - 1) for move in moves)


def random_positions(game: type[Position], games: int, seed: int, most: int = 60) -> list[Position]:
    generator = np.random.default_rng(seed)
    positions: list[Position] = []
    for _ in range(games):
        position = game.start()
        for _ in range(most):
            positions.append(position)
            if position.result is not None:
                break
            position = position.play(int(generator.choice(position.legal)))
    return positions


@every_game
def test_a_game_has_legal_moves_until_it_is_over(name):
    for position in random_positions(game_named(name), 5, seed=1):
        if position.result is None:
            assert position.legal
            assert all(position.allows(move) for move in position.legal)
            assert set(position.legal) == {move for move in range(len(position.words)) if position.allows(move)}


@every_game
def test_a_position_is_not_changed_by_a_move(name):
    start = game_named(name).start()
    before = start.board, start.legal, start.show()
    start.play(start.legal[0])
    assert (start.board, start.legal, start.show()) == before


@every_game
def test_a_move_against_the_rules_is_named(name):
    game = game_named(name)
    move = game.start().legal[0]
    with pytest.raises(ValueError, match=f"move 2, {game.words[move]}, is not allowed there"):
        game.replay([move, move])


# ---------------------------------------------------------------- tic-tac-toe


@cache
def endings(position: TicTacToe) -> Counter[int]:
    """How many games from here on end in each result."""
    if position.result is not None:
        return Counter([position.result])
    return sum((endings(position.play(move)) for move in position.legal), Counter())


def test_there_are_255168_games_of_tic_tac_toe():
    assert endings(TicTacToe.start()) == {FIRST: 131_184, SECOND: 77_904, DRAW: 46_080}


def test_tic_tac_toe_is_drawn_if_nobody_makes_a_mistake():
    assert value(TicTacToe.start()) == 0
    corner = TicTacToe.replay([0])[-1]
    assert [TicTacToe.words[move] for move in best_moves(corner)] == ["b2"]  # all else loses


def test_a_perfect_player_never_loses_and_takes_what_a_random_one_gives():
    games = TicTacToe.random_games(300, np.random.default_rng(1), perfect=0.5)
    results = Counter(game.result for game in games)
    for game in games:
        for position in TicTacToe.replay(game.moves):
            if position.result is None and value(position) == 1:
                break  # somebody can force a win from here on; only a random player gave it away
        else:
            assert game.result == DRAW
    # Of random players, 12.7 % of games are drawn; of perfect ones all, and a quarter of the pairs are both perfect.
    assert 70 < results[DRAW] < 140


def test_the_share_of_perfect_players_is_what_is_asked_for():
    only_random = TicTacToe.random_games(2000, np.random.default_rng(2))
    wins = sum(game.result == FIRST for game in only_random) / 2000
    assert wins == pytest.approx(0.585, abs=0.04)
    assert all(game.result == DRAW for game in TicTacToe.random_games(50, np.random.default_rng(2), perfect=1.0))


# ---------------------------------------------------------------- Othello


def plain_othello(board: list[int | None], side: int) -> dict[int, set[int]]:
    """The legal moves with what each takes, by walking over the board."""
    moves = {}
    for square in range(64):
        taken: set[int] = set()
        for down in (-1, 0, 1):
            for right in (-1, 0, 1):
                row, column, line = square // 8 + down, square % 8 + right, set()
                while (down or right) and 0 <= row < 8 and 0 <= column < 8:
                    there = board[8 * row + column]
                    if there != 1 - side:
                        if there == side:
                            taken |= line
                        break
                    line.add(8 * row + column)
                    row, column = row + down, column + right
        if taken and board[square] is None:
            moves[square] = taken
    return moves


def test_othello_has_the_known_numbers_of_openings():
    assert [perft(Othello.start(), depth) for depth in range(1, 8)] == [4, 12, 56, 244, 1396, 8200, 55092]


def test_othello_agrees_with_rules_that_walk_over_the_board():
    passes = 0
    for position in random_positions(Othello, 8, seed=3):
        moves = plain_othello(position.board, position.side)
        assert position.legal == sorted(moves)
        for move in position.legal[:2]:
            expected = [
                position.side if square in moves[move] | {move} else at for square, at in enumerate(position.board)
            ]
            after = position.play(move)
            assert after.board == expected
            passed = after.side == position.side
            passes += passed
            assert passed == (not plain_othello(expected, 1 - position.side) and bool(after.legal))
        if not moves:
            assert position.result is not None and not plain_othello(position.board, 1 - position.side)
    assert passes


def test_games_played_side_by_side_are_games_by_the_rules():
    games = Othello.random_games(200, np.random.default_rng(4))
    ends = [Othello.replay(game.moves)[-1] for game in games]
    assert [end.result for end in ends] == [game.result for game in games]
    assert None not in [end.result for end in ends]
    # Every opening is as likely: 4 first moves.
    firsts = Counter(game.moves[0] for game in games)
    assert len(firsts) == 4 and min(firsts.values()) > 25


# ---------------------------------------------------------------- chess


def test_chess_has_the_known_numbers_of_openings_and_moves():
    assert [perft(Chess.start(), depth) for depth in (1, 2, 3)] == [20, 400, 8902]
    assert len(set(Chess.words)) == 1968


def test_castling_promotion_and_taking_in_passing_have_words():
    fens = [
        "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1",
        "1n6/P7/8/8/8/8/8/K1k5 w - - 0 1",
        "4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 1",
    ]
    moves = [{Chess.words[move] for move in Chess(chess.Board(fen)).legal} for fen in fens]
    assert {"e1g1", "e1c1"} <= moves[0]
    assert {"a7a8q", "a7a8n", "a7b8r", "a7b8b"} <= moves[1]
    assert "e5d6" in moves[2]


def test_a_mate_is_won_and_a_stalemate_drawn():
    words = ["f2f3", "e7e5", "g2g4", "d8h4"]
    mate = Chess.replay([Chess.words.index(word) for word in words])[-1]
    assert (mate.result, mate.legal) == (SECOND, [])
    assert Chess(chess.Board("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1")).result == DRAW
    assert Chess.start().result is None


def test_random_games_of_chess_keep_to_the_rules_until_they_end_or_are_cut_off():
    games = Chess.random_games(12, np.random.default_rng(5), longest=300)
    ended = 0
    for game in games:
        end = Chess.replay(game.moves)[-1].result  # a move that is not allowed is an error
        ended += end is not None
        assert game.result == (DRAW if end is None else end)
        assert len(game.moves) == 300 or end is not None
    assert 0 < ended < 12
    assert len({tuple(game.moves[:6]) for game in games}) == 12
