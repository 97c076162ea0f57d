"""Batches for CBOW: rows of running text, the reach of each word's context, and wrong words.

    keep a word with probability √(t / f) + t / f        f: its share of the text, t: `subsample`
    draw a wrong word in proportion to count^¾

Both as in word2vec's C code and in gensim (the paper's own formula for keeping, √(t / f), is another). Windows
lie over the words that are kept, and never cross a line or document.

An epoch reads the text in blocks, in random order, and the rows of each block in random order; all
choices in a block follow from (seed, epoch, block).

Shapes: B rows · T words to guess · S = T + 2 · window words, with those before and after · K wrong words
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.settings import EmbeddingSettings
from regard.data.batch import Batch, DataState
from regard.data.tokenizers import BYTES, END, SPECIALS, TextTokenizer
from regard.errors import RegardError

NOT_A_WORD, SENTENCE_END = 0, -1
BLOCK = 1 << 18  # tokens
ROW_LENGTH = 32  # words of a row; they share their wrong words
WRONG_WORDS = 32  # of a row


@dataclass(frozen=True)
class WordBatch(Batch):
    """The label of a position is the word there; 0 where it has no context."""

    unit: ClassVar[str] = "words"

    words_BS: Tensor
    left_BT: Tensor
    right_BT: Tensor
    wrong_BK: Tensor


@dataclass(frozen=True)
class Lexicon:
    """The words that get a vector, by falling count. Word 0 is none; token i of a text is word `of_token[i]`."""

    words: list[str]
    counts: NDArray[np.int64]
    of_token: NDArray[np.int32]

    @classmethod
    def of(cls, ids: NDArray[Any], tokenizer: TextTokenizer, minimum_count: int) -> Lexicon:
        """Tokens with the same letters, such as "king" and " king", are one word."""
        token_counts = np.zeros(tokenizer.size, np.int64)
        for start in range(0, len(ids), BLOCK):
            token_counts += np.bincount(ids[start : start + BLOCK], minlength=tokenizer.size)
        pieces = [tokenizer.piece(token) for token in range(tokenizer.size)]
        counts: dict[str, int] = {}
        for piece, count in zip(pieces, token_counts.tolist(), strict=True):
            if _is_word(piece):
                counts[piece.strip()] = counts.get(piece.strip(), 0) + count
        frequent = sorted((-count, word) for word, count in counts.items() if count >= minimum_count)
        if len(frequent) < 2:
            raise RegardError(
                "There are too few words to train vectors of.",
                f"{len(frequent)} words stand in the text {minimum_count} times or more.",
                "Add text, or lower embeddings.minimum_count.",
            )
        words = ["", *(word for _, word in frequent)]
        number = {word: index for index, word in enumerate(words)}
        of_token = [number.get(piece.strip(), NOT_A_WORD) if _is_word(piece) else NOT_A_WORD for piece in pieces]
        for token, piece in enumerate(pieces):
            if token == END or "\n" in piece or piece == BYTES[ord("\n")]:
                of_token[token] = SENTENCE_END
        return cls(words, np.array([0, *(-count for count, _ in frequent)]), np.array(of_token, np.int32))

    def __len__(self) -> int:
        return len(self.words)

    def keep_probability(self, subsample: float) -> NDArray[np.float32]:
        """√(t / f) + t / f, at most 1."""
        if not subsample:
            return np.ones(len(self), np.float32)
        ratio = subsample * self.counts.sum() / np.maximum(self.counts, 1)
        return np.minimum(np.sqrt(ratio) + ratio, 1.0).astype(np.float32)


class WordStream:
    """The endless stream of training batches, from any state on."""

    def __init__(self, ids: NDArray[Any], lexicon: Lexicon, settings: EmbeddingSettings, seed: int):
        self.ids, self.lexicon, self.seed = ids, lexicon, seed
        self.window = settings.window
        self.length = min(ROW_LENGTH, settings.words_per_batch)
        self.rows = settings.words_per_batch // self.length
        self.blocks = -(-len(ids) // BLOCK)
        self.keep = lexicon.keep_probability(settings.subsample)
        shares = lexicon.counts**0.75
        self.cumulative = np.cumsum(shares / shares.sum())

    def batches(self, state: DataState) -> Iterator[tuple[WordBatch, DataState]]:
        """Each batch with the state after it."""
        epoch, first_block, first_row = state.epoch, state.window, state.row
        held: list[list[NDArray[Any]]] = []
        needed = self.rows
        while True:
            empty = True
            for place, block in self._order(epoch, first_block):
                fields = self._block(epoch, block)
                found = len(fields[0])
                while first_row < found:
                    empty = False
                    taken = [field[first_row : first_row + needed] for field in fields]
                    held.append(taken)
                    needed -= len(taken[0])
                    first_row += len(taken[0])
                    if not needed:
                        yield _join(held), DataState(epoch, place, first_row)
                        held, needed = [], self.rows
                first_row = 0
            if empty and not first_block:
                raise RegardError(
                    "There is too little text to train on.",
                    "No line of it has two words that get a vector.",
                    "Add text, or lower embeddings.minimum_count.",
                )
            epoch, first_block = epoch + 1, 0

    def one_epoch(self) -> Iterator[WordBatch]:
        """Every block once: for validation. The last batches of a block may be smaller."""
        for block in range(self.blocks):
            fields = self._block(0, block)
            for start in range(0, len(fields[0]), self.rows):
                yield _join([[field[start : start + self.rows] for field in fields]])

    def _order(self, epoch: int, first: int) -> list[tuple[int, int]]:
        order = np.random.default_rng([self.seed, epoch]).permutation(self.blocks)
        return list(enumerate(order.tolist()))[first:]

    def _block(self, epoch: int, block: int) -> list[NDArray[Any]]:
        """The rows of a block, as the fields of a batch."""
        generator = np.random.default_rng([self.seed, epoch, block])
        words, left, right = self._contexts(self.ids[block * BLOCK : (block + 1) * BLOCK], generator)
        rows = -(-len(words) // self.length)
        missing = rows * self.length - len(words)
        labels = np.where(left + right > 0, words, NOT_A_WORD)
        fields = [_fill(field, 0, missing).reshape(rows, self.length) for field in (labels, left, right)]
        around = _fill(words, self.window, missing + self.window)
        order = generator.permutation(np.flatnonzero(fields[0].any(1)))
        places = order[:, None] * self.length + np.arange(self.length + 2 * self.window)
        labels_RT, left_RT, right_RT = (field[order] for field in fields)
        wrong_RK = np.searchsorted(self.cumulative, generator.random((len(order), WRONG_WORDS)), side="right")
        return [labels_RT, around[places], left_RT, right_RT, wrong_RK.astype(np.int32)]

    def _contexts(
        self, ids: NDArray[Any], generator: np.random.Generator
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """The words kept, and how many of those before and after each one are its context."""
        found = self.lexicon.of_token[ids]
        kept = generator.random(len(found), np.float32) < self.keep[found]
        kept &= found > NOT_A_WORD
        words = found[kept]
        sentence = np.cumsum(found == SENTENCE_END, dtype=np.int32)[kept]
        place = np.arange(len(words), dtype=np.int32)
        starts = np.flatnonzero(np.diff(sentence, prepend=-1)).astype(np.int32)
        lengths = np.diff(starts, append=np.int32(len(words)))
        first = np.repeat(starts, lengths)
        last = np.repeat(starts + lengths - 1, lengths)
        reach = generator.integers(1, self.window + 1, len(words), np.int32)
        return words, np.minimum(reach, place - first), np.minimum(reach, last - place)


def _is_word(piece: str) -> bool:
    """Whether a token holds a letter or digit, and is not special or a byte that stands in for something unknown."""
    return piece not in _NO_WORDS and any(character.isalnum() for character in piece)


def _fill(values: NDArray[np.int32], before: int, after: int) -> NDArray[np.int32]:
    return np.pad(values, (before, after), constant_values=NOT_A_WORD)


def _join(parts: list[list[NDArray[Any]]]) -> WordBatch:
    return WordBatch(*(torch.from_numpy(np.concatenate(fields)) for fields in zip(*parts, strict=True)))


_NO_WORDS = frozenset(SPECIALS + BYTES)
