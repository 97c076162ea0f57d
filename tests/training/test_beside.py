"""Work in a second thread: waited for, one piece at a time, and its errors are not lost."""

from __future__ import annotations

import threading

import pytest

from regard.training.beside import Beside


def test_work_is_done_in_another_thread_and_waited_for():
    go, done = threading.Event(), []
    beside = Beside()
    beside.start(lambda: (go.wait(), done.append(threading.current_thread()))[1])
    assert not done
    go.set()
    beside.wait()
    assert done != [] and done != [threading.current_thread()]


def test_a_piece_begins_after_the_one_before():
    done, go = [], threading.Event()
    with Beside() as beside:
        beside.start(lambda: (go.wait(), done.append("one"))[1])
        threading.Timer(0.01, go.set).start()
        beside.start(lambda: done.append("two"))
    assert done == ["one", "two"]


def fail() -> None:
    raise OSError("no space left")


def test_an_error_is_raised_where_the_work_is_waited_for_and_once():
    beside = Beside()
    beside.start(fail)
    with pytest.raises(OSError, match="no space"):
        beside.wait()
    beside.wait()
    with pytest.raises(OSError, match="no space"), beside:
        beside.start(fail)


def test_the_first_error_counts():
    with pytest.raises(ValueError, match="first"), Beside() as beside:
        beside.start(fail)
        raise ValueError("first")


def test_where_there_is_no_room_for_a_thread_the_work_is_done_at_once(monkeypatch):
    def full(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done = []
    monkeypatch.setattr(threading.Thread, "start", full)
    with Beside() as beside:
        beside.start(lambda: done.append(threading.current_thread()))
        assert done == [threading.current_thread()]
