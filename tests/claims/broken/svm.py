from __future__ import annotations

from broken.ways import put
from regard.claims.frame import max_margin, one_layer


def mean_of_constraints(a_CDD: max_margin.Floats) -> max_margin.Solution:
    return max_margin.Solution(a_CDD.mean(0), 0.0)


BROKEN = {
    "svm": lambda patch, module: patch.setattr(max_margin, "smallest_frobenius", mean_of_constraints),
    "svm-sequence": put("train", lambda problems: one_layer.train(problems, (10, 20, 40, 80))),
    "svm-factors": put("train_factors", lambda problems, seeds, start: one_layer.train(problems, (50, 100, 200, 400))),
}
