"""A query that is a one-hot vector pulls out a row of a matrix.

    one_hot(i) M = row i of M                                     exactly: a product with zeros and a one
    softmax(β one_hot(i) Kᵀ) M → row i of M, with K = I            in attention: as β grows

The first line is what an embedding does, and how the Markov chain with skips finds the mask of its latest word. The
second is what is left of it when selecting must have a gradient: never exact, but as near as one likes.

Shapes: R rows · C columns
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Verdict, does_not_hold, holds
from regard.claims.frame.pictures import chart, line, number
from regard.explain.markov import EXAMPLES
from regard.layers import attention_kernel
from regard.layers.embedding import token_embedding
from regard.models.markov import Markov, split_words
from regard.settings import SequenceModel

ROWS, COLUMNS = 30, 16
SHARPNESS = (1.0, 3.0, 10.0, 20.0, 30.0)
EXACT, NEAR = 1e-12, 1e-6

ABOUT = About(
    text="A one-hot query pulls out a row of a matrix.",
    decks=("003",),
    group="attention",
    measures="the largest difference between the row and the product: of random matrices, of an embedding, of the "
    "masks of a Markov chain with skips; and through softmax attention with one-hot keys, as it is sharpened.",
    threshold=f"products differ by less than {EXACT:g}, sharpened attention by less than {NEAR:g}.",
    figures={
        "product": "largest difference of a product",
        "embedding": "largest difference from an embedding",
        "mask": "largest difference from a mask of the Markov chain",
        "attention": "largest difference through sharpened attention",
    },
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    torch.manual_seed(seed)
    queries_RR = torch.eye(ROWS, dtype=torch.float64)
    matrix_RC = torch.randn(ROWS, COLUMNS, dtype=torch.float64)
    settings = SequenceModel(width=COLUMNS, heads=1, positions="none", dropout=0, scale_embeddings=False)
    embedding = token_embedding(settings, ROWS).double()
    rows_R = torch.arange(ROWS)
    with torch.no_grad():
        embedded = (queries_RR @ embedding.table.weight - embedding(rows_R[None], rows_R[None])[0]).abs().max()
    keys_RR = torch.eye(ROWS, dtype=torch.float64)
    by_sharpness = [
        # The kernel divides by √d_k.
        (attend(sharp * ROWS**0.5 * queries_RR, keys_RR, matrix_RC) - matrix_RC).abs().max().item()
        for sharp in SHARPNESS
    ]
    return {
        "product": float((queries_RR @ matrix_RC - matrix_RC).abs().max()),
        "embedding": float(embedded),
        "mask": _mask_difference(),
        "attention": by_sharpness[-1],
        "by_sharpness": by_sharpness,
    }


def attend(q_RR: torch.Tensor, k_RR: torch.Tensor, v_RC: torch.Tensor) -> torch.Tensor:
    return attention_kernel.attend(q_RR[None, None], k_RR[None, None], v_RC[None, None])[0, 0]


def _mask_difference() -> float:
    """Of the lecture's third example: query · K against the row of K, for every latest word."""
    model = Markov.fit([split_words(sentence) for sentence in EXAMPLES[3]], "skip")
    sentence = split_words(next(iter(EXAMPLES[3])))
    largest = 0.0
    for length in range(2, len(sentence)):
        votes = model.vote_table(sentence[:length], mask=True)
        row_W = votes.masks_WW[votes.words.index(sentence[length - 1])]
        largest = max(largest, abs(votes.mask_W - row_W).max())
    return largest


def verdict(measured: Measured) -> Verdict:
    exact = max(measured[name].max() for name in ("product", "embedding", "mask"))
    near = measured["attention"].max()
    told = (
        f"Products differ by {number(exact)} at most, attention with scores of {SHARPNESS[-1]:.0f} by {number(near)}."
    )
    return holds(told) if exact < EXACT and near < NEAR else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "score of the right row", "largest difference from the row")
    line(axis, SHARPNESS, measured["by_sharpness"], "softmax attention with one-hot keys", 0, log=True)
    axis.set_xscale("log")
    axis.legend()
    return figure
