"""Games from files and from rules: what is read, held out, left out, and made into rows."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest

from regard.data.game_batches import game_batch
from regard.data.game_corpus import MOVES, RESULTS, Games, game_splits
from regard.data.games.chess import Chess
from regard.data.games.tictactoe import TicTacToe
from regard.data.ragged import Ragged
from regard.data.tokenizers import END, PAD
from regard.errors import RegardError
from regard.settings import GameData

GOOD = "x\ta1 b1 a2 b2 a3\n"


def read(tmp_path: Path, content: str, name: str = "games.tsv", **settings: object) -> Games:
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(Path(name).suffix, bytes)
    (tmp_path / name).write_bytes(pack(content.encode()))
    data = GameData(root=str(tmp_path), train=[name], test=[name], valid=[name], cache=str(tmp_path), **settings)
    return game_splits(data)["test"].read()


def spelled(games: Games, number: int) -> list[str]:
    return [TicTacToe.words[move] for move in games.moves(number)]


@pytest.mark.parametrize("name", ["games.tsv", "games.tsv.gz", "games.tsv.xz"])
def test_a_line_is_a_game_with_its_result_first(tmp_path, name):
    games = read(tmp_path, GOOD + "1/2-1/2\ta1 b2\n", name)
    assert (len(games), games.bad) == (2, 0)
    assert games.words[0].tolist() == [RESULTS, *(MOVES + move for move in (0, 1, 3, 4, 6)), END]
    assert spelled(games, 1) == ["a1", "b2"] and games.results.tolist() == [0, 2]


def test_other_columns_can_be_named(tmp_path):
    games = read(tmp_path, "2400\tdraw\t2300\tb2 a1\n", columns=[1, 3])
    assert spelled(games, 0) == ["b2", "a1"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("x\ta1 a1 b1", "move 2, a1, is not allowed there"),
        ("x\ta1 b1 a2 b2 a3 c3", "move 6, c3, comes after the end of the game"),
        ("o\ta1 b1 a2 b2 a3", "the result is x, not o"),
        ("won\ta1 b1", "the result 'won' is not one of x, o, draw"),
        ("x\ta1 z9", "'z9' is not a move"),
        ("x\t", "there are no moves"),
        ("x", "there are no moves"),
        ("", "the result ''"),
        ("x\ta1 \udcff", "not valid UTF-8"),
    ],
)
def test_a_game_against_the_rules_is_left_out_counted_and_named(tmp_path, line, why):
    (tmp_path / "games.tsv").write_bytes((GOOD + line + "\n" + GOOD).encode(errors="surrogateescape"))
    data = GameData(
        root=str(tmp_path), train=["games.tsv"], valid=["games.tsv"], test=["games.tsv"], cache=str(tmp_path)
    )
    for _ in range(2):  # read, and from the cache
        games = game_splits(data)["train"].read()
        assert (len(games), games.bad) == (2, 1)
        assert games.left_out[0].startswith("games.tsv, line 2: ") and why in games.left_out[0]


PGN = """[Event "a"]
[Result "0-1"]

1. f3 e5 2. g4 Qh4# 0-1

[Event "b"]
[Result "1-0"]

1. e4 e5 2. Ke4 1-0

[Event "c"]
[Result "*"]

1. d4 *
"""


def test_chess_is_read_from_pgn(tmp_path):
    games = read(tmp_path, PGN, "games.pgn", game="chess")
    assert [Chess.words[move] for move in games.moves(0)] == ["f2f3", "e7e5", "g2g4", "d8h4"]
    assert (len(games), games.bad) == (1, 2)
    assert "game 2" in games.left_out[0] and "'*' is not one of white, black, draw" in games.left_out[1]


def test_a_pgn_of_another_game_is_refused(tmp_path):
    with pytest.raises(RegardError, match="cannot hold games of tic-tac-toe"):
        read(tmp_path, PGN, "games.pgn")


def test_no_game_that_is_made_is_in_two_splits_and_they_are_the_same_every_time(tmp_path):
    data = GameData(games=3000, held_out=0.1, perfect=0.3, cache=str(tmp_path / "one"))
    splits = {split: source.read() for split, source in game_splits(data).items()}
    seen = {split: {tuple(games.moves(n)) for n in range(len(games))} for split, games in splits.items()}
    assert sum(map(len, splits.values())) == 3000
    assert all(200 < len(splits[split]) < 400 for split in ("valid", "test"))
    assert not seen["train"] & seen["valid"] and not seen["train"] & seen["test"] and not seen["valid"] & seen["test"]
    again = game_splits(data.model_copy(update={"cache": str(tmp_path / "other")}))["train"].read()
    assert np.array_equal(again.words.ids, splits["train"].words.ids)
    for number in range(50):
        assert TicTacToe.replay(again.moves(number))[-1].result == again.results[number]


def test_a_row_has_the_next_move_as_label_and_long_games_are_cut():
    games = Ragged.from_lists([[3, 6, 7, END], [4, 6, 7, 8, 9, END]])
    batch = game_batch(games, length=4)
    assert batch.tokens_BT.tolist() == [[3, 6, 7, END], [4, 6, 7, 8]]
    assert batch.labels.tolist() == [[6, 7, END, PAD], [6, 7, 8, 9]]
    assert batch.targets == 7
