"""Packing: every pair once, never over the room, always the same, with little waste, in little time."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numpy.typing import NDArray

from regard.data.packing import pack
from regard.data.samples import english_german
from regard.data.tokenizers import train_tokenizer
from regard.settings import TokenizerSettings

Lengths = tuple[NDArray[np.int64], NDArray[np.int64]]


def captions(count: int, seed: int, mean: float = 15, deviation: float = 6) -> Lengths:
    """Lengths like those of Multi30k: the target follows the source, give or take some words."""
    generator = np.random.default_rng(seed)
    source = generator.normal(mean, deviation, count)
    target = source * generator.normal(1.0, 0.15, count) + generator.normal(0, 1, count)
    return source.round().clip(3, 60).astype(np.int64), target.round().clip(3, 60).astype(np.int64)


def uniform(count: int, seed: int, longest: int = 64) -> Lengths:
    generator = np.random.default_rng(seed)
    return generator.integers(1, longest + 1, count), generator.integers(1, longest + 1, count)


def check(source: NDArray[np.int64], target: NDArray[np.int64], room: tuple[int, int]) -> list[list[int]]:
    """Pack, and assert what must hold for any pairs."""
    rows = pack(source, target, room)
    assert sorted(pair for row in rows for pair in row) == list(range(len(source)))
    assert all(rows)
    for row in rows:
        assert sum(source[row]) <= room[0]
        assert sum(target[row]) <= room[1]
    return rows


def waste(rows: list[list[int]], source: NDArray[np.int64], target: NDArray[np.int64], room: tuple[int, int]) -> float:
    return 1 - float(source.sum() + target.sum()) / (len(rows) * sum(room))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("room", [(64, 64), (64, 100), (200, 64), (128, 136), (500, 1000)])
def test_every_pair_is_laid_once_and_no_row_is_over_full(seed, room):
    assert check(*uniform(700, seed), room)
    assert check(*captions(700, seed), room)


@pytest.mark.parametrize("room", [(40, 200), (200, 40), (8, 90)])
def test_pairs_much_shorter_than_the_room_on_one_side_are_laid_once(room):
    for seed in range(20):
        assert check(*uniform(120, seed, longest=4), room)


@pytest.mark.parametrize("count", [1, 2, 3, 17, 40])
def test_small_sets_are_laid_too(count):
    for seed in range(30):
        assert len(check(*uniform(count, seed, longest=20), (20, 20))) <= count


def test_pairs_of_few_different_lengths_are_laid_once():
    """Many pairs of equal lengths: the search for a pair that fills a row must not find one twice."""
    generator = np.random.default_rng(3)
    for longest in (1, 2, 3):
        source, target = generator.integers(1, longest + 1, (2, 500))
        assert check(source, target, (7, 7))


def test_no_pairs_make_no_rows():
    nothing = np.zeros(0, np.int64)
    assert pack(nothing, nothing, (64, 64)) == []


def test_pairs_as_long_as_a_row_take_one_row_each():
    full = np.full(50, 64)
    assert check(full, full, (64, 64)) == [[pair] for pair in range(50)]
    # Full on one side only.
    assert len(check(full, np.ones(50, np.int64), (64, 64))) == 50
    assert len(check(np.ones(50, np.int64), full, (64, 64))) == 50


def test_short_pairs_between_full_ones_share_rows():
    lengths = np.where(np.arange(60) % 2, 64, 4)
    assert len(check(lengths, lengths, (64, 64))) <= 30 + 2 + 1


def test_the_same_lengths_give_the_same_rows():
    source, target = captions(2000, seed=1)
    assert pack(source, target, (128, 128)) == pack(source.copy(), target.copy(), (128, 128))


@pytest.mark.parametrize("room", [(64, 64), (128, 128), (256, 256)])
@pytest.mark.parametrize("seed", range(3))
def test_little_is_wasted_on_lengths_like_multi30k(room, seed):
    source, target = captions(8192, seed)
    assert waste(check(source, target, room), source, target, room) < 0.03


def test_little_is_wasted_on_the_built_in_corpus():
    pairs = english_german.pairs(4000, seed=2)
    words = train_tokenizer((text for pair in pairs for text in pair), TokenizerSettings(kind="word", vocabulary=2000))
    source, target = (
        np.array([len(ids) + 1 for ids in words.encode([pair[side] for pair in pairs])]) for side in (0, 1)
    )
    target_room = 64
    source_room = round(target_room * source.sum() / target.sum())
    assert waste(check(source, target, (source_room, target_room)), source, target, (source_room, target_room)) < 0.03


@pytest.mark.parametrize(
    "kind", ["like captions", "longer than half a row", "as long as a row", "one short, then long"]
)
def test_packing_a_window_takes_a_moment(kind):
    """Work grows with the number of pairs, not with its square."""
    full = np.full(8192, 64)
    one_short = full.copy()
    one_short[0] = 3
    source, target = {
        "like captions": captions(8192, seed=1),
        "longer than half a row": captions(8192, seed=1, mean=45, deviation=8),
        "as long as a row": (full, full),
        "one short, then long": (one_short, one_short),
    }[kind]
    start = time.process_time()
    pack(source, target, (64, 64))
    # Some 0.2 s; with a scan over all pairs for every row, over 3 s.
    assert time.process_time() - start < 1.5
