"""Ragged arrays: taking and cutting sequences equals a loop over them."""

from __future__ import annotations

import numpy as np

from corpora import ragged
from regard.data.ragged import spread


def test_spread_equals_a_loop():
    generator = np.random.default_rng(1)
    for count in (0, 1, 2, 50):
        starts, lengths = generator.integers(0, 1000, count), generator.integers(0, 6, count)
        expected = [start + step for start, length in zip(starts, lengths, strict=True) for step in range(length)]
        assert spread(starts, lengths).tolist() == expected


def test_take_equals_a_loop():
    generator = np.random.default_rng(2)
    rows = [generator.integers(0, 60_000, length).tolist() for length in generator.integers(0, 7, 40)]
    sentences = ragged(rows)
    for chosen in (
        [],
        [0],
        [39],
        [3, 3, 3],
        generator.permutation(40).tolist(),
        generator.integers(0, 40, 100).tolist(),
    ):
        taken = sentences.take(np.array(chosen, np.int64))
        assert [taken[i].tolist() for i in range(len(taken))] == [rows[i] for i in chosen]
        assert taken.lengths.tolist() == [len(rows[i]) for i in chosen]


def test_take_copies():
    sentences = ragged([[1, 2], [3]])
    taken = sentences.take(np.array([0, 1]))
    taken.ids[:] = 0
    assert sentences.ids.tolist() == [1, 2, 3]


def test_cut_keeps_the_beginning_of_each():
    cut = ragged([[1, 2, 3], [], [4], [5, 6]]).cut(2)
    assert [cut[i].tolist() for i in range(len(cut))] == [[1, 2], [], [4], [5, 6]]


def test_beginnings_are_what_cut_copies():
    sentences = ragged([[1, 2, 3], [], [4], [5, 6, 7]])
    seen, cut = sentences.beginnings(2), sentences.cut(2)
    assert seen.ids is sentences.ids
    assert seen.offsets.tolist() == cut.offsets.tolist()
    assert [seen[i].tolist() for i in range(4)] == [cut[i].tolist() for i in range(4)]
    for some in (seen.take(np.array([3, 0, 3])), seen.take(np.arange(4)).take(np.array([3, 0, 3]))):
        assert some.ids.tolist() == [5, 6, 1, 2, 5, 6] and some.starts is None
    assert seen.cut(1).ids.tolist() == cut.cut(1).ids.tolist() == [1, 4, 5]
    assert seen.fitted(2).whole.tolist() == cut.fitted(2).whole.tolist()
