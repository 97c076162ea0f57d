"""One-layer self-attention is a hard-margin support vector machine.

As training goes on, W grows without bound, softmax picks one token of each sequence, and the direction of W becomes
that of a max-margin problem over the picked tokens:

    minimise ‖W‖_F   subject to  (x_α − x_t)ᵀ W z ≥ 1  for every other token t        α: the picked token

How to test it: train W on many random problems, look which tokens it has picked, solve their problem with a solver that
has nothing to do with training, and compare directions. The solver's duality gap says that its solution is one.

The picked token is not always the one that is worth most: gradient descent finds a good token of each sequence, not the
best. So the problem of the *picked* tokens is the one to compare with; the share of best ones is told beside it.

Shapes: S seeds · M marks, steps at which the direction is compared
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame import max_margin
from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, does_not_hold, holds
from regard.claims.frame.one_layer import MARKS, Problems, correlation, train
from regard.claims.frame.pictures import chart, line

CORRELATION, GAP = 0.99, 1e-6

ABOUT = About(
    text="Trained long enough, one layer of softmax attention is a hard-margin support vector machine: it separates "
    "the tokens it picks from all others by the widest margin.",
    decks=("000",),
    group="svm",
    measures="the correlation of the trained W with the max-margin solution for the tokens that W picks; 6 sequences "
    "of 8 tokens in 10 dimensions, 2,000 steps of normalised gradient descent in float64.",
    threshold=f"the mean correlation is above {CORRELATION}, with a solution whose duality gap is below {GAP:g}.",
    figures={
        "correlation": "correlation with the max-margin solution",
        "picked_is_best": "share of sequences whose picked token is the one worth most",
        "gap": "relative duality gap of the solver",
    },
    seeds=Seeds(tiny=3, normal=100, full=100),
)


def experiments(budget: Budget, seeds: Sequence[int]) -> Mapping[str, ArrayLike]:
    problems = Problems.draw(seeds)
    seen = train(problems)
    picked_SN = problems.picked(seen[-1])
    solutions = [max_margin.smallest_frobenius(problems.constraints(place, picked_SN)) for place in range(len(seeds))]
    curve_SM = np.array(
        [[correlation(w_SDD[place], each.w_DD) for w_SDD in seen] for place, each in enumerate(solutions)]
    )
    return {
        "correlation": curve_SM[:, -1],
        "by_step": curve_SM,
        "gap": [each.gap for each in solutions],
        "picked_is_best": (picked_SN == problems.best()).double().mean(1),
    }


def verdict(measured: Measured) -> Verdict:
    mean, worst, gap = measured.mean("correlation"), measured["correlation"].min(), measured["gap"].max()
    if gap >= GAP:
        return does_not_hold(f"The solver's gap is {gap:.1e}: there is nothing to compare with.")
    told = (
        f"The mean correlation is {mean:.4f}, the worst of {len(measured['correlation'])} seeds {worst:.3f}. The "
        f"picked token is the best one in {measured.mean('picked_is_best'):.1%} of the sequences: attention separates "
        f"the token it happened to pick, not always the right one."
    )
    return holds(told) if mean > CORRELATION else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "steps of normalised gradient descent", "correlation with the max-margin solution")
    line(axis, MARKS, measured["by_step"], "mean over seeds, with 95 % interval", 0)
    axis.plot(MARKS, measured["by_step"].min(0), color="#666666", linestyle=":", label="worst seed")
    axis.axhline(CORRELATION, color="#D55E00", linestyle="--", linewidth=1, label=f"threshold {CORRELATION}")
    axis.legend(loc="lower right")
    return figure
