"""Sine positions: every offset is one fixed matrix.

    PE(p + k) = M_k PE(p)  for every p        M_k: for each frequency ω a rotation by the angle ω k

    (sin ω(p + k))   ( cos ωk   sin ωk) (sin ωp)
    (cos ω(p + k)) = (−sin ωk   cos ωk) (cos ωp)

So a layer that learns M_k can look k places back from anywhere. The matrices are written down from the frequencies
alone and tried on many positions and offsets, also negative ones. A table of random vectors, which is what learned
positions start from, is the control: the best matrix for it is fitted by least squares to half of the positions and
tried on the other half.

Shapes: P positions · D width · O offsets
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor

from regard.claims.frame.claim import About, Budget, Measured, Verdict, does_not_hold, holds
from regard.claims.frame.pictures import chart, line, number
from regard.layers import positions
from regard.settings import SequenceModel

WIDTH = 64
EXACT, FAR = 1e-9, 0.5

ABOUT = About(
    text="For every offset k there is one matrix that takes the sine code of any position p to that of p + k.",
    decks=("002",),
    group="positions",
    measures=f"the largest |PE(p + k) − M_k PE(p)| over positions up to 2,000 and offsets up to 500, at width {WIDTH}, "
    "in float64; for random codes, the error of the best matrix on positions that it was not fitted to.",
    threshold=f"below {EXACT:g} for sine codes; above {FAR} of their size for random codes.",
    figures={
        "sine": "largest error of sine codes, over all offsets that are tried",
        "random": "error of random codes, relative to their size",
    },
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    furthest, last = budget.choose(tiny=20, normal=500), budget.choose(tiny=200, normal=2000)
    offsets = np.unique(np.linspace(-furthest, furthest, budget.choose(tiny=9, normal=101)).round())
    settings = SequenceModel(width=WIDTH, heads=1, positions="sinusoidal")
    code = positions.Sinusoidal(settings).code
    positions_P = torch.arange(furthest, last, dtype=torch.float64)
    errors = [
        float((code(positions_P + offset) - code(positions_P) @ rotation(float(offset), WIDTH).T).abs().max())
        for offset in offsets
    ]
    generator = torch.Generator().manual_seed(seed)
    random_PD = torch.randn(last, WIDTH, generator=generator, dtype=torch.float64)
    return {"sine": max(errors), "random": unseen_error(random_PD, 1), "by_offset": errors, "offsets": offsets}


def rotation(offset: float, width: int) -> Tensor:
    """M_k: [D, D], a block of two for each frequency."""
    angles = offset * positions.frequencies(width).double()
    blocks = [
        torch.tensor([[c, s], [-s, c]], dtype=torch.float64)
        for c, s in zip(angles.cos().tolist(), angles.sin().tolist(), strict=True)
    ]
    return torch.block_diag(*blocks)


def unseen_error(codes_PD: Tensor, offset: int) -> float:
    """Of the matrix that fits one half of the positions best, on the other half; relative."""
    before_PD, after_PD = codes_PD[:-offset], codes_PD[offset:]
    half = len(before_PD) // 2
    matrix_DD = torch.linalg.lstsq(before_PD[:half], after_PD[:half]).solution
    error_PD = before_PD[half:] @ matrix_DD - after_PD[half:]
    return float(error_PD.norm() / after_PD[half:].norm())


def verdict(measured: Measured) -> Verdict:
    sine, random = measured["sine"].max(), measured.mean("random")
    told = f"No offset errs by more than {number(sine)}. For random codes the best matrix is wrong by {random:.0%}."
    return holds(told) if sine < EXACT and random > FAR else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "offset k", "largest |PE(p + k) − M_k PE(p)| over positions")
    line(axis, measured["offsets"][0], measured["by_offset"], "sine codes", 0)
    axis.axhline(EXACT, color="#D55E00", linestyle="--", linewidth=1, label=f"threshold {EXACT:g}")
    axis.set_yscale("symlog", linthresh=1e-14)
    axis.set_ylim(0, 1e-7)
    axis.legend()
    return figure
