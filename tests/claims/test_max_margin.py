"""Max-margin solvers and the one-layer model, against computations that know nothing of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.nn import functional as F

from regard.claims.frame.max_margin import smallest_frobenius, smallest_nuclear
from regard.claims.frame.one_layer import Problems, train


def constraints(seed: int, count: int = 5, width: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, width, width))


@pytest.mark.parametrize("seed", range(5))
def test_the_frobenius_solution_is_that_of_another_solver(seed):
    a_CDD = constraints(seed)
    solution = smallest_frobenius(a_CDD)
    a_CX = a_CDD.reshape(len(a_CDD), -1)
    margins = {"type": "ineq", "fun": lambda w: a_CX @ w - 1, "jac": lambda w: a_CX}
    problem = {"jac": lambda w: 2 * w, "constraints": [margins], "method": "SLSQP", "options": {"ftol": 1e-14}}
    other = minimize(lambda w: w @ w, np.ones(9), **problem)
    assert 0 <= solution.gap + 1e-12 < 1e-9
    np.testing.assert_allclose(solution.w_DD.ravel(), other.x, atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_no_matrix_near_the_nuclear_solution_is_smaller(seed):
    a_CDD = constraints(seed)
    solution = smallest_nuclear(a_CDD)
    least = np.linalg.norm(solution.w_DD, "nuc")
    assert solution.gap < 1e-6
    assert np.einsum("cij,ij->c", a_CDD, solution.w_DD).min() >= 1 - 1e-12
    assert least <= np.linalg.norm(smallest_frobenius(a_CDD).w_DD, "nuc") + 1e-9
    generator = np.random.default_rng(seed)
    for _ in range(200):
        near = solution.w_DD + 0.1 * generator.standard_normal((3, 3))
        margin = np.einsum("cij,ij->c", a_CDD, near).min()
        assert margin <= 0 or np.linalg.norm(near / margin, "nuc") >= least * (1 - 1e-6)


def test_one_constraint_is_met_by_its_first_singular_direction():
    a_1DD = np.diag([2.0, 1.0])[None]
    np.testing.assert_allclose(smallest_nuclear(a_1DD).w_DD, [[0.5, 0], [0, 0]], atol=1e-5)
    np.testing.assert_allclose(smallest_frobenius(a_1DD).w_DD, [[0.4, 0], [0, 0.2]], atol=1e-9)


def test_constraints_that_contradict_each_other_have_no_solution():
    a_2DD = np.stack([np.eye(2), -np.eye(2)])
    assert smallest_frobenius(a_2DD).gap == smallest_nuclear(a_2DD).gap == np.inf


def test_the_gradient_in_logarithms_has_the_direction_of_the_gradient():
    problems = Problems.draw([1, 2])
    w_SDD = torch.randn(2, 10, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    gained_SN = (problems.scores(w_SDD).softmax(-1) * problems.gains_SNT).sum(-1)
    (expected_SDD,) = torch.autograd.grad(F.softplus(-gained_SN).sum(), w_SDD)
    gradient_SDD = problems.gradient(w_SDD.detach())
    for one, other in zip(gradient_SDD, expected_SDD, strict=True):
        torch.testing.assert_close(one / one.norm(), other / other.norm())


def test_the_direction_is_known_when_the_weights_have_long_become_one_and_zero():
    problems = Problems.draw([1])
    (w_SDD,) = train(problems, (50,))
    huge = problems.gradient(1e6 * w_SDD)
    assert problems.scores(1e6 * w_SDD).softmax(-1).max() == 1
    assert huge.isfinite().all() and huge.norm() > 0


def test_each_query_of_self_attention_reads_its_own_sequence():
    problems = Problems.draw_self_attention([1], 2, 3, 4)
    assert problems.x_SNTD.shape == (1, 6, 3, 4) and problems.gains_SNT.shape == (1, 6, 3)
    for query in range(6):
        torch.testing.assert_close(problems.z_SND[0, query], problems.x_SNTD[0, query, query % 3])
