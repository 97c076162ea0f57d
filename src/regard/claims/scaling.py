"""Dividing by √d_k.

    scores = q · k        of unit-variance q and k has variance d_k
    scores / √d_k         has variance 1, however wide they are

With scores as large as √d_k, softmax gives nearly everything to one key: it is saturated, and its derivative
∂p/∂score = diag(p) − p pᵀ is nearly zero. One of the decks writes "divide by d_k" instead; that is measured, too.

The weights are read from the attention kernel itself: with the unit matrix as values, what it gives back are they. It
divides by √d_k inside, so queries are multiplied by what another rule would leave.

Shapes: T keys · Q queries · K their width · W widths tried
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Verdict, does_not_hold, holds
from regard.claims.frame.pictures import chart, line
from regard.layers import attention_kernel

WIDTHS = (4, 16, 64, 256, 1024)
KEYS, QUERIES = 64, 200
DIVISORS = {"√d_k": 0.5, "nothing": 0.0, "d_k": 1.0}  # exponents of d_k
KEPT, LOST = 0.5, 0.5

ABOUT = About(
    text="Dividing scores by √d_k keeps softmax from saturating, and its gradient alive, however wide keys are.",
    decks=("000", "001", "002", "004"),
    group="attention",
    measures=f"the size of softmax's derivative at random queries and {KEYS} random keys, at d_k = {WIDTHS[-1]} "
    f"relative to d_k = {WIDTHS[0]}; beside it the entropy of the weights.",
    threshold=f"divided by √d_k, more than {KEPT:.0%} of the derivative is left; undivided, less than {LOST:.0%}.",
    figures={
        "gradient_divided": "derivative left at d_k = 1024, divided by √d_k",
        "gradient_undivided": "derivative left at d_k = 1024, undivided",
        "entropy_divided": "entropy of the weights at d_k = 1024 as a share of the largest, divided by √d_k",
        "entropy_undivided": "entropy, undivided",
        "entropy_by_d_k": "entropy, divided by d_k",
    },
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    generator = torch.Generator().manual_seed(seed)
    gradients: dict[str, list[float]] = {name: [] for name in DIVISORS}
    entropies: dict[str, list[float]] = {name: [] for name in DIVISORS}
    for width in WIDTHS:
        q_QK = torch.randn(QUERIES, width, generator=generator, dtype=torch.float64)
        k_TK = torch.randn(KEYS, width, generator=generator, dtype=torch.float64)
        for name, exponent in DIVISORS.items():
            p_QT = weights(q_QK * width ** (0.5 - exponent), k_TK)
            derivative_QTT = torch.diag_embed(p_QT) - p_QT[:, :, None] * p_QT[:, None, :]
            gradients[name].append(float(derivative_QTT.flatten(1).norm(dim=1).mean()))
            entropies[name].append(float(torch.special.entr(p_QT).sum(1).mean()) / math.log(KEYS))
    return {
        "gradient_divided": gradients["√d_k"][-1] / gradients["√d_k"][0],
        "gradient_undivided": gradients["nothing"][-1] / gradients["nothing"][0],
        "entropy_divided": entropies["√d_k"][-1],
        "entropy_undivided": entropies["nothing"][-1],
        "entropy_by_d_k": entropies["d_k"][-1],
        "entropies": [entropies[name] for name in DIVISORS],
    }


def weights(q_QK: torch.Tensor, k_TK: torch.Tensor) -> torch.Tensor:
    """What the kernel gives each key: [Q, T]."""
    values_TT = torch.eye(len(k_TK), dtype=k_TK.dtype)
    return attention_kernel.attend(q_QK[None, None], k_TK[None, None], values_TT[None, None])[0, 0]


def verdict(measured: Measured) -> Verdict:
    kept, lost = measured.mean("gradient_divided"), measured.mean("gradient_undivided")
    told = (
        f"At d_k = {WIDTHS[-1]}, {kept:.0%} of the derivative is left when divided by √d_k, {lost:.0%} when undivided. "
        f"Divided by d_k itself, as one deck has it, weights become equal instead (entropy "
        f"{measured.mean('entropy_by_d_k'):.1%} of the largest): nothing is chosen."
    )
    return holds(told) if kept > KEPT and lost < LOST else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "width of keys, d_k", f"entropy of the weights, share of log {KEYS}")
    for number, name in enumerate(DIVISORS):
        line(axis, WIDTHS, measured["entropies"][:, number], f"scores divided by {name}", number)
    axis.set_xscale("log", base=2)
    axis.set_ylim(0, 1.05)
    axis.legend()
    return figure
