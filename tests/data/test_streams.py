"""What every stream of batches promises: a pure order, every sample once an epoch, and any state to continue from."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import astuple, dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch

from corpora import (
    equal,
    numbered_images,
    random_pairs,
    random_texts,
    tokenised_pairs,
    tokenised_texts,
    unpack_pairs,
    unpack_texts,
    zipf_text,
)
from regard.data import cbow_batches, packed
from regard.data.batch import Batch, DataState
from regard.data.bpe_dropout import BpeDropout
from regard.data.caption_batches import Captions, CaptionStream
from regard.data.cbow_batches import Lexicon, WordStream
from regard.data.game_batches import GameStream
from regard.data.image_batches import ImageStream
from regard.data.labelled_batches import LabelledRows, LabelledStream
from regard.data.masked_batches import MaskedStream, Masking
from regard.data.packing import rows_of_length
from regard.data.pair_batches import PairStream, Rectangle
from regard.data.palette import Palette
from regard.data.pixel_batches import PixelStream
from regard.data.question_batches import QuestionRows, QuestionStream
from regard.data.ragged import Ragged
from regard.data.samples import english_german
from regard.data.stream import Stream
from regard.data.synthetic import SyntheticStream
from regard.data.text_batches import NextTokenStream
from regard.data.tokenised_questions import TokenisedQuestions, windows_of
from regard.data.tokenizers import TextTokenizer, train_tokenizer
from regard.errors import RegardError
from regard.settings import CropSettings, EmbeddingSettings, MaskingSettings, SyntheticSettings, TokenizerSettings
from regard.training.processes import Processes

PAIRS, TEXTS, IMAGES = random_pairs(150), random_texts(150), numbered_images(23, 4, 5)
LENGTH = 8
IDS = np.arange(3, 3 + 203, dtype=np.uint16)  # token i is 3 + i
ROWS_OF_IDS = (len(IDS) - 1) // LENGTH - 1
GREY = Palette.grey(256)


@cache
def zipf() -> tuple[np.ndarray, Lexicon]:
    text = zipf_text()
    tokenizer = train_tokenizer([text], TokenizerSettings(kind="word", vocabulary=1000))
    ids = np.array(tokenizer.encode([text])[0])
    return ids, Lexicon.from_text(ids, tokenizer, minimum_count=1)


@cache
def bpe() -> tuple[TextTokenizer, BpeDropout, list[tuple[str, str]]]:
    texts = english_german.pairs(150, seed=6)
    tokenizer = train_tokenizer((t for pair in texts for t in pair), TokenizerSettings(kind="bpe", vocabulary=400))
    return tokenizer, BpeDropout(tokenizer, 0.2, seed=1), texts


def pairs(rows: int, seed: int, apart: bool = False) -> Stream:
    return PairStream(tokenised_pairs(PAIRS), Rectangle(rows, 48, 48, apart), seed, max_length=32)


def dropped_pairs(rows: int, seed: int) -> Stream:
    tokenizer, dropout, texts = bpe()
    sides = [tokenizer.encode([pair[side] for pair in texts]) for side in (0, 1)]
    return PairStream(
        tokenised_pairs(list(zip(*sides, strict=True))), Rectangle(rows, 128, 128), seed, 96, (dropout, dropout)
    )


def decoded(batch: Batch) -> list[Hashable]:
    return bpe()[0].decode([source for source, _ in unpack_pairs(batch)])


def texts(rows: int, seed: int, at_end: bool = False, apart: bool = False) -> Stream:
    return LabelledStream(tokenised_texts(TEXTS), LabelledRows(rows, 32, at_end, apart), seed, max_length=16)


def asked(rows: int, seed: int, apart: bool = False) -> Stream:
    """Questions of one token, each other than all others, about texts that are read in windows."""
    texts = tokenised_texts(TEXTS).texts
    one_each = Ragged.from_lists([[300 + number] for number in range(len(TEXTS))])
    spans = Ragged.from_lists([[0, 0] if len(ids) else [] for ids, _ in TEXTS])
    every = np.arange(len(TEXTS))
    questions = TokenisedQuestions(one_each, texts, every, spans, np.ones(len(TEXTS), np.int64))
    return QuestionStream(windows_of(questions, 32, 16), QuestionRows(rows, 32, apart), seed)


def questions_of(batch: Any) -> list[Hashable]:
    starts = (batch.labels != batch.nothing).flatten().nonzero()[:, 0]
    return (batch.tokens_BT.flatten()[starts + 1] - 300).tolist()


def masked(rows: int, seed: int) -> Stream:
    return MaskedStream(IDS, rows, LENGTH, seed, Masking(MaskingSettings(), vocabulary=300))


def words(rows: int, seed: int) -> Stream:
    settings = EmbeddingSettings(words_per_batch=cbow_batches.ROW_LENGTH * rows, subsample=0.0)
    return WordStream(*zipf(), settings, seed)


def first_tokens(tokens_BT: Any) -> list[Hashable]:
    """Which rows of the text these are; where the first begins is another in every epoch."""
    return [(int(row[0]) - 3) // LENGTH for row in tokens_BT]


@dataclass(frozen=True)
class Case:
    stream: Callable[[int, int], Stream]  # of (rows, seed)
    samples: Callable[[Any], list[Hashable]]  # in a batch, each by what tells it from the others
    corpus: list[Hashable]  # the samples of an epoch
    rows: int = 4
    shapes: int = 1  # of a batch, at most
    rows_alone: bool = True  # whether a row is the same in a batch of any size


IMAGE_NUMBERS = list(range(len(IMAGES)))
# Of each image: 100 times its number, and which caption it is.
THREE_CAPTIONS = Captions(
    Ragged.from_lists([[100 * image + each + 3] for image in IMAGE_NUMBERS for each in range(3)]),
    np.arange(0, 3 * len(IMAGES) + 1, 3),
)
CASES = {
    "pairs": Case(pairs, unpack_pairs, PAIRS),
    "pairs apart": Case(partial(pairs, apart=True), unpack_pairs, PAIRS, shapes=6, rows_alone=False),
    "pairs with dropout": Case(dropped_pairs, decoded, [source for source, _ in english_german.pairs(150, seed=6)]),
    "texts": Case(texts, unpack_texts, TEXTS),
    "texts, class at the end": Case(partial(texts, at_end=True), unpack_texts, TEXTS),
    "texts apart": Case(partial(texts, apart=True), unpack_texts, TEXTS, shapes=6, rows_alone=False),
    "questions": Case(asked, questions_of, list(range(len(TEXTS)))),
    "questions apart": Case(
        partial(asked, apart=True), questions_of, list(range(len(TEXTS))), shapes=6, rows_alone=False
    ),
    "next tokens": Case(
        lambda rows, seed: NextTokenStream(IDS, rows, LENGTH, seed),
        lambda batch: first_tokens(batch.tokens_BT),
        list(range(ROWS_OF_IDS)),
    ),
    "masked": Case(
        masked,
        lambda batch: first_tokens(batch.tokens_BT.scatter(1, batch.positions_BM, batch.labels)),
        list(range(ROWS_OF_IDS)),
        rows_alone=False,  # what is hidden is drawn for a whole batch
    ),
    "words": Case(
        words,
        lambda batch: batch.labels[batch.labels > 0].tolist(),
        np.repeat(np.arange(len(zipf()[1])), zipf()[1].counts).tolist(),
        rows=30,
    ),
    "games": Case(
        lambda rows, seed: GameStream(Ragged.from_lists([[3, 10 + n, 2] for n in range(50)]), rows, 4, seed),
        lambda batch: (batch.labels[:, 0] - 10).tolist(),
        list(range(50)),
    ),
    "images": Case(
        lambda rows, seed: ImageStream(IMAGES, rows, seed, mixed=False),
        lambda batch: batch.labels[:, 0].tolist(),
        IMAGE_NUMBERS,
    ),
    "images mixed": Case(
        lambda rows, seed: ImageStream(IMAGES, rows, seed, mixed=True),
        lambda batch: batch.labels[:, 0].tolist(),
        IMAGE_NUMBERS,
    ),
    "captions": Case(
        lambda rows, seed: CaptionStream(IMAGES, THREE_CAPTIONS, 4, rows, seed),
        lambda batch: (batch.labels[:, 0] // 100).tolist(),  # whichever of its captions an image comes with
        IMAGE_NUMBERS,
    ),
    "pixels": Case(
        lambda rows, seed: PixelStream(IMAGES, GREY, rows, seed, CropSettings()),
        lambda batch: batch.labels[:, -1].tolist(),
        IMAGE_NUMBERS,
    ),
    "pixels moved": Case(
        lambda rows, seed: PixelStream(IMAGES, GREY, rows, seed, CropSettings(crop=1, flip=0.5)),
        lambda batch: batch.labels[:, 7].tolist(),  # a pixel that no move brings to the edge
        IMAGE_NUMBERS,
    ),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
SYNTHETIC = Case(
    lambda rows, seed: SyntheticStream(SyntheticSettings(kind="recall", vocabulary=8, length=24), rows, seed),
    lambda batch: [tuple(row) for row in batch.tokens_BT.tolist()],
    [],  # an epoch without end
    rows_alone=False,
)
with_synthetic = pytest.mark.parametrize("case", [*CASES.values(), SYNTHETIC], ids=[*CASES, "synthetic"])


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """Several to an epoch, even of a small corpus."""
    monkeypatch.setattr(packed, "WINDOW", 64)
    monkeypatch.setattr(cbow_batches, "BLOCK", 3000)


def first(case: Case, count: int, seed: int = 1, rows: int = 0, state: DataState | None = None) -> list[Any]:
    return list(itertools.islice(case.stream(rows or case.rows, seed).batches(state or DataState()), count))


def epochs(
    case: Case, count: int, seed: int = 1, taken: Callable[[Any], list[Any]] = lambda batch: [batch]
) -> list[list[Hashable]]:
    """The samples of the first epochs, in their order. `taken`: what is taken of each batch, in parts."""
    samples: list[Hashable] = []
    size = len(case.corpus)
    for batch, _ in case.stream(case.rows, seed).batches(DataState()):
        for part in taken(batch):
            samples += case.samples(part)
        if len(samples) >= count * size:
            return [samples[epoch * size : (epoch + 1) * size] for epoch in range(count)]
    raise AssertionError("the stream has no end")


@with_synthetic
def test_the_stream_continues_identically_from_any_state(case):
    straight = first(case, 70)
    assert straight[-1][1].epoch >= 2 or not case.corpus
    for number in {*range(0, 68, 5), 1, 2, 3, 67}:
        resumed = first(case, 2, state=straight[number][1])
        for (batch, after), (expected, expected_after) in zip(resumed, straight[number + 1 :], strict=False):
            assert equal(batch, expected)
            assert after == expected_after


@every_case
def test_every_epoch_holds_every_sample_once(case):
    for epoch in epochs(case, 3):
        assert Counter(epoch) == Counter(case.corpus)


@every_case
@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_so_many_processes_together_take_every_sample_of_an_epoch_once(case, count):
    """One process is the case above: it takes whole batches. Three are possible where sums need not be exact."""
    processes = [Processes(rank, count) for rank in range(count)]

    def taken(batch: Any) -> list[Any]:
        pieces = batch.split(2 * count)
        shares = [list(process.share(len(pieces))) for process in processes]
        assert sorted(itertools.chain(*shares)) == list(range(len(pieces))), "each micro-batch has one process"
        assert len({len(share) for share in shares}) == 1
        return [pieces[index] for share in shares for index in share]

    for epoch in epochs(case, 2, taken=taken):
        assert Counter(epoch) == Counter(case.corpus)


@with_synthetic
def test_another_seed_gives_another_order_and_the_same_seed_the_same(case):
    batches = [[batch for batch, _ in first(case, 3, seed)] for seed in (1, 1, 2)]
    assert all(equal(one, again) for one, again in zip(batches[0], batches[1], strict=True))
    others = itertools.product(batches[0], batches[2])
    assert not any(one.labels.shape == other.labels.shape and equal(one, other) for one, other in others)


@every_case
def test_every_epoch_has_an_order_of_its_own(case):
    orders = [case.corpus, *epochs(case, 2), *epochs(case, 2, seed=2)]
    chance = sum(count**2 for count in Counter(case.corpus).values()) / len(case.corpus)
    for left, right in itertools.combinations(orders, 2):
        same = sum(a == b for a, b in zip(left, right, strict=True))
        assert same < 2 * chance + len(case.corpus) / 5


@with_synthetic
def test_the_state_is_three_integers_that_grow(case):
    states = [state for _, state in first(case, 70)]
    assert all(isinstance(number, int) for state in states for number in astuple(state))
    assert all(astuple(a) < astuple(b) for a, b in itertools.pairwise(states))


@with_synthetic
def test_batches_have_few_shapes(case):
    shapes = {tuple(tuple(tensor.shape) for tensor in batch.tensors()) for batch, _ in first(case, 70)}
    assert len(shapes) <= case.shapes


@with_synthetic
def test_a_batch_in_one_piece_of_memory_is_the_same_batch(case):
    batch, _ = first(case, 1)[0]
    together = batch.in_one_piece()
    elsewhere = together.to(torch.device("cpu"))
    assert equal(together, batch) and equal(elsewhere, batch)
    assert {tensor.untyped_storage().data_ptr() for tensor in together.tensors()} == {together.piece.data_ptr()}
    # Copied as one, as into the memory of a graph.
    other = together.in_one_piece()
    other.piece.zero_()
    other.piece.copy_(together.piece)
    assert equal(other, batch)
    assert batch.piece is None and together.targets == batch.targets


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.rows_alone])
def test_rows_do_not_depend_on_how_many_a_batch_has(case):
    """So that a run may continue with another number of processes."""

    def rows(count: int) -> list[Any]:
        batches = [batch.tensors() for batch, _ in first(case, 24 // count, rows=count)]
        return [np.concatenate(tensors) for tensors in zip(*batches, strict=True)]

    for count in (2, 6, 24):
        for one, several in zip(rows(1), rows(count), strict=True):
            np.testing.assert_array_equal(one, several)


@pytest.mark.parametrize("name", ["pairs", "texts", "next tokens", "masked", "images mixed", "pixels"])
def test_a_batch_larger_than_the_corpus_takes_it_several_times(name):
    batch, state = first(CASES[name], 1, rows=400)[0]
    assert len(batch.labels) == 400
    counts = Counter(CASES[name].samples(batch))
    assert set(counts) == set(CASES[name].corpus)
    assert state.epoch >= min(counts.values()) >= 2
    assert max(counts.values()) - min(counts.values()) <= 1


def test_rows_apart_hold_one_sample_each_in_shapes_of_as_many_positions():
    for name in ("pairs apart", "texts apart"):
        for batch, _ in first(CASES[name], 40):
            segments = batch.source_segments_BS if name == "pairs apart" else batch.segments_BT
            assert int(segments.max()) == 1
            rows, length = segments.shape
            assert rows == rows_of_length(length, 4 * (48 if name == "pairs apart" else 32))


@pytest.mark.parametrize(
    "stream",
    [
        LabelledStream(tokenised_texts([]), LabelledRows(4, 32, at_end=False), 1, 16),
        ImageStream(numbered_images(0), 4, 1, mixed=False),
    ],
    ids=["texts", "images"],
)
def test_an_epoch_without_samples_is_an_error_and_not_an_endless_loop(stream):
    with pytest.raises(RegardError, match="nothing to train on"):
        next(stream.batches(DataState()))
