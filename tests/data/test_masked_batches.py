"""Masked batches: as many tokens hidden as asked, each in one of three ways, other ones in every epoch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from corpora import equal
from regard.data.batch import DataState
from regard.data.masked_batches import MaskedBatch, MaskedStream, Masking, in_order
from regard.data.text_batches import NextTokenStream
from regard.data.tokenizers import END, PAD, SPECIALS, START
from regard.settings import MaskingSettings

WORDS = 50  # so 50 is the mask
ORDINARY = len(SPECIALS)
MASKING = Masking(MaskingSettings(), WORDS)


def some_tokens(rows: int, length: int, seed: int = 1, special: float = 0.0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    tokens = generator.integers(ORDINARY, WORDS, (rows, length))
    specials = generator.choice([PAD, START, END], (rows, length))
    return np.where(generator.random((rows, length)) < special, specials, tokens)


def hide(tokens: np.ndarray, seed: int = 1, **settings: float) -> MaskedBatch:
    return Masking(MaskingSettings(**settings), WORDS).hide(tokens, np.random.default_rng(seed))


def restored(batch: MaskedBatch) -> torch.Tensor:
    """The text with every label put back in its place."""
    return batch.tokens_BT.scatter(1, batch.positions_BM, batch.labels)


# --- Hiding ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "share", "count"), [(100, 0.15, 15), (128, 0.15, 19), (10, 0.01, 1), (1, 0.15, 1), (10, 0.99, 10)]
)
def test_every_row_has_the_same_number_of_labels_at_different_places(length, share, count):
    batch = hide(some_tokens(20, length), share=share)
    assert batch.labels.shape == batch.positions_BM.shape == (20, count)
    assert batch.targets == 20 * count
    assert all(len(set(row)) == count and row == sorted(row) for row in batch.positions_BM.tolist())


def test_labels_are_the_tokens_that_stood_there_and_the_rest_is_unchanged():
    tokens = some_tokens(30, 64)
    before = tokens.copy()
    batch = hide(tokens)
    assert np.array_equal(tokens, before)
    assert torch.equal(restored(batch), torch.from_numpy(tokens))
    changed = batch.tokens_BT != torch.from_numpy(tokens)
    chosen = torch.zeros_like(changed).scatter(1, batch.positions_BM, True)
    assert changed.any()
    assert not (changed & ~chosen).any()


def test_special_tokens_are_never_hidden_nor_put_in():
    tokens = torch.from_numpy(some_tokens(400, 40, special=0.4))
    batch = hide(tokens.numpy(), share=0.3, random=0.5)
    special = tokens < ORDINARY
    assert torch.equal(batch.tokens_BT[special], tokens[special])
    assert int(batch.tokens_BT[~special].min()) >= ORDINARY
    assert not special.gather(1, batch.positions_BM)[batch.labels != PAD].any()
    # Specials take no place away from the others.
    assert batch.targets == int((~special).sum(1).clamp(max=12).sum())


@pytest.mark.parametrize(("random", "same"), [(0.1, 0.1), (0.3, 0.2), (0.0, 0.0), (0.0, 0.5), (0.6, 0.0), (0.5, 0.5)])
def test_the_shares_of_mask_random_and_same_are_as_asked(random, same):
    batch = hide(some_tokens(4000, 100), share=0.5, random=random, same=same)
    put = batch.tokens_BT.gather(1, batch.positions_BM)
    # A random token is by chance the right one 1 time in 47.
    by_chance = random / (WORDS - ORDINARY)
    is_mask, is_same = put == WORDS, put == batch.labels
    assert is_mask.float().mean().item() == pytest.approx(1 - random - same, abs=0.005)
    assert is_same.float().mean().item() == pytest.approx(same + by_chance, abs=0.005)
    if random:
        drawn = put[~is_mask & ~is_same]
        assert set(drawn.tolist()) == set(range(ORDINARY, WORDS))
        counts = drawn.bincount(minlength=WORDS)[ORDINARY:].float()
        assert (counts / counts.mean() - 1).abs().max() < 0.25


def test_every_place_is_chosen_equally_often():
    batch = hide(some_tokens(4000, 20), share=0.2)
    counts = batch.positions_BM.flatten().bincount(minlength=20).float()
    assert (counts / 4000 - 0.2).abs().max() < 0.03


def test_the_mask_is_the_id_after_the_vocabulary():
    tokens = some_tokens(50, 40)
    batch = hide(tokens, random=0.0, same=0.0)
    assert set(batch.tokens_BT.gather(1, batch.positions_BM).flatten().tolist()) == {WORDS}
    assert (tokens != WORDS).all()


def test_a_row_with_too_few_ordinary_tokens_has_empty_labels():
    tokens = np.array([[START, 7, END, PAD, PAD, PAD, PAD, PAD], [PAD] * 8, [5, 6, 7, 8, 9, 10, 11, 12]])
    for seed in range(20):
        batch = hide(tokens, seed, share=0.5, random=0.0, same=0.0)
        assert sorted(batch.labels[0].tolist()) == [PAD, PAD, PAD, 7]
        assert batch.tokens_BT[0].tolist() == [START, WORDS, END, PAD, PAD, PAD, PAD, PAD]
        assert batch.labels[1].tolist() == [PAD] * 4
        assert batch.tokens_BT[1].tolist() == [PAD] * 8
        assert batch.targets == 1 + 0 + 4
        assert (batch.tokens_BT[2] == WORDS).sum() == 4


# --- The stream ------------------------------------------------------------------------------------------

IDS = some_tokens(1, 400, seed=4)[0].astype(np.uint16)


def stream(rows: int = 4, length: int = 20, seed: int = 1, ids: np.ndarray = IDS) -> MaskedStream:
    return MaskedStream(ids, rows, length, seed, MASKING)


def test_the_stream_is_the_text_with_tokens_hidden():
    plain = NextTokenStream(IDS, 4, 20, 1).batches(DataState())
    for (batch, after), (text, text_after) in itertools.islice(
        zip(stream().batches(DataState()), plain, strict=True), 20
    ):
        assert torch.equal(restored(batch), text.tokens_BT)
        assert after == text_after
        assert not torch.equal(batch.tokens_BT, text.tokens_BT)


def test_every_epoch_and_every_seed_hides_other_places():
    """A text of one token alone: rows of all epochs are equal, but for what is hidden."""
    ids = np.full(400, 7, np.uint16)

    def places(seed: int, epoch: int) -> list[list[int]]:
        found = stream(rows=1, seed=seed, ids=ids).batches(DataState(epoch))
        return [batch.positions_BM[0].tolist() for batch, _ in itertools.islice(found, 18)]

    runs = [places(seed, epoch) for seed in (1, 2) for epoch in (0, 1)]
    assert places(1, 0) == runs[0]
    for left, right in itertools.combinations(runs, 2):
        assert sum(a == b for a, b in zip(left, right, strict=True)) <= 2
    assert len({tuple(row) for row in runs[0]}) > 15


# --- Validation ------------------------------------------------------------------------------------------


def test_in_order_is_the_text_row_by_row_always_hidden_alike():
    first = list(in_order(IDS[:390], 4, 20, MASKING))
    again = list(in_order(IDS[:390], 4, 20, MASKING))
    assert all(equal(a, b) for a, b in zip(first, again, strict=True))
    assert [len(batch.tokens_BT) for batch in first] == [4, 4, 4, 4, 3]
    text = torch.cat([restored(batch) for batch in first])
    # 390 tokens are 19 rows; the 10 left over are left out.
    assert text.flatten().tolist() == IDS[:380].tolist()
    hidden = [tuple(row) for batch in first for row in batch.positions_BM.tolist()]
    assert len(set(hidden)) > 15


def test_in_order_of_less_than_a_row_is_one_short_row():
    (batch,) = in_order(IDS[:7], 4, 20, MASKING)
    assert batch.tokens_BT.shape == (1, 7)
    assert batch.targets == 1
    assert restored(batch)[0].tolist() == IDS[:7].tolist()
