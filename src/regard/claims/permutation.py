"""Without positions, self-attention does not know order.

    f(P X) = P f(X)            equivariant: shuffled words give the same vectors, shuffled

Invariant, as one deck has it, is only what is pooled from them. Two things bring order back: position codes, and,
silently, a causal mask: a word that sees only what stands before it knows how much that is. So a decoder without
positions is not blind to order.

Shapes: B rows · T words · D model width
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import bars, chart
from regard.layers.embedding import token_embedding
from regard.models.initialise import initialise
from regard.models.trunk import Trunk
from regard.settings import SequenceModel

NOTHING, SOMETHING = 1e-9, 1e-2
WORDS, LENGTH, ROWS = 50, 20, 8
NO_POSITIONS = "none"

ABOUT = About(
    text="Without position codes, self-attention is blind to the order of words.",
    decks=("003", "004"),
    group="attention",
    measures="how far the vectors of shuffled words are from the shuffled vectors of the words, relative to their "
    "size: an encoder of two blocks without positions, with sine positions, and without positions but "
    "with a causal mask.",
    threshold=f"the distance is below {NOTHING:g} without positions, with and without a causal mask, and above "
    f"{SOMETHING} with them.",
    figures={
        "encoder": "distance, no positions",
        "positions": "distance, sine positions",
        "causal": "distance, no positions, causal mask",
    },
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    return {
        "encoder": distance(NO_POSITIONS, causal=False, seed=seed),
        "positions": distance("sinusoidal", causal=False, seed=seed),
        "causal": distance(NO_POSITIONS, causal=True, seed=seed),
    }


@torch.no_grad()
def distance(positions: str, causal: bool, seed: int) -> float:
    """‖f(P X) − P f(X)‖ / ‖f(X)‖."""
    torch.manual_seed(seed)
    settings = SequenceModel(layers=2, width=32, heads=4, feedforward=64, dropout=0, positions=positions)
    model = Trunk(settings, token_embedding(settings, WORDS), causal)
    initialise(model, settings, depth=settings.layers)
    model.double().eval()
    words_BT = torch.randint(WORDS, (ROWS, LENGTH))
    order_T = torch.randperm(LENGTH)
    shuffled_BTD, vectors_BTD = model(words_BT[:, order_T]), model(words_BT)[:, order_T]
    return float((shuffled_BTD - vectors_BTD).norm() / vectors_BTD.norm())


def verdict(measured: Measured) -> Verdict:
    encoder, positions, causal = (measured.mean(name) for name in ABOUT.figures)
    told = (
        f"In an encoder without positions shuffling changes nothing ({encoder:.0e}); with sine positions the vectors "
        f"move by {positions:.0%}. A causal mask alone makes them move by {causal:.0%}: a decoder sees order without "
        f"positions."
    )
    if encoder > NOTHING or positions < SOMETHING:
        return does_not_hold(told)
    return holds(told) if causal < NOTHING else depends("the mask", told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, y="how far shuffling moves the vectors, share of their size")
    names = ["no positions", "sine positions", "no positions,\ncausal mask"]
    bars(axis, names, [measured[name] for name in ABOUT.figures])
    return figure
