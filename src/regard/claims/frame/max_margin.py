"""Max-margin problems: the smallest matrix that keeps every chosen token ahead of the others by one.

    minimise ‖W‖      subject to  ⟨A_c, W⟩ ≥ 1 for every constraint c,      A_c = (x_α − x_t) zᵀ

in one of two norms, each with a dual problem whose solution proves the other's:

    Frobenius    ½ ‖W‖²_F ≥ Σ λ − ½ ‖Σ λ_c A_c‖²_F          for any λ ≥ 0        W = Σ λ_c A_c at the optimum
    nuclear      ‖W‖_*    ≥ Σ λ / ‖Σ λ_c A_c‖₂              for any λ ≥ 0        ‖ ‖₂: the largest singular value

A `Solution` has a W that meets all constraints exactly and the gap between both sides, relative to the left one: no
other matrix can be better by more than that. So a solution need not be believed, and the solver need not either.

The first is solved by non-negative least squares (scipy's `nnls`) in the least-distance form of Lawson and Hanson. The
second by the alternating direction method of multipliers: a step that shrinks singular values, a step that projects
onto the constraints, which is again a problem of the first kind, and their difference accumulated.

Shapes: C constraints · D width, of which W has D × D and A_c as well
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Solution:
    w_DD: Floats
    gap: float  # relative: (primal − dual) / primal; infinite where no matrix meets the constraints


def smallest_frobenius(a_CDD: Floats) -> Solution:
    """The max-margin matrix in the Frobenius norm: a support vector machine."""
    constraints, width, _ = a_CDD.shape
    a_CX = a_CDD.reshape(constraints, -1)
    lambda_C = _multipliers(a_CX, np.ones(constraints))
    if lambda_C is None:
        return Solution(np.zeros((width, width)), np.inf)
    w_X = lambda_C @ a_CX
    least = (a_CX @ w_X).min()
    if least <= 0:
        return Solution(np.zeros((width, width)), np.inf)
    dual = lambda_C.sum() - 0.5 * w_X @ w_X
    w_X = w_X / least
    primal = 0.5 * w_X @ w_X
    return Solution(w_X.reshape(width, width), float((primal - dual) / primal))


def smallest_nuclear(a_CDD: Floats, accuracy: float = 1e-7, most: int = 2000) -> Solution:
    """The max-margin matrix in the nuclear norm, the sum of its singular values: W is of low rank."""
    constraints, width, _ = a_CDD.shape
    a_CX = a_CDD.reshape(constraints, -1)
    start = smallest_frobenius(a_CDD)
    best = Solution(start.w_DD, np.inf)
    if not np.isfinite(start.gap):
        return best
    low_DD, sum_DD = start.w_DD, np.zeros((width, width))
    strength = width / np.linalg.norm(start.w_DD, "nuc")  # of the tie between both steps
    for _ in range(most):
        near_DD = low_DD - sum_DD
        lambda_C = _multipliers(a_CX, 1 - a_CX @ near_DD.ravel())
        if lambda_C is None:
            break
        sum_DD = (lambda_C @ a_CX).reshape(width, width)
        w_DD = near_DD + sum_DD
        least, largest = (a_CX @ w_DD.ravel()).min(), np.linalg.norm(sum_DD, 2)
        if least > 0 and largest > 0:
            primal, dual = np.linalg.norm(w_DD / least, "nuc"), lambda_C.sum() / largest
            gap = float((primal - dual) / primal)
            if gap < best.gap:
                best = Solution(w_DD / least, gap)
            if gap < accuracy:
                break
        left, sizes, right = np.linalg.svd(w_DD + sum_DD)
        low_DD = (left * np.maximum(sizes - 1 / strength, 0)) @ right
    return best


def _multipliers(a_CX: Floats, b_C: Floats) -> Floats | None:
    """λ ≥ 0 for which λ A is the smallest vector w with A w ≥ b; None if there is none."""
    from scipy.optimize import nnls

    if (b_C <= 0).all():
        return np.zeros(len(b_C))
    # Least distance: minimise ‖[Aᵀ; bᵀ] u − [0; 1]‖ over u ≥ 0, with residual r; then λ = −u / r_last.
    target: Any = np.zeros(a_CX.shape[1] + 1)
    target[-1] = 1
    u_C, _ = nnls(np.vstack([a_CX.T, b_C]), target)
    last = b_C @ u_C - 1
    if last > -1e-12:
        return None
    # The equations of the constraints that are active, solved once more: nnls itself stops at a few digits less.
    active = u_C > 0
    gram = a_CX[active] @ a_CX[active].T
    lambda_C = np.zeros(len(b_C))
    lambda_C[active] = np.linalg.lstsq(gram, b_C[active], rcond=None)[0]
    return lambda_C if (lambda_C >= 0).all() else -u_C / last
