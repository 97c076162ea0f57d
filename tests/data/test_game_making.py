"""Games are the same, whoever makes them, and however many at once."""

import itertools
import subprocess
import sys

import pytest

from regard.data import game_making
from regard.data.game_making import Making, made_blocks

MAKING = Making("tic-tac-toe", games=105, perfect=0.3, longest=9, block=10)


def test_processes_make_the_games_that_are_made_here():
    here = list(made_blocks(MAKING, processes=1))
    assert [len(block) for block in here] == [10] * 10 + [5]
    assert len({tuple(game.moves) for block in here for game in block}) > 60
    assert list(made_blocks(MAKING, processes=3)) == here


@pytest.mark.parametrize("started", [0, 1])
def test_where_no_process_can_be_started_games_are_made_here(started, monkeypatch):
    start, calls = game_making.start_module, itertools.count()

    def fail(*arguments):
        if next(calls) < started:
            return start(*arguments)
        raise BlockingIOError("too many processes")

    monkeypatch.setattr(game_making, "start_module", fail)
    assert list(made_blocks(MAKING, processes=3)) == list(made_blocks(MAKING, processes=1))


def test_what_a_process_that_has_ended_did_not_make_is_made_here(monkeypatch):
    blocks = made_blocks(MAKING, processes=2)
    first = next(blocks)
    blocks.close()  # and its processes with it
    monkeypatch.setattr(game_making, "start_module", lambda *_: subprocess.Popen([sys.executable, "-c", ""]))
    assert list(made_blocks(MAKING, processes=2)) == [first, *list(made_blocks(MAKING, processes=1))[1:]]
