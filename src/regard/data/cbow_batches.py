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

from regard.data.batch import Batch
from regard.data.stream import Part, Stream
from regard.data.tokenizers import BYTES, END, SPECIALS, TextTokenizer
from regard.errors import RegardError
from regard.settings import EmbeddingSettings

NOT_A_WORD, SENTENCE_END = 0, -1
BLOCK = 1 << 18  # tokens
ROW_LENGTH = 32  # words of a row; they share their wrong words
WRONG_WORDS = 32  # of a row


@dataclass(frozen=True)
class WordBatch(Batch):
    """The label of a position is the word there: [B, T]; 0 where it has no context."""

    unit: ClassVar[str] = "words"

    words_BS: Tensor
    left_BT: Tensor
    right_BT: Tensor
    wrong_BK: Tensor


@dataclass(frozen=True)
class Lexicon:
    """The words that get a vector, the most frequent first. Word 0 is none; token i is word `word_of_token[i]`."""

    words: list[str]
    counts: NDArray[np.int64]
    word_of_token: NDArray[np.int32]

    @classmethod
    def from_text(cls, ids: NDArray[Any], tokenizer: TextTokenizer, minimum_count: int) -> Lexicon:
        """The words that occur this often. Tokens with the same letters, such as "king" and " king", are one word."""
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
                f"{len(frequent)} words occur in the text {minimum_count} times or more.",
                "Add text, or lower embeddings.minimum_count.",
            )
        words = ["", *(word for _, word in frequent)]
        number = {word: index for index, word in enumerate(words)}
        word_of_token = [number.get(piece.strip(), NOT_A_WORD) if _is_word(piece) else NOT_A_WORD for piece in pieces]
        for token, piece in enumerate(pieces):
            if token == END or "\n" in piece or piece == BYTES[ord("\n")]:
                word_of_token[token] = SENTENCE_END
        return cls(words, np.array([0, *(-count for count, _ in frequent)]), np.array(word_of_token, np.int32))

    def __len__(self) -> int:
        return len(self.words)

    def keep_probability(self, subsample: float) -> NDArray[np.float32]:
        """√(t / f) + t / f, at most 1."""
        if not subsample:
            return np.ones(len(self), np.float32)
        ratio = subsample * self.counts.sum() / np.maximum(self.counts, 1)
        return np.minimum(np.sqrt(ratio) + ratio, 1.0).astype(np.float32)


@dataclass(frozen=True)
class WordRows:
    """Rows of a block, as the fields of a batch, in its order."""

    fields: list[NDArray[Any]]

    def __len__(self) -> int:
        return len(self.fields[0])

    def __getitem__(self, rows: slice) -> list[NDArray[Any]]:
        return [field[rows] for field in self.fields]


class WordStream(Stream[WordRows, WordBatch]):
    """A window is a block of the text."""

    def __init__(self, ids: NDArray[Any], lexicon: Lexicon, settings: EmbeddingSettings, seed: int):
        self.ids, self.lexicon, self.seed = ids, lexicon, seed
        self.reach = settings.window
        self.length = min(ROW_LENGTH, settings.words_per_batch)
        self.rows = settings.words_per_batch // self.length
        self.keep = lexicon.keep_probability(settings.subsample)
        shares = lexicon.counts**0.75
        self.cumulative = np.cumsum(shares / shares.sum())

    @property
    def windows(self) -> int:
        return -(-len(self.ids) // BLOCK)

    def open(self, epoch: int, window: int) -> WordRows:
        order = np.random.default_rng([self.seed, epoch]).permutation(self.windows)
        return self._block(epoch, int(order[window]))

    def collate(self, parts: list[Part[WordRows]]) -> WordBatch:
        return _join([part.window[part.slice] for part in parts])

    def in_order(self) -> Iterator[WordBatch]:
        """Every block once: for validation. The last batch of a block may be smaller."""
        for number in range(self.windows):
            block = self._block(0, number)
            for start in range(0, len(block), self.rows):
                yield _join([block[start : start + self.rows]])

    def nothing_to_train_on(self) -> RegardError:
        return RegardError(
            "There is too little text to train on.",
            "No line of it has two words that get a vector.",
            "Add text, or lower embeddings.minimum_count.",
        )

    def _block(self, epoch: int, block: int) -> WordRows:
        generator = np.random.default_rng([self.seed, epoch, block])
        words, left, right = self._contexts(self.ids[block * BLOCK : (block + 1) * BLOCK], generator)
        rows = -(-len(words) // self.length)
        missing = rows * self.length - len(words)
        labels = np.where(left + right > 0, words, NOT_A_WORD)
        fields = [_fill(field, 0, missing).reshape(rows, self.length) for field in (labels, left, right)]
        around = _fill(words, self.reach, missing + self.reach)
        order = generator.permutation(np.flatnonzero(fields[0].any(1)))
        columns = order[:, None] * self.length + np.arange(self.length + 2 * self.reach)
        labels_RT, left_RT, right_RT = (field[order] for field in fields)
        wrong_RK = np.searchsorted(self.cumulative, generator.random((len(order), WRONG_WORDS)), side="right")
        return WordRows([labels_RT, around[columns], left_RT, right_RT, wrong_RK.astype(np.int32)])

    def _contexts(
        self, ids: NDArray[Any], generator: np.random.Generator
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """The words kept, and how many of those before and after each one are its context."""
        every = self.lexicon.word_of_token[ids]
        kept = generator.random(len(every), np.float32) < self.keep[every]
        kept &= every > NOT_A_WORD
        words = every[kept]
        sentence = np.cumsum(every == SENTENCE_END, dtype=np.int32)[kept]
        position = np.arange(len(words), dtype=np.int32)
        starts = np.flatnonzero(np.diff(sentence, prepend=-1)).astype(np.int32)
        lengths = np.diff(starts, append=np.int32(len(words)))
        first = np.repeat(starts, lengths)
        last = np.repeat(starts + lengths - 1, lengths)
        reach = generator.integers(1, self.reach + 1, len(words), np.int32)
        return words, np.minimum(reach, position - first), np.minimum(reach, last - position)


def _is_word(piece: str) -> bool:
    """Whether a token holds a letter or digit, and is not special or a byte that stands in for something unknown."""
    return piece not in _NO_WORDS and any(character.isalnum() for character in piece)


def _fill(values: NDArray[np.int32], before: int, after: int) -> NDArray[np.int32]:
    return np.pad(values, (before, after), constant_values=NOT_A_WORD)


def _join(parts: list[list[NDArray[Any]]]) -> WordBatch:
    return WordBatch(*(torch.from_numpy(np.concatenate(fields)) for fields in zip(*parts, strict=True)))


_NO_WORDS = frozenset(SPECIALS + BYTES)
