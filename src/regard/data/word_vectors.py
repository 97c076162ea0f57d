"""Word vectors: a word and its numbers on every line, as word2vec and GloVe write them.

    nearest     the words whose vectors have the largest cosine with that of a word
    analogy     the words nearest to king − man + woman, of vectors of unit length
    project     vectors seen along the two directions in which they differ most (principal components):
                X less its mean = U S Vᵀ, points = U₂ S₂, and s² / Σ s² is the share of the variance along a direction

Shapes: W words · D width
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.lines import read_lines
from regard.data.tokenizers import TextTokenizer
from regard.errors import RegardError, did_you_mean
from regard.files import write_atomically

FORM_ADVICE = "Give a file in the text format of word2vec or GloVe: a word and its numbers on each line."
MOST_WORDS = 5_000_000  # of a file; the largest ones published have three million
AT_ONCE = 4096  # lines
SUGGESTED = 10_000  # the most frequent words, among which a misspelled one is looked for


class Fields(NamedTuple):
    """A line that is cut up, but not yet read as numbers."""

    number: int
    word: str
    numbers: list[str]


@dataclass(frozen=True)
class WordVectors:
    """Words, the most frequent first, and a vector for each: [W, D]."""

    words: list[str]
    vectors: NDArray[np.float32]

    @classmethod
    def read(cls, path: Path | str) -> WordVectors:
        """Text of word2vec, or of GloVe (no first line with the sizes); plain or .gz."""
        path = Path(path)
        words: list[str] = []
        blocks: list[NDArray[np.float32]] = []
        waiting: list[Fields] = []
        announced = None
        width = 0
        for number, line in enumerate(read_lines(path, advice=FORM_ADVICE), start=1):
            if not line or not line.strip():
                continue
            word, *numbers = line.rstrip().split(" ")
            if number == 1 and len(numbers) == 1 and _is_count(word) and _is_count(numbers[0]):
                announced = int(word), int(numbers[0])
                width = announced[1]
                continue
            width = width or max(len(numbers), 1)
            if len(numbers) != width:
                raise _malformed(path, number, f"It has {len(numbers)} numbers where {width} are expected.")
            words.append(word)
            waiting.append(Fields(number, word, numbers))
            if len(waiting) == AT_ONCE:
                blocks.append(_rows(path, waiting))
                waiting = []
            if len(words) > MOST_WORDS:
                raise _malformed(path, number, f"A file may have {MOST_WORDS:,} words at most.")
        if waiting:
            blocks.append(_rows(path, waiting))
        if announced and announced[0] != len(words):
            raise _malformed(path, 1, f"It announces {announced[0]:,} words, but {len(words):,} follow.")
        if not words:
            raise _malformed(path, 1, "There is no word in it.")
        return cls(words, np.concatenate(blocks))

    def write(self, path: Path | str) -> None:
        write_atomically(Path(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """The text format of word2vec, each number with the digits that give it back exactly."""
        lines = [f"{len(self.words)} {self.width}"]
        lines += [f"{word} {' '.join(map(str, row))}" for word, row in zip(self.words, self.vectors, strict=True)]
        return ("\n".join(lines) + "\n").encode()

    @property
    def width(self) -> int:
        return self.vectors.shape[1]

    def __contains__(self, word: str) -> bool:
        return word in self._rows

    def row(self, word: str) -> int:
        """Where a word stands; a clear error if it has no vector."""
        if word not in self._rows:
            raise RegardError(
                f"The word '{word}' has no vector.",
                f"It is not among the {len(self.words):,} words of these vectors.",
                _nearest_spelling(word, self.words),
            )
        return self._rows[word]

    def nearest(self, word: str, k: int = 10) -> list[tuple[str, float]]:
        """The k nearest words, each with its cosine."""
        return [(self.words[row], cosine) for row, cosine in self.nearest_to(self.row(word), k)]

    def nearest_to(self, row: int, k: int = 10) -> list[tuple[int, float]]:
        """The k nearest rows to a row, each with its cosine."""
        return self._nearest(self.unit[row], [row], k)

    def analogy(self, expression: str, k: int = 10) -> list[tuple[str, float]]:
        """The k words nearest to a sum such as "king-man+woman", its own words left out."""
        terms = _terms(expression)
        rows = [self.row(word) for _, word in terms]
        signs = np.array([sign for sign, _ in terms], np.float32)
        return [(self.words[row], cosine) for row, cosine in self._nearest(signs @ self.unit[rows], rows, k)]

    @cached_property
    def unit(self) -> NDArray[np.float32]:
        """The vectors, each of length 1."""
        lengths = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        return np.divide(self.vectors, np.where(lengths > 0, lengths, 1), dtype=np.float32)

    @cached_property
    def _rows(self) -> dict[str, int]:
        # Where a file names a word twice, the first counts.
        return {word: row for row, word in reversed(list(enumerate(self.words)))}

    def _nearest(self, query_D: NDArray[np.float32], without: list[int], k: int) -> list[tuple[int, float]]:
        cosines_W = self.unit @ (query_D / max(float(np.linalg.norm(query_D)), 1e-12))
        cosines_W[without] = -np.inf
        best = np.argsort(-cosines_W, kind="stable")[: min(k, len(self.words) - len(set(without)))]
        return [(int(row), float(cosines_W[row])) for row in best]


def project(vectors_ND: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first two principal components of each vector, [N, 2], and their shares of the variance, [2]."""
    u, s, _ = np.linalg.svd(vectors_ND.astype(np.float64) - vectors_ND.mean(0), full_matrices=False)
    points_N2, shares_2 = np.zeros((len(vectors_ND), 2)), np.zeros(2)
    components = (u * s)[:, :2]  # one vector alone has a single one
    points_N2[:, : components.shape[1]] = components
    shares_2[: len(s)] = s[:2] ** 2 / max(float((s**2).sum()), 1e-12)
    return points_N2, shares_2


def initialise_table(table: Tensor, tokenizer: TextTokenizer, vectors: WordVectors) -> int:
    """Copy each vector to the row of the token that stands for its word; how many were copied.

    They are scaled so that their mean square is that of the table's own first values.
    """
    if vectors.width != table.shape[1]:
        raise RegardError(
            f"The word vectors are {vectors.width} wide, the model {table.shape[1]}.",
            "They can only be used with the same width.",
            f"Set model.width={vectors.width}, or give other vectors.",
        )
    words = ((token, tokenizer.piece(token).removeprefix(" ")) for token in range(tokenizer.size))
    pairs = [(token, vectors.row(word)) for token, word in words if word in vectors]
    if not pairs:
        return 0
    tokens, rows = (list(side) for side in zip(*pairs, strict=True))
    with torch.no_grad():
        known = torch.from_numpy(vectors.vectors[rows])
        mean_square = table.float().square().mean().item()
        known = known * (mean_square / max(known.square().mean().item(), 1e-12)) ** 0.5
        table[tokens] = known.to(table)
    return len(tokens)


def _rows(path: Path, lines: list[Fields]) -> NDArray[np.float32]:
    """The numbers of some lines: many together are read faster than one by one."""
    try:
        rows = np.array([line.numbers for line in lines], np.float32)
    except ValueError:
        rows = np.full(1, np.nan, np.float32)
    if np.isfinite(rows).all():
        return rows
    if len(lines) > 1:
        return np.concatenate([_rows(path, [line]) for line in lines])  # raises at the first that is wrong
    [(number, word, numbers)] = lines
    try:
        np.array(numbers, np.float32)
    except ValueError:
        text = " ".join([word, *numbers])
        raise _malformed(path, number, f"'{text[:40].rstrip()}' is not a word and its numbers.") from None
    raise _malformed(path, number, f"The vector of '{word}' is not finite.")


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) < 20


def _malformed(path: Path, number: int, why: str) -> RegardError:
    return RegardError(
        f"Line {number:,} of '{path}' is not a word vector.",
        why,
        FORM_ADVICE,
    )


def _terms(expression: str) -> list[tuple[int, str]]:
    """Signs and words of a sum."""
    if not re.fullmatch(r"\s*[+-]?\s*[^\s+-]+(\s*[+-]\s*[^\s+-]+)*\s*", expression):
        raise RegardError(
            f"'{expression}' is not a sum of words.",
            "Words are joined by + and -.",
            'Write for example "king-man+woman".',
        )
    return [(-1 if sign == "-" else 1, word) for sign, word in re.findall(r"([+-]?)\s*([^\s+-]+)", expression)]


def _nearest_spelling(word: str, words: list[str]) -> str:
    suggestion = did_you_mean(word, words[:SUGGESTED])
    return suggestion if suggestion.startswith("Did") else "Try another word; vectors exist for frequent words only."
