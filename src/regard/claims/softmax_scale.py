"""Softmax is not scale-invariant: the larger its inputs, the more the largest takes.

    softmax(x + c) = softmax(x)           shifting changes nothing
    softmax(c x) ≠ softmax(x)             scaling does: from equal shares (c = 0) to all for the largest (c → ∞)

Which entry is largest never changes, only how much of the sum it takes.

Shapes: B vectors · T entries · F factors tried
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor

from regard.claims.frame.claim import About, Budget, Measured, Verdict, does_not_hold, holds
from regard.claims.frame.pictures import chart, line

FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
VECTORS, ENTRIES = 500, 10
MOVED, STILL, DOMINATES = 0.1, 1e-9, 0.9

ABOUT = About(
    text="Softmax is not scale-invariant: with larger inputs, the largest takes nearly all.",
    decks=("004",),
    group="attention",
    measures=f"how far softmax moves (total variation) when {ENTRIES} random inputs are multiplied by 10, or shifted "
    "by 10; and the share of the largest.",
    threshold=f"scaling moves it by more than {MOVED}, shifting by less than {STILL:g}, and at 30 times the inputs the "
    f"largest takes more than {DOMINATES}.",
    figures={
        "scaled": "how far it moves when inputs are ten times as large",
        "shifted": "how far it moves when inputs are shifted by ten",
        "largest": "share of the largest, inputs thirty times as large",
    },
)


def experiment(
    budget: Budget, seed: int, normalise: Callable[[Tensor], Tensor] | None = None
) -> Mapping[str, ArrayLike]:
    """`normalise`: another function than softmax, to compare with."""
    share = normalise or (lambda x_BT: x_BT.softmax(-1))
    generator = torch.Generator().manual_seed(seed)
    x_BT = torch.randn(VECTORS, ENTRIES, generator=generator, dtype=torch.float64)
    largest = [float(share(factor * x_BT).amax(-1).mean()) for factor in FACTORS]
    return {
        "scaled": float(moved(share(10 * x_BT), share(x_BT))),
        "shifted": float(moved(share(x_BT + 10), share(x_BT))),
        "largest": largest[-1],
        "shares": largest,
    }


def moved(p_BT: Tensor, q_BT: Tensor) -> Tensor:
    """Total variation: half the sum of the differences, on average."""
    return (p_BT - q_BT).abs().sum(-1).mean() / 2


def verdict(measured: Measured) -> Verdict:
    scaled, shifted, largest = (measured.mean(name) for name in ("scaled", "shifted", "largest"))
    told = (
        f"Ten times the inputs move it by {scaled:.2f}, a shift by {shifted:.0e}; "
        f"at thirty times, the largest takes {largest:.1%}."
    )
    return holds(told) if scaled > MOVED and shifted < STILL and largest > DOMINATES else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "inputs multiplied by", f"share of the largest of {ENTRIES}")
    line(axis, FACTORS, measured["shares"], "softmax", 0)
    axis.axhline(1 / ENTRIES, color="#666666", linestyle=":", label="equal shares")
    axis.set_xscale("log")
    axis.set_ylim(0, 1.05)
    axis.legend()
    return figure
