"""Attention is a soft dictionary: a query that equals a key returns that key's value, as scores sharpen.

    Attention(β k_j, K, V) → v_j as β → ∞         if k_j · k_j is larger than k_j · k_i for every other key

That condition is silent in the sentence. Scores are products, not distances: a longer key in nearly the same direction
has a larger product with k_j than k_j itself. For keys of equal length it cannot happen; for keys of random length it
does, the more often the fewer dimensions there are. Both are measured: the share of entries that can be looked up.

How sharp is sharp enough depends on how near keys are. In a first trial, with scores of 10⁴ instead of 10⁷, 98 % of the
keys of equal length were found in two dimensions, where neighbours are a few thousandths of a turn apart.

Shapes: E entries · K width of keys · V width of values
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional as F

from regard.claims.frame.claim import About, Budget, Measured, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import chart, line
from regard.layers import attention_kernel

ENTRIES, WIDTHS, VALUES = 32, (2, 4, 8, 16, 32, 64), 16
SHARPNESS = (1.0, 1e7)  # the second: very sharp
FOUND = 0.99  # of the entries

ABOUT = About(
    text="Attention is a soft dictionary: where a query equals a key, the key's value comes back as scores sharpen.",
    decks=("000", "002", "003"),
    group="attention",
    measures=f"the share of {ENTRIES} entries whose value comes back when their key is the query and scores are very "
    "sharp; for keys of equal length, and for keys of random length, in 2 to 64 dimensions.",
    threshold=f"at least {FOUND:.0%} of the entries come back in every dimension, for both kinds of keys.",
    figures={
        "found_equal": "share of entries found, keys of equal length, worst width",
        "found_random": "share of entries found, keys of random length in 2 dimensions",
        "found_random_wide": "share of entries found, keys of random length in 64 dimensions",
        "blurred": "distance from the right value when scores are not sharpened, relative to its length",
    },
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    generator = torch.Generator().manual_seed(seed)
    equal, random = [], []
    for width in WIDTHS:
        keys_EK = torch.randn(ENTRIES, width, generator=generator, dtype=torch.float64)
        values_EV = torch.randn(ENTRIES, VALUES, generator=generator, dtype=torch.float64)
        random.append(found(look_up(keys_EK, values_EV, SHARPNESS[-1]), values_EV))
        keys_EK = F.normalize(keys_EK, dim=-1)
        equal.append(found(look_up(keys_EK, values_EV, SHARPNESS[-1]), values_EV))
        distance_E = (look_up(keys_EK, values_EV, SHARPNESS[0]) - values_EV).norm(dim=1) / values_EV.norm(dim=1)
    return {
        "found_equal": min(equal),
        "found_random": random[0],
        "found_random_wide": random[-1],
        "blurred": float(distance_E.mean()),
        "by_width": [equal, random],
    }


def look_up(keys_EK: Tensor, values_EV: Tensor, sharpness: float) -> Tensor:
    """What comes back for every key as a query: [E, V]."""
    q_EK = sharpness * keys_EK
    return attention_kernel.attend(q_EK[None, None], keys_EK[None, None], values_EV[None, None])[0, 0]


def found(returned_EV: Tensor, values_EV: Tensor) -> float:
    """The share of entries that are nearest to their own value."""
    return float((torch.cdist(returned_EV, values_EV).argmin(1) == torch.arange(len(values_EV))).double().mean())


def verdict(measured: Measured) -> Verdict:
    equal, random, wide = (measured.mean(name) for name in ("found_equal", "found_random", "found_random_wide"))
    told = (
        f"Keys of equal length give back {equal:.0%} of their values. Of keys of random length, {random:.0%} in 2 "
        f"dimensions and {wide:.0%} in 64: a longer key in the same direction answers for a shorter one."
    )
    if equal < FOUND:
        return does_not_hold(told)
    return holds(told) if random >= FOUND else depends("the length of the keys", told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "width of keys", "share of entries whose value comes back")
    for number, name in enumerate(("keys of equal length", "keys of random length")):
        line(axis, WIDTHS, measured["by_width"][:, number], name, number)
    axis.set_xscale("log", base=2)
    axis.set_ylim(0, 1.05)
    axis.legend(loc="lower right")
    return figure
