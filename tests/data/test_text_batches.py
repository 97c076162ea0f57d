"""Batches of running text: every label is the next token, in an order that can be taken up anywhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from regard.data.batch import DataState
from regard.data.text_batches import NextTokenStream, cut_rows, documents, in_order
from regard.data.tokenizers import END, PAD, START
from regard.errors import RegardError

LENGTH = 8
# Token i is 3 + i, so that every token says where it stands in the text.
IDS = np.arange(3, 3 + 203, dtype=np.uint16)


def stream(rows: int = 3, length: int = LENGTH, seed: int = 1, ids: np.ndarray = IDS) -> NextTokenStream:
    return NextTokenStream(ids, rows, length, seed)


def first_tokens(found: NextTokenStream, epoch: int) -> list[int]:
    """Where the rows of an epoch start in the text, in the order they come."""
    alone = NextTokenStream(found.ids, 1, found.length, found.seed)
    taken = itertools.islice(alone.batches(DataState(epoch)), found.rows_in_epoch)
    return [int(batch.tokens_BT[0, 0]) - 3 for batch, _ in taken]


# --- Training --------------------------------------------------------------------------------------------


def test_rows_are_running_text_and_labels_the_next_tokens():
    for batch, _ in itertools.islice(stream().batches(DataState()), 40):
        assert batch.tokens_BT.shape == batch.labels.shape == (3, LENGTH)
        assert batch.tokens_BT.dtype == torch.int64
        assert torch.equal(batch.labels, batch.tokens_BT + 1)
        assert torch.equal(batch.tokens_BT - batch.tokens_BT[:, :1], torch.arange(LENGTH).expand(3, -1))
        assert batch.targets == 3 * LENGTH


def test_an_epoch_holds_every_row_once():
    found = stream()
    for epoch in range(5):
        starts = first_tokens(found, epoch)
        offset = min(starts)
        assert 0 <= offset < LENGTH
        assert sorted(starts) == [offset + LENGTH * row for row in range(found.rows_in_epoch)]
        assert starts != sorted(starts)
        # At most a row at each end is left out.
        assert len(IDS) - max(starts) <= 3 * LENGTH


def test_the_shortest_text_that_is_enough_and_one_token_less():
    for seed in range(20):  # whatever the offset, the last label is inside the text
        batch, _ = next(stream(rows=1, seed=seed, ids=IDS[: 2 * LENGTH + 1]).batches(DataState()))
        assert torch.equal(batch.labels, batch.tokens_BT + 1)
    with pytest.raises(RegardError) as caught:
        stream(ids=IDS[: 2 * LENGTH])
    assert "16 tokens" in caught.value.why
    assert "training.row_length" in caught.value.fix


# --- Validation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 3, 100])
@pytest.mark.parametrize("count", [2, 3, 8, 9, 10, 16, 17, 18, 203])
def test_in_order_predicts_every_token_but_the_first_once(rows, count):
    ids = IDS[:count]
    batches = list(in_order(ids, rows, LENGTH))
    labels = torch.cat([batch.labels.flatten() for batch in batches])
    assert labels[labels != PAD].tolist() == ids[1:].tolist()
    assert sum(batch.targets for batch in batches) == count - 1
    for batch in batches:
        real = batch.labels != PAD
        assert torch.equal(batch.labels[real], batch.tokens_BT[real] + 1)


@pytest.mark.parametrize("count", [0, 1])
def test_in_order_of_nothing_to_predict_is_nothing(count):
    assert list(in_order(IDS[:count], 3, LENGTH)) == []


def test_cut_rows_pads_what_lies_beyond_the_end():
    ids = np.array([10, 11, 12, 13, 14], np.uint16)
    found = cut_rows(ids, np.array([0, 3, 4, 5]), 4)
    assert found.tolist() == [[10, 11, 12, 13], [13, 14, PAD, PAD], [14, PAD, PAD, PAD], [PAD] * 4]
    assert found.dtype == np.int64


def test_that_a_document_begins_is_nothing_to_predict():
    ids = np.array([START, 10, 11, END, START, 12, END, START, END], np.uint16)
    [batch] = in_order(ids, 1, LENGTH)
    assert batch.tokens_BT.tolist() == [ids[:-1].tolist()]
    assert batch.labels.tolist() == [[10, 11, END, PAD, 12, END, PAD, END]]
    assert batch.targets == 6
    segments, positions = documents(batch.tokens_BT)
    assert segments.tolist() == [[1, 1, 1, 1, 2, 2, 2, 3]]
    assert positions.tolist() == [[0, 1, 2, 3, 0, 1, 2, 0]]


# --- Documents -------------------------------------------------------------------------------------------


def test_documents_are_numbered_and_counted_from_their_start():
    row = [7, 8, END, 9, END, END, 7, 7]
    segments, positions = documents(torch.tensor([row]))
    assert segments.tolist() == [[1, 1, 1, 2, 2, 3, 4, 4]]
    assert positions.tolist() == [[0, 1, 2, 0, 1, 0, 0, 1]]


def test_rows_have_documents_of_their_own():
    segments, positions = documents(torch.tensor([[7, 7, 7, END], [END, 7, 7, 7], [7, 7, 7, 7]]))
    assert segments.tolist() == [[1, 1, 1, 1], [1, 2, 2, 2], [1, 1, 1, 1]]
    assert positions.tolist() == [[0, 1, 2, 3], [0, 0, 1, 2], [0, 1, 2, 3]]


def test_padding_is_segment_zero():
    segments, positions = documents(torch.tensor([[7, END, 8, PAD, PAD], [7, END, PAD, PAD, PAD], [PAD] * 5]))
    assert segments.tolist() == [[1, 1, 2, 0, 0], [1, 1, 0, 0, 0], [0] * 5]
    assert positions[:2, :2].tolist() == [[0, 1], [0, 1]]
    assert int(positions.min()) == 0
    assert int(positions.max()) < 5
