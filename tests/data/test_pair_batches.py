"""Batches of pairs: what is in a rectangle, how full it is, and what dropout does to it."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from corpora import Pairs, Sentence, equal, random_pairs, tokenised_pairs, unpack_pairs
from regard.data import packed
from regard.data.batch import DataState
from regard.data.bpe_dropout import BpeDropout
from regard.data.pair_batches import PairBatch, PairStream, Rectangle, cut_off, in_order
from regard.data.samples import english_german
from regard.data.tokenised import TokenisedPairs
from regard.data.tokenizers import END, PAD, START, TextTokenizer, train_tokenizer
from regard.errors import RegardError
from regard.settings import TokenizerSettings

RECTANGLE = Rectangle(rows=4, source_length=40, target_length=48)
MAX_LENGTH = 32


def stream(pairs: Pairs, rectangle: Rectangle = RECTANGLE, seed: int = 1, max_length: int = MAX_LENGTH) -> PairStream:
    return PairStream(tokenised_pairs(pairs), rectangle, seed, max_length)


def one_epoch(endless: PairStream, epoch: int = 0) -> list[PairBatch]:
    """The batches from the start of an epoch on, until all its pairs are out (the last may reach into the next)."""
    taken: list[PairBatch] = []
    for batch, state in endless.batches(DataState(epoch)):
        taken.append(batch)
        if state.epoch > epoch:
            return taken
    raise AssertionError("the stream has no end")


@pytest.fixture
def small_windows(monkeypatch):
    monkeypatch.setattr(packed, "WINDOW", 64)


# --- What is in a batch ----------------------------------------------------------------------------------


def test_an_epoch_that_ends_with_a_window_loses_nothing(small_windows):
    pairs = random_pairs(128)
    found = [pair for batch in one_epoch(stream(pairs)) for pair in unpack_pairs(batch)]
    assert Counter(found[:128]) == Counter(pairs)


def test_source_and_target_of_a_segment_belong_together(small_windows):
    for batch in one_epoch(stream(random_pairs(300))):
        for source, target in unpack_pairs(batch):
            assert source[:2] == target[:2]


def test_segments_are_runs_numbered_from_one(small_windows):
    for batch in one_epoch(stream(random_pairs(300))):
        for segments in (*batch.source_segments_BS, *batch.target_segments_BT):
            runs = [number for number, _ in itertools.groupby(segments.tolist())]
            assert runs in (list(range(1, max(runs) + 1)), [*range(1, max(runs) + 1), 0])


def test_positions_restart_with_every_segment(small_windows):
    for batch in one_epoch(stream(random_pairs(300))):
        for segments, positions in (
            (batch.source_segments_BS, batch.source_positions_BS),
            (batch.target_segments_BT, batch.target_positions_BT),
        ):
            for row, places in zip(segments.tolist(), positions.tolist(), strict=True):
                expected = [
                    place if number else 0 for number, run in itertools.groupby(row) for place, _ in enumerate(run)
                ]
                assert places == expected


def test_labels_are_the_inputs_shifted_by_one(small_windows):
    for batch in one_epoch(stream(random_pairs(300))):
        inputs, labels, segments = batch.target_BT, batch.labels, batch.target_segments_BT
        real = segments > 0
        starts = real & (batch.target_positions_BT == 0)
        ends = real & (segments != torch.nn.functional.pad(segments[:, 1:], (0, 1)))
        assert bool((inputs[starts] == START).all())
        assert bool((labels[ends] == END).all())
        assert torch.equal(inputs[real & ~starts], labels[real & ~ends])


def test_positions_that_hold_nothing_are_zero_everywhere(small_windows):
    for batch in one_epoch(stream(random_pairs(300))):
        nothing = batch.source_segments_BS == 0
        for tensor in (batch.source_BS, batch.source_positions_BS):
            assert int(tensor[nothing].sum()) == 0
        nothing = batch.target_segments_BT == 0
        for tensor in (batch.target_BT, batch.labels, batch.target_positions_BT):
            assert int(tensor[nothing].sum()) == 0
        assert PAD == 0


def test_targets_and_padding_count_positions(small_windows):
    for batch in one_epoch(stream(random_pairs(300))):
        pairs = unpack_pairs(batch)
        source = sum(len(source) + 1 for source, _ in pairs)
        target = sum(len(target) + 1 for _, target in pairs)
        assert batch.targets == target
        assert batch.padding == pytest.approx(1 - (source + target) / (4 * (40 + 48)))


def test_a_window_of_captions_has_little_padding():
    generator = np.random.default_rng(4)
    lengths = generator.normal(15, 6, 4000).clip(3, 60).astype(int)
    pairs = [(tuple([5] * n), tuple([6] * max(2, round(n * generator.normal(1, 0.15))))) for n in lengths]
    rectangle = Rectangle.fitting(tokenised_pairs(pairs), 8 * 128, 128, 128)
    found = one_epoch(stream(pairs, rectangle, max_length=128))
    assert sum(batch.padding for batch in found) / len(found) < 0.04


@pytest.mark.parametrize("pieces", [1, 2, 3, 4])
def test_split_keeps_all_rows_in_order(pieces):
    batch, _ = next(stream(random_pairs(100)).batches(DataState()))
    parts = batch.split(pieces)
    assert len(parts) == pieces
    for whole, *split in zip(batch.tensors(), *(part.tensors() for part in parts), strict=True):
        assert torch.equal(torch.cat(split), whole)
    assert sum(part.targets for part in parts) == batch.targets


def test_moving_a_batch_changes_nothing():
    batch, _ = next(stream(random_pairs(100)).batches(DataState()))
    assert equal(batch.to(torch.device("cpu")), batch)


# --- The order -------------------------------------------------------------------------------------------


def test_other_pairs_share_a_row_in_every_epoch(small_windows):
    found = stream(random_pairs(200))

    def shared_rows(epoch: int) -> set[tuple[int, ...]]:
        rows = [
            row
            for batch in one_epoch(found, epoch)
            for row in zip(batch.source_BS, batch.source_segments_BS, strict=True)
        ]
        return {tuple(source.tolist()) for source, segments in rows if segments.max() > 1}

    first, second = shared_rows(0), shared_rows(1)
    assert len(first) > 40
    assert len(first & second) < len(first) // 4


def test_pairs_that_are_too_long_are_left_out_and_counted(small_windows):
    short = random_pairs(50)
    long = [(tuple([7] * MAX_LENGTH), (8,)), ((7,), tuple([8] * (MAX_LENGTH + 5)))]
    just = [(tuple([7] * (MAX_LENGTH - 1)), tuple([8] * (MAX_LENGTH - 1)))]
    found = stream(short + long + just)
    assert found.too_long == 2
    seen = Counter(pair for batch in one_epoch(found) for pair in unpack_pairs(batch))
    assert set(seen) == set(short + just)


def test_nothing_short_enough_is_an_error():
    with pytest.raises(RegardError) as caught:
        stream([(tuple([7] * 50), (8,))])
    assert "1 pairs" in caught.value.why
    assert "data.max_length" in caught.value.fix


# --- The rectangle ---------------------------------------------------------------------------------------


def test_a_rectangle_fits_the_longest_sentence_and_the_corpus():
    pairs = [((5,) * 19, (6,) * 9)] * 10
    assert Rectangle.fitting(tokenised_pairs(pairs), 1024, 64, 32) == Rectangle(16, 128, 64)
    assert Rectangle.fitting(tokenised_pairs([(t, s) for s, t in pairs]), 1024, 64, 32) == Rectangle(16, 32, 64)
    assert Rectangle.fitting(tokenised_pairs([(t, s) for s, t in pairs]), 1024, 64, 64) == Rectangle(16, 64, 64)
    assert Rectangle.fitting(tokenised_pairs([((5,) * 999, (6,))]), 100, 64, 64) == Rectangle(1, 256, 64)


# --- Validation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_in_order_holds_every_pair_once(small_windows, count):
    pairs = random_pairs(count)
    found = list(in_order(tokenised_pairs(pairs), RECTANGLE))
    assert Counter(pair for batch in found for pair in unpack_pairs(batch)) == Counter(pairs)
    assert all(batch.source_BS.shape == (4, 40) for batch in found)
    assert sum(batch.targets for batch in found) == sum(len(target) + 1 for _, target in pairs)


@pytest.mark.parametrize("most", [1000, 30])
@pytest.mark.parametrize("rectangle", [RECTANGLE, Rectangle(4, 45, 45, apart=True)])
def test_in_order_a_pair_longer_than_a_row_goes_on_without_an_end(small_windows, rectangle, most):
    """Neither is <end> read in the middle of a sentence, nor is it to be predicted there."""
    pairs = random_pairs(100, longest=150)
    source_room, target_room = min(rectangle.source_length, most), min(rectangle.target_length, most)
    expected = [((*source, END)[:source_room], (*target, END)[:target_room]) for source, target in pairs]
    found = []
    for batch in in_order(tokenised_pairs(pairs), rectangle, most):
        for row in range(len(batch.labels)):
            for segment in range(1, int(batch.target_segments_BT[row].max()) + 1):
                here = batch.target_segments_BT[row] == segment
                source = batch.source_BS[row][batch.source_segments_BS[row] == segment].tolist()
                labels, inputs = batch.labels[row][here].tolist(), batch.target_BT[row][here].tolist()
                assert inputs == [START, *labels[:-1]]
                found.append((tuple(source), tuple(labels)))
    assert Counter(found) == Counter(expected)
    whole = sum(source[-1] == END and target[-1] == END for source, target in expected)
    assert 0 < whole < len(pairs)
    assert cut_off(tokenised_pairs(pairs), rectangle, most) == len(pairs) - whole


def test_in_order_of_nothing_is_nothing():
    assert list(in_order(tokenised_pairs([]), RECTANGLE)) == []


# --- BPE dropout -----------------------------------------------------------------------------------------

TEXTS = english_german.pairs(400, seed=6)


@pytest.fixture(scope="module")
def bpe() -> TextTokenizer:
    return train_tokenizer((t for pair in TEXTS for t in pair), TokenizerSettings(kind="bpe", vocabulary=700))


@pytest.fixture(scope="module")
def tokenised(bpe) -> TokenisedPairs:
    sides = [bpe.encode([pair[side] for pair in TEXTS]) for side in (0, 1)]
    return tokenised_pairs(list(zip(map(tuple, sides[0]), map(tuple, sides[1]), strict=True)))


def dropped(
    bpe: TextTokenizer, shards: TokenisedPairs, probability: float, seed: int = 1, max_length: int = 96
) -> PairStream:
    drop = BpeDropout(bpe, probability, seed)
    return PairStream(shards, Rectangle(4, 128, 128), seed, max_length, (drop, drop))


def decoded(bpe: TextTokenizer, pairs: Pairs) -> list[tuple[str, str]]:
    sides = (bpe.decode([pair[side] for pair in pairs]) for side in (0, 1))
    return list(zip(*sides, strict=True))


def test_dropout_keeps_the_text_and_changes_the_cutting(bpe, tokenised, small_windows):
    pairs = [pair for batch in one_epoch(dropped(bpe, tokenised, 0.2)) for pair in unpack_pairs(batch)][: len(TEXTS)]
    assert Counter(decoded(bpe, pairs)) == Counter(TEXTS)
    plain = sum(int(side.lengths.sum()) for side in (tokenised.source, tokenised.target))
    assert sum(len(s) + len(t) for s, t in pairs) > 1.2 * plain


def test_dropout_cuts_differently_in_every_epoch_and_for_every_seed(bpe, tokenised):
    def cuttings(seed: int, epoch: int) -> dict[str, Sentence]:
        found = [p for b in one_epoch(dropped(bpe, tokenised, 0.2, seed), epoch) for p in unpack_pairs(b)][: len(TEXTS)]
        return {text: source for (text, _), (source, _) in zip(decoded(bpe, found), found, strict=True)}

    runs = [cuttings(seed, epoch) for seed in (1, 2) for epoch in (0, 1)]
    for left, right in itertools.combinations(runs, 2):
        assert left.keys() == right.keys()
        assert sum(left[text] != right[text] for text in left) > 0.9 * len(left)


def test_a_small_dropout_leaves_most_tokens_alone(bpe, tokenised):
    drop = BpeDropout(bpe, 0.001, seed=1)
    found = drop.apply(tokenised.source, np.random.default_rng(1))
    same = [np.array_equal(found[i], tokenised.source[i]) for i in range(len(found))]
    assert 0.85 < np.mean(same) < 1


def test_no_dropout_leaves_every_token_alone(bpe, tokenised):
    found = BpeDropout(bpe, 0.0, seed=1).apply(tokenised.source, np.random.default_rng(1))
    assert found.ids.tolist() == tokenised.source.ids.tolist()
    assert found.offsets.tolist() == tokenised.source.offsets.tolist()


def test_dropout_of_everything_leaves_bytes(bpe, tokenised):
    found = BpeDropout(bpe, 1.0 - 1e-12, seed=1).apply(tokenised.source, np.random.default_rng(1))
    assert found.lengths.tolist() == [len(" " + source) for source, _ in TEXTS]


def test_dropout_never_makes_a_special_token(bpe, tokenised):
    found = BpeDropout(bpe, 0.5, seed=1).apply(tokenised.target, np.random.default_rng(1))
    assert found.ids.min() > END
    assert found.ids.max() < bpe.size


def test_a_pair_that_dropout_makes_too_long_stays_as_it_was_on_both_sides(bpe, tokenised, small_windows):
    longest = int(max(tokenised.source.lengths.max(), tokenised.target.lengths.max())) + 1
    found = dropped(bpe, tokenised, 0.9, max_length=longest)
    assert found.too_long == 0
    pairs = [pair for batch in one_epoch(found) for pair in unpack_pairs(batch)][: len(TEXTS)]
    assert Counter(decoded(bpe, pairs)) == Counter(TEXTS)
    assert max(len(side) for pair in pairs for side in pair) < longest
    originals = [
        tuple(tuple(side[i].tolist()) for side in (tokenised.source, tokenised.target)) for i in range(len(TEXTS))
    ]
    uncut = dict(zip(TEXTS, originals, strict=True))
    changed = [
        (source != uncut[text][0], target != uncut[text][1])
        for text, (source, target) in zip(decoded(bpe, pairs), pairs, strict=True)
    ]
    assert set(changed) == {(False, False), (True, True)}


# --- One pair per row --------------------------------------------------------------------------------------

APART = Rectangle(rows=4, source_length=48, target_length=48, apart=True)


def test_apart_in_order_holds_every_pair_once(small_windows):
    pairs = random_pairs(150)
    found = list(in_order(tokenised_pairs(pairs), APART))
    assert Counter(pair for batch in found for pair in unpack_pairs(batch)) == Counter(pairs)


def test_apart_most_positions_are_used():
    pairs = random_pairs(4000)
    endless = stream(pairs, Rectangle(32, 48, 48, apart=True)).batches(DataState())
    batches = [batch for batch, _ in itertools.islice(endless, 60)]
    used = sum(len(unpack_pairs(batch)) for batch in batches)
    empty_rows = sum(int((batch.target_segments_BT.max(1).values == 0).sum()) for batch in batches)
    assert empty_rows < 0.05 * (used + empty_rows)
