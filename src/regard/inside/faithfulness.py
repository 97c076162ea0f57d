"""Faithfulness: whether the positions that an attribution names are those that the answer depends on.

    deletion            p of the answer while positions are emptied, those of the highest score first: low is good
    insertion           p while they are put back into an empty input, in the same order: high is good
    area                Σ (s_i + s_i+1) / 2 · (x_i+1 − x_i)      of such a curve s₀ … sₙ, at shares x₀ = 0 … xₙ = 1
    comprehensiveness   mean of p(x) − p(x without the top k %)     k = 10, 20 … 100: high is good
    sufficiency         mean of p(x) − p(only the top k %)          low is good

A position is emptied as in ablation. Left out are positions that the answer cannot see, such as those after it, and
those that hold no input, such as a class token or <end>, unless there are no others. Long inputs are emptied in groups.
Beside all this stands what random orders give. To insert in one order is to delete in the
reverse order, read backwards, and a random order reversed is as random: so one curve of each serves both.

Shapes: U units, which are positions · N sets of them · G groups · R random orders · T positions
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from regard.errors import UsageError
from regard.inside.ablation import emptied
from regard.inside.named import Named, Together, named
from regard.inside.trace import Trace, input_stacks

MOST_GROUPS = 32
SHARES = range(10, 101, 10)  # %


@dataclass(frozen=True, repr=False)
class Faithfulness(Together):
    deletion_curve: Named  # p of the answer: [order, share], in the order of the scores, and by random orders
    insertion_curve: Named
    deletion: float  # areas
    insertion: float
    deletion_random: float  # means over the random orders
    insertion_random: float
    deletion_beats: int  # of the random orders, how many have a larger area
    insertion_beats: int  # a smaller one
    positions: int  # that can be emptied; of one alone, all orders are the same
    comprehensiveness: float
    sufficiency: float
    comprehensiveness_random: float
    sufficiency_random: float


Unit = tuple[str, int]  # a position of a stack


def faithfulness(
    trace: Trace,
    scores: Mapping[str, Named | ArrayLike],
    answer: int = -1,
    token: int | None = None,
    orders: int = 10,
    seed: int = 0,
) -> Faithfulness:
    """`scores`: of each stack, [T]; the curves are of the probability of the answer, or of another token there."""
    if orders < 1:
        raise UsageError("At least one random order is needed as a baseline.", f"orders is {orders}.", "Use 1 or more.")
    answer = trace.subject.place(answer)
    token = trace.token(token, answer)
    units = seen_by(trace, answer, scores)
    score_U = np.array([np.asarray(scores[stack], dtype=np.float64)[position] for stack, position in units])
    best_first = np.argsort(-score_U, kind="stable")
    generator = np.random.default_rng(seed)
    by_order = [best_first, *(generator.permutation(len(units)) for _ in range(orders))]

    groups = min(len(units), MOST_GROUPS)
    removed = [group * len(units) // groups for group in range(groups + 1)]
    tops = [-(-share * len(units) // 100) for share in SHARES]  # rounded up
    # Sets to be emptied, each once: the ends of all curves, for instance, are the same.
    rows: dict[frozenset[int], int] = {}

    def without(order: NDArray[np.int64]) -> int:
        return rows.setdefault(frozenset(order.tolist()), len(rows))

    deleted = [[without(order[:count]) for count in removed] for order in by_order]
    inserted = [without(best_first[len(units) - count :]) for count in reversed(removed)]
    without_top = [[without(order[:top]) for top in tops] for order in by_order]
    only_top = [[without(order[top:]) for top in tops] for order in by_order]
    p_N = _remembered(trace, [frozenset(units[u] for u in empty) for empty in rows], answer, token)

    deletion, insertion = p_N[deleted], np.stack([p_N[inserted], *p_N[deleted[1:]][:, ::-1]])
    removed_shares = np.array(removed) / len(units)
    deletion_areas, insertion_areas = areas(deletion, removed_shares), areas(insertion, 1 - removed_shares[::-1])
    whole = p_N[without(best_first[:0])]
    comprehensiveness, sufficiency = (whole - p_N[sets].mean(1) for sets in (without_top, only_top))
    said = {"answer": trace.subject.answers[answer].label, "token": trace.subject.name_of(token), "seed": seed}
    return Faithfulness(
        _curve("deletion", deletion, removed_shares, said),
        _curve("insertion", insertion, 1 - removed_shares[::-1], said),
        float(deletion_areas[0]),
        float(insertion_areas[0]),
        float(deletion_areas[1:].mean()),
        float(insertion_areas[1:].mean()),
        int((deletion_areas[1:] > deletion_areas[0]).sum()),
        int((insertion_areas[1:] < insertion_areas[0]).sum()),
        len(units),
        float(comprehensiveness[0]),
        float(sufficiency[0]),
        float(comprehensiveness[1:].mean()),
        float(sufficiency[1:].mean()),
    )


# Of every trace: p of a token with a set of positions emptied. Random orders are the same whatever the scores are.
_KNOWN: WeakKeyDictionary[Trace, dict[tuple[int, int, frozenset[Unit]], float]] = WeakKeyDictionary()


def _remembered(trace: Trace, empty: Sequence[frozenset[Unit]], answer: int, token: int) -> NDArray[np.float64]:
    """The same as `probabilities`, each computed once."""
    known = _KNOWN.setdefault(trace, {})
    new = [units for units in empty if (answer, token, units) not in known]
    if new:
        p_N = probabilities(trace, [sorted(units) for units in new], answer, token)
        known.update({(answer, token, units): float(p) for units, p in zip(new, p_N, strict=True)})
    return np.array([known[answer, token, units] for units in empty])


def areas(curves: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Under each of these, [..., n + 1]. Where positions are emptied in groups, shares are not quite even."""
    return np.asarray(np.trapezoid(curves, shares), dtype=np.float64)


def seen_by(trace: Trace, answer: int, stacks: Mapping[str, object] | None = None) -> list[Unit]:
    """The positions of the input that can speak for an answer, of these stacks or of all."""
    last = trace.subject.answers[answer].position
    units: list[Unit] = []
    fixed: list[Unit] = []
    for stack in input_stacks(trace):
        if stacks is None or stack.name in stacks:
            length = len(stack.stack.pieces)
            length = last + 1 if stack.causal and last is not None and stack is trace.last else length
            for position in range(length):
                (fixed if position in stack.stack.fixed else units).append((stack.name, position))
    return units or fixed


def probabilities(trace: Trace, empty: Sequence[Sequence[Unit]], answer: int, token: int) -> NDArray[np.float64]:
    """p of a token with each of these sets emptied: [N]."""
    masks: dict[str, Tensor] = {}
    for row, units in enumerate(empty):
        for stack, position in units:
            if stack not in masks:
                masks[stack] = torch.zeros(len(empty), len(trace[stack].stack.pieces), dtype=torch.bool)
            masks[stack][row, position] = True
    p_N = emptied(
        trace,
        {stack: mask_NT.to(trace.logits_AW.device) for stack, mask_NT in masks.items()},
        lambda logits_BAW: trace.subject.log_p(logits_BAW[:, answer], answer).exp()[:, token],
    )
    return p_N.double().cpu().numpy()


def _curve(name: str, curves: NDArray[np.float64], shares: NDArray[np.float64], notes: dict[str, Any]) -> Named:
    orders = ["by score", *(f"random {number + 1}" for number in range(len(curves) - 1))]
    at = [f"{100 * share:.0f} %" for share in shares]
    what = "emptied" if name == "deletion" else "present"
    return named(f"probability of the answer, {name}", curves, [("order", orders), (what, at)], **notes)
