"""Labelled batches: every text once an epoch, framed, with its class at the right end."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from regard.data import packed_stream
from regard.data.batch import Batch, DataState
from regard.data.labelled_batches import LabelledBatch, LabelledRows, LabelledStream, in_order, shortened
from regard.data.shards import LabelledShards, Ragged
from regard.data.tokenizers import END, PAD, START

Text = tuple[int, ...]
Labelled = list[tuple[Text, int]]

MAX_LENGTH = 16
FIRST = LabelledRows(rows=4, length=32, at_end=False)
LAST = LabelledRows(rows=4, length=32, at_end=True)


def random_texts(count: int, seed: int = 1, longest: int = MAX_LENGTH - 2) -> Labelled:
    """Texts of random ids and classes. The first two tokens are the text's number, so no two are alike."""
    generator = np.random.default_rng(seed)
    return [
        (
            (10 + number // 100, 10 + number % 100, *generator.integers(3, 500, generator.integers(0, longest - 1))),
            int(generator.integers(7)),
        )
        for number in range(count)
    ]


def as_shards(texts: Labelled) -> LabelledShards:
    ids = np.array([token for text, _ in texts for token in text], np.uint16)
    offsets = np.cumsum([0, *(len(text) for text, _ in texts)])
    return LabelledShards(Ragged(ids, offsets), np.array([label for _, label in texts], np.int64))


def stream(texts: Labelled, shape: LabelledRows = FIRST, seed: int = 1, max_length: int = MAX_LENGTH) -> LabelledStream:
    return LabelledStream(as_shards(texts), shape, seed, max_length)


def unpack(batch: LabelledBatch, shape: LabelledRows) -> Labelled:
    """The texts of a batch, row by row, segment by segment, found from the segments alone."""
    texts = []
    for tokens, segments, labels in zip(batch.tokens_BT, batch.segments_BT, batch.labels_BT, strict=True):
        for segment in range(1, int(segments.max()) + 1):
            framed, found = tokens[segments == segment].tolist(), labels[segments == segment].tolist()
            assert (framed[0], framed[-1]) == (START, END)
            place = len(found) - 1 if shape.at_end else 0
            assert [at for at, label in enumerate(found) if label != batch.nothing] == [place]
            texts.append((tuple(framed[1:-1]), found[place]))
    return texts


def epochs(found: LabelledStream, count: int, size: int) -> list[Labelled]:
    """The texts of the first epochs of a corpus of this size."""
    texts: Labelled = []
    for batch, _ in found.batches(DataState()):
        texts += unpack(batch, found.shape)
        if len(texts) >= count * size:
            return [texts[n * size : (n + 1) * size] for n in range(count)]
    raise AssertionError("the stream has no end")


def equal(left: Batch, right: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left.tensors(), right.tensors(), strict=True))


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(packed_stream, "WINDOW", 64)


SHAPES = pytest.mark.parametrize("shape", [FIRST, LAST], ids=["class at the start", "class at the end"])


# --- Training --------------------------------------------------------------------------------------------


@SHAPES
@pytest.mark.parametrize("count", [1, 64, 150])
def test_every_epoch_holds_every_text_with_its_class_once(shape, count):
    texts = random_texts(count)
    for epoch in epochs(stream(texts, shape), 3, count):
        assert Counter(epoch) == Counter(texts)


def test_epochs_and_seeds_have_orders_of_their_own():
    texts = random_texts(150)
    orders = [epoch for seed in (1, 2) for epoch in epochs(stream(texts, seed=seed), 2, 150)]
    assert epochs(stream(texts), 1, 150) == orders[:1]
    for left, right in itertools.combinations([texts, *orders], 2):
        assert sum(a == b for a, b in zip(left, right, strict=True)) < 15


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
        assert (batch.labels_BT[nothing] == batch.nothing).all()
        assert all(tensor.shape == (4, 32) and tensor.dtype == torch.int64 for tensor in batch.tensors())
    assert padded > 0


def test_targets_count_the_texts():
    for batch, _ in itertools.islice(stream(random_texts(150)).batches(DataState()), 30):
        assert batch.targets == len(unpack(batch, FIRST)) == int(batch.segments_BT.amax(1).sum())


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
    assert shortened(as_shards(exact), MAX_LENGTH).texts.lengths.tolist() == [MAX_LENGTH - 2] * 2


def test_a_text_may_fill_a_row_or_be_empty():
    texts = [((5,) * 30, 1), ((), 2), ((6,) * 30, 3)]
    (epoch,) = epochs(stream(texts, max_length=32), 1, 3)
    assert Counter(epoch) == Counter(texts)


@SHAPES
def test_the_stream_goes_on_identically_from_any_state(shape):
    texts = random_texts(150)
    straight = list(itertools.islice(stream(texts, shape).batches(DataState()), 50))
    assert straight[-1][1].epoch >= 3
    for place, (_, state) in enumerate(straight[:-2]):
        resumed = itertools.islice(stream(texts, shape).batches(state), 2)
        for (batch, after), (expected, expected_after) in zip(resumed, straight[place + 1 : place + 3], strict=True):
            assert equal(batch, expected)
            assert after == expected_after


# --- Validation ------------------------------------------------------------------------------------------


@SHAPES
@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_in_order_holds_every_text_once_and_says_which(shape, count):
    texts = random_texts(count, longest=25)
    cut = [(text[: MAX_LENGTH - 2], label) for text, label in texts]
    seen: list[int] = []
    for batch, numbers in in_order(as_shards(texts), shape, MAX_LENGTH):
        assert batch.tokens_BT.shape == (4, 32)
        assert unpack(batch, shape) == [cut[number] for number in numbers]
        assert batch.labels_BT[batch.labels_BT != batch.nothing].tolist() == [texts[number][1] for number in numbers]
        seen += numbers.tolist()
    assert sorted(seen) == list(range(count))


def test_in_order_of_nothing_is_nothing():
    assert list(in_order(as_shards([]), FIRST, MAX_LENGTH)) == []


# --- One text a row --------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_end", [True, False])
def test_apart_every_text_has_a_row_of_its_own(small_windows, at_end):
    shape = LabelledRows(rows=4, length=32, at_end=at_end, apart=True)
    texts = random_texts(200)
    found: Labelled = []
    for batch, _ in stream(texts, shape).batches(DataState()):
        assert int(batch.segments_BT.max()) == 1
        found += unpack(batch, shape)
        if len(found) == 200:
            break
    assert Counter(found) == Counter(texts)


def test_apart_in_order_says_which_texts_a_batch_holds(small_windows):
    shape = LabelledRows(rows=4, length=32, at_end=False, apart=True)
    texts = random_texts(150)
    seen = []
    for batch, numbers in in_order(as_shards(texts), shape, MAX_LENGTH):
        assert unpack(batch, shape) == [texts[number] for number in numbers]
        seen += numbers.tolist()
    assert sorted(seen) == list(range(150))
