"""Labelled batches: texts are framed, with their class at the right end."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from corpora import Labelled, random_texts, tokenised_texts, unpack_texts
from regard.data import packed
from regard.data.batch import DataState
from regard.data.labelled_batches import LabelledRows, LabelledStream, in_order, shortened
from regard.data.tokenizers import PAD

MAX_LENGTH = 16
FIRST = LabelledRows(rows=4, length=32, at_end=False)
LAST = LabelledRows(rows=4, length=32, at_end=True)


def stream(texts: Labelled, shape: LabelledRows = FIRST, seed: int = 1, max_length: int = MAX_LENGTH) -> LabelledStream:
    return LabelledStream(tokenised_texts(texts), shape, seed, max_length)


def epochs(found: LabelledStream, count: int, size: int) -> list[Labelled]:
    """The texts of the first epochs of a corpus of this size."""
    texts: Labelled = []
    for batch, _ in found.batches(DataState()):
        texts += unpack_texts(batch)
        if len(texts) >= count * size:
            return [texts[n * size : (n + 1) * size] for n in range(count)]
    raise AssertionError("the stream has no end")


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(packed, "WINDOW", 64)


SHAPES = pytest.mark.parametrize("shape", [FIRST, LAST], ids=["class at the start", "class at the end"])


# --- Training --------------------------------------------------------------------------------------------


@SHAPES
def test_segments_are_runs_and_positions_count_from_the_start_of_each(shape):
    for batch, _ in itertools.islice(stream(random_texts(150), shape).batches(DataState()), 30):
        for row, places in zip(batch.segments_BT.tolist(), batch.positions_BT.tolist(), strict=True):
            runs = [(number, len(list(run))) for number, run in itertools.groupby(row)]
            numbers = [number for number, _ in runs]
            last = max(numbers)
            assert numbers in (list(range(1, last + 1)), [*range(1, last + 1), 0])
            assert places == [place if number else 0 for number, size in runs for place in range(size)]


def test_what_holds_nothing_is_padding_without_a_class():
    padded = 0
    for batch, _ in itertools.islice(stream(random_texts(150)).batches(DataState()), 30):
        nothing = batch.segments_BT == 0
        padded += int(nothing.sum())
        assert (batch.tokens_BT[nothing] == PAD).all()
        assert (batch.labels[nothing] == batch.nothing).all()
        assert all(tensor.shape == (4, 32) and tensor.dtype == torch.int64 for tensor in batch.tensors())
    assert padded > 0


def test_targets_count_the_texts():
    for batch, _ in itertools.islice(stream(random_texts(150)).batches(DataState()), 30):
        assert batch.targets == len(unpack_texts(batch)) == int(batch.segments_BT.amax(1).sum())


def test_several_texts_share_a_row():
    texts = random_texts(150)
    batches = itertools.islice(stream(texts).batches(DataState()), 10)
    assert np.mean([int(row.max()) for batch, _ in batches for row in batch.segments_BT]) > 2


def test_long_texts_keep_their_beginning():
    texts = random_texts(100, longest=60)
    cut = [(text[: MAX_LENGTH - 2], label) for text, label in texts]
    assert cut != texts
    (epoch,) = epochs(stream(texts), 1, 100)
    assert Counter(epoch) == Counter(cut)
    # The longest text that fits is kept whole.
    exact = [((5,) * (MAX_LENGTH - 2), 1), ((5,) * (MAX_LENGTH - 1), 2)]
    assert shortened(tokenised_texts(exact), MAX_LENGTH).texts.lengths.tolist() == [MAX_LENGTH - 2] * 2


def test_a_text_may_fill_a_row_or_be_empty():
    texts = [((5,) * 30, 1), ((), 2), ((6,) * 30, 3)]
    (epoch,) = epochs(stream(texts, max_length=32), 1, 3)
    assert Counter(epoch) == Counter(texts)


# --- Validation ------------------------------------------------------------------------------------------


@SHAPES
@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_in_order_holds_every_text_once_and_says_which(shape, count):
    texts = random_texts(count, longest=25)
    cut = [(text[: MAX_LENGTH - 2], label) for text, label in texts]
    seen: list[int] = []
    for batch, numbers in in_order(tokenised_texts(texts), shape, MAX_LENGTH):
        assert batch.tokens_BT.shape == (4, 32)
        assert unpack_texts(batch) == [cut[number] for number in numbers]
        assert batch.labels[batch.labels != batch.nothing].tolist() == [texts[number][1] for number in numbers]
        seen += numbers.tolist()
    assert sorted(seen) == list(range(count))


def test_in_order_of_nothing_is_nothing():
    assert list(in_order(tokenised_texts([]), FIRST, MAX_LENGTH)) == []


# --- One text per row --------------------------------------------------------------------------------------


def test_apart_in_order_says_which_texts_a_batch_holds(small_windows):
    shape = LabelledRows(rows=4, length=32, at_end=False, apart=True)
    texts = random_texts(150)
    seen = []
    for batch, numbers in in_order(tokenised_texts(texts), shape, MAX_LENGTH):
        assert unpack_texts(batch) == [texts[number] for number in numbers]
        seen += numbers.tolist()
    assert sorted(seen) == list(range(150))
