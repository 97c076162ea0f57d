"""The same for sequences to sequences: every token is a query, and one W must serve all of them.

    minimise ‖W‖_F   subject to  (x_α(k) − x_t)ᵀ W x_k ≥ 1  for every query k of every sequence, every t ≠ α(k)

This is self-attention as it is used: T queries a sequence instead of one, each with a label of its own. `svm.py` says
how the comparison works.

Shapes: S seeds · M marks
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
SEQUENCES, TOKENS, WIDTH = 3, 4, 12

ABOUT = About(
    text="Self-attention with a query for every token is a support vector machine, too.",
    decks=("000",),
    group="svm",
    measures=f"the correlation of the trained W with the max-margin solution over all queries; {SEQUENCES} sequences "
    f"of {TOKENS} tokens, each token a query, in {WIDTH} dimensions.",
    threshold=f"the mean correlation is above {CORRELATION}, with a solution whose duality gap is below {GAP:g}.",
    figures={
        "correlation": "correlation with the max-margin solution",
        "picked_is_best": "share of queries whose picked token is the one worth most",
        "gap": "relative duality gap of the solver",
    },
    seeds=Seeds(tiny=3, normal=50, full=100),
)


def experiments(budget: Budget, seeds: Sequence[int]) -> Mapping[str, ArrayLike]:
    problems = Problems.draw_self_attention(seeds, SEQUENCES, TOKENS, WIDTH)
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
    mean, gap = measured.mean("correlation"), measured["gap"].max()
    if gap >= GAP:
        return does_not_hold(f"The solver's gap is {gap:.1e}: there is nothing to compare with.")
    told = f"The mean correlation is {mean:.4f}; the worst seed has {measured['correlation'].min():.3f}."
    return holds(told) if mean > CORRELATION else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "steps of normalised gradient descent", "correlation with the max-margin solution")
    line(axis, MARKS, measured["by_step"], "mean over seeds, with 95 % interval", 0)
    axis.axhline(CORRELATION, color="#D55E00", linestyle="--", linewidth=1, label=f"threshold {CORRELATION}")
    axis.legend(loc="lower right")
    return figure
