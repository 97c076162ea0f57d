"""Attribution: how much each input position contributes to an answer.

    integrated gradients   Σ_d (x − x⁰)_td · ∫₀¹ ∂f/∂x_td (x⁰ + α (x − x⁰)) dα      (Sundararajan et al., 2017)
    gradient × input       Σ_d (x − x⁰)_td · ∂f/∂x_td (x)
    occlusion              ln p(answer) − ln p(answer | position t emptied)
    rollout                share of t in the positions that the answer is read from, by attention

x is the input of the first block of a stack, x⁰ the same without content (the baseline), and f the logit of the answer.
Tokens that hold no input, such as a class token, <start> or [MASK], are the same in both, so gradients give them 0. All
inputs move from x⁰ to x together: for a translator, the source and the target so far. Integrated gradients are
complete: over all positions they sum to f(x) − f(x⁰), up to the error of the integral, which is measured. The integral
is a Gauss-Legendre quadrature in u with α = u⁸: where a norm reads x⁰ = 0, nearly all of the change is close to α = 0.
The number of nodes is doubled until the error is small enough.

Shapes: N nodes · B of them in a chunk · T positions · D model width · A answers · W words or classes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from regard.errors import UsageError, did_you_mean
from regard.inside.ablation import with_positions_emptied
from regard.inside.faithfulness import Faithfulness, faithfulness
from regard.inside.named import Named, Result, named
from regard.inside.parts import StackTrace
from regard.inside.rollout import rollout_of_answer
from regard.inside.sites import Edit, watching
from regard.inside.trace import Trace, input_stacks
from regard.inside.variants import rows_with_gradients

Method = Literal["integrated-gradients", "gradient-input", "occlusion", "rollout"]

FIRST_NODES, MOST_NODES = 16, 2048
LARGEST_ERROR = 0.01  # relative to f(x) − f(x⁰)
SMALLEST = 1e-6  # difference to which an error can be relative


@dataclass(frozen=True, repr=False)
class Attribution(Result):
    """The scores of all positions. `notes`, which each array has too, are further measurements."""

    trace: Trace
    method: str
    answer: int
    token: int
    stacks: dict[str, Named]  # scores of each stack that reads the input: [T]
    notes: dict[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        return self.notes

    def __getitem__(self, stack: str) -> Named:
        return self.stacks[stack]

    def faithful(self, orders: int = 10, seed: int = 0) -> Faithfulness:
        """Whether the answer depends on the positions with the highest scores, compared with random orders."""
        return faithfulness(self.trace, self.stacks, self.answer, self.token, orders, seed)


@dataclass(frozen=True)
class Question:
    """The logit to be explained."""

    trace: Trace
    answer: int
    token: int
    steps: int | None


Scores = tuple[Mapping[str, Tensor], str, dict[str, Any]]  # of each stack [T], their unit, and notes


def attribute(
    trace: Trace,
    method: Method = "integrated-gradients",
    answer: int = -1,
    token: int | str | None = None,
    steps: int | None = None,
) -> Attribution:
    """`token`: another one than the answer. `steps`: nodes of the integral; by default as many as are needed."""
    if method not in METHODS:
        raise UsageError(
            f"Unknown attribution method '{method}'.",
            f"The methods are {', '.join(METHODS)}.",
            did_you_mean(str(method), METHODS),
        )
    if steps is not None and not (isinstance(steps, int) and 1 <= steps <= MOST_NODES):
        raise UsageError(
            f"An integral cannot have {steps!r} steps.",
            f"It is a sum over 1 to {MOST_NODES:,} of them.",
            "Leave `steps` out: the number follows from the error.",
        )
    subject = trace.subject
    answer = subject.answer_index(answer)
    token = trace.token(token, answer)
    values, unit, notes = METHODS[method](Question(trace, answer, token, steps))
    notes = {"method": method, "answer": subject.answers[answer].label, "token": subject.name_of(token), **notes}
    stacks = {
        name: named("attribution", values_T, [("position", trace[name].stack.pieces)], unit, stack=name, **notes)
        for name, values_T in values.items()
    }
    return Attribution(trace, method, answer, token, stacks, notes)


# ---------------------------------------------------------------- by gradients


def integrated_gradients(question: Question) -> Scores:
    inputs = input_stacks(question.trace)
    high, low = _at_the_ends(question, inputs)
    nodes = question.steps or FIRST_NODES
    while True:
        u_N, weight_N = (torch.from_numpy(each).float() for each in np.polynomial.legendre.leggauss(nodes))
        u_N, weight_N = (u_N + 1) / 2, weight_N / 2
        alpha_N, weight_N = u_N**8, 8 * u_N**7 * weight_N
        values = _times_change(inputs, _mean_gradient(question, inputs, alpha_N, weight_N))
        notes = _completeness(values, high, low)
        if question.steps or notes["error"] <= LARGEST_ERROR or 2 * nodes > MOST_NODES:
            return values, "logit", {**notes, "nodes": nodes}
        nodes *= 2


def gradient_times_input(question: Question) -> Scores:
    inputs = input_stacks(question.trace)
    high, low = _at_the_ends(question, inputs)
    values = _times_change(inputs, _mean_gradient(question, inputs, torch.ones(1), torch.ones(1)))
    return values, "logit", _completeness(values, high, low)


def _completeness(values: Mapping[str, Tensor], high: float, low: float) -> dict[str, Any]:
    """Whether the scores of all positions sum to the whole difference; the error is relative to it."""
    total = sum(float(values_T.sum()) for values_T in values.values())
    error = abs(total - (high - low)) / max(abs(high - low), SMALLEST)
    ends = {"f": "logit", "f_x": high, "f_baseline": low, "difference": high - low}
    return {**ends, "sum": total, "error": error}


@torch.enable_grad()
def _mean_gradient(
    question: Question, inputs: list[StackTrace], alpha_N: Tensor, weight_N: Tensor
) -> dict[str, Tensor]:
    """The weighted sum of the gradients at these points between baseline and input, for each stack: [T, D]."""
    subject = question.trace.subject
    at_once = rows_with_gradients(subject)
    sums = {stack.name: torch.zeros_like(_x(stack)) for stack in inputs}
    for alpha_B, weight_B in zip(alpha_N.split(at_once), weight_N.split(at_once), strict=True):
        points = {stack.name: _between(stack, alpha_B) for stack in inputs}
        edits = {f"{name}.embedding": _replaced_by(x_BTD) for name, x_BTD in points.items()}
        with watching(subject, edits=edits):
            logits_BAW = subject.logits_with_gradient(len(alpha_B))
        f = (logits_BAW[:, question.answer, question.token] * weight_B.to(logits_BAW)).sum()
        gradients = torch.autograd.grad(f, list(points.values()))
        for name, gradient_BTD in zip(points, gradients, strict=True):
            sums[name] += gradient_BTD.sum(0)
    return sums


def _replaced_by(x_BTD: Tensor) -> Edit:
    return lambda _: x_BTD


def _between(stack: StackTrace, alpha_B: Tensor) -> Tensor:
    """Points between baseline and input, as leaves for autograd: [B, T, D]."""
    base_TD, x_TD = stack.baseline_TD, _x(stack)
    points_BTD = base_TD + alpha_B.to(x_TD)[:, None, None] * (x_TD - base_TD)
    return points_BTD.detach().requires_grad_()


def _times_change(inputs: list[StackTrace], gradient: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {stack.name: ((_x(stack) - stack.baseline_TD) * gradient[stack.name]).sum(-1) for stack in inputs}


def _x(stack: StackTrace) -> Tensor:
    return stack.layers[0].before_TD


def _at_the_ends(question: Question, inputs: list[StackTrace]) -> tuple[float, float]:
    """f(x), and f of the baseline."""
    empty = {stack.name: (_x(stack) != stack.baseline_TD).any(-1)[None] for stack in inputs}
    low = with_positions_emptied(
        question.trace, empty, lambda logits_BAW: logits_BAW[:, question.answer, question.token]
    )
    return float(question.trace.logits_AW[question.answer, question.token]), float(low)


# ---------------------------------------------------------------- other methods


def occlusion(question: Question) -> Scores:
    """Every position of every input, emptied one at a time."""
    trace = question.trace

    def log_p(logits_BAW: Tensor) -> Tensor:
        return trace.subject.log_p(logits_BAW[:, question.answer], question.answer)[:, question.token]

    inputs = input_stacks(trace)
    lengths = [len(stack.stack.pieces) for stack in inputs]
    masks = torch.eye(sum(lengths), dtype=torch.bool, device=trace.logits_AW.device).split(lengths, dim=1)
    empty = {stack.name: mask_NT for stack, mask_NT in zip(inputs, masks, strict=True)}
    before = log_p(trace.logits_AW[None])
    drop_N = before - with_positions_emptied(trace, empty, log_p)
    values = {stack.name: drop_T for stack, drop_T in zip(inputs, drop_N.split(lengths), strict=True)}
    return values, "nats", {"f": "ln p", "f_x": float(before)}


def by_rollout(question: Question) -> Scores:
    rolled = rollout_of_answer(question.trace, question.answer)
    stack = rolled.notes["stack"]
    notes = {"f": "share", "read_from": rolled.notes["read_from"], "left_out": rolled.notes["left_out"]}
    return {stack: torch.from_numpy(rolled.values)}, "share", notes


METHODS: dict[str, Callable[[Question], Scores]] = {
    "integrated-gradients": integrated_gradients,
    "gradient-input": gradient_times_input,
    "occlusion": occlusion,
    "rollout": by_rollout,
}
