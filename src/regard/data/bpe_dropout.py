"""BPE dropout: the same word, cut differently each time it is seen (Provilkov et al., 2020).

A word is built from its bytes by merges, each skipped with probability p. Here every token of the
vocabulary is rebuilt from its own bytes in this way, many times over, before training; during training a
token is replaced by one of these cuttings, drawn at random. For a word that is one token this is exactly
BPE dropout; for a longer word, merges across its tokens are not tried. In return the draw is a pure
function of the seed (the library's own is not), and costs almost nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from regard.data.ragged import Ragged, spread
from regard.data.tokenizers import SPECIALS, TextTokenizer

CUTTINGS = 32  # ready-made cuttings of each token


class BpeDropout:
    def __init__(self, tokenizer: TextTokenizer, probability: float, seed: int):
        merges = tokenizer.merges()
        ranks = {(left, right): (rank, joined) for rank, (left, right, joined) in enumerate(merges)}
        bytes_of: dict[int, list[int]] = {}
        for left, right, joined in merges:
            bytes_of.setdefault(joined, bytes_of.get(left, [left]) + bytes_of.get(right, [right]))
        draw = random.Random(seed).random
        cuttings = []
        for token in range(tokenizer.size):
            spelled = bytes_of.get(token, [token]) if token >= len(SPECIALS) else [token]
            cuttings += [cut(spelled, ranks, probability, draw) for _ in range(CUTTINGS)]
        lengths = np.array([len(cutting) for cutting in cuttings])
        self.lengths = lengths
        self.starts = np.cumsum(lengths) - lengths
        self.ids = np.array([piece for cutting in cuttings for piece in cutting], np.uint32)

    def apply(self, sentences: Ragged, generator: np.random.Generator) -> Ragged:
        """Every token replaced by one of its cuttings."""
        rows = sentences.ids.astype(np.int64) * CUTTINGS + generator.integers(CUTTINGS, size=len(sentences.ids))
        lengths = self.lengths[rows]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        return Ragged(self.ids[spread(self.starts[rows], lengths)], ends[sentences.offsets])


def cut(
    pieces: list[int], ranks: dict[tuple[int, int], tuple[int, int]], probability: float, draw: Callable[[], float]
) -> list[int]:
    """Merge pieces, best rank first, skipping each candidate with this probability at every turn."""
    pieces = list(pieces)
    while len(pieces) > 1:
        best = None
        for left in range(len(pieces) - 1):
            merge = ranks.get((pieces[left], pieces[left + 1]))
            if merge and (best is None or merge < best[0]) and draw() >= probability:
                best = (merge, left)
        if best is None:
            break
        (_, joined), left = best
        pieces[left : left + 2] = [joined]
    return pieces
