"""Faithfulness: whether the answer really depends on the positions with the highest scores.

    deletion            area under p(answer) while positions are emptied, highest score first: lower is better
    insertion           area under p(answer) while they are restored, in the same order: higher is better
    area                Σ (s_i + s_i+1) / 2 · (x_i+1 − x_i)         of a curve s₀ … sₙ at shares x₀ = 0 … xₙ = 1
    comprehensiveness   mean of p(x) − p(x without the top k %)     k = 10, 20 … 100: higher is better
    sufficiency         mean of p(x) − p(only the top k %)          lower is better

A position is emptied as in ablation. Excluded are positions that the answer cannot see, such as later ones, and those
that hold no input, such as a class token or <end>, unless there are no others. Long inputs are emptied in groups. All
measures are compared with random orders. Inserting in an order is deleting in the reverse order, read backwards, and
the reverse of a random order is just as random: so one curve of each random order serves both.

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
from regard.inside.ablation import with_positions_emptied
from regard.inside.named import Named, Result, named
from regard.inside.trace import Trace, input_stacks

MOST_GROUPS = 32
SHARES = range(10, 101, 10)  # %


@dataclass(frozen=True, repr=False)
class Faithfulness(Result):
    deletion_curve: Named  # p of the answer: [order, share]; the first order is by score, the others are random
    insertion_curve: Named
    deletion: float  # area
    insertion: float
    deletion_random: float  # mean area of the random orders
    insertion_random: float
    deletion_beats: int  # number of random orders with a larger area
    insertion_beats: int  # number of random orders with a smaller area
    positions: int  # that can be emptied; if only one, all orders are the same
    comprehensiveness: float
    sufficiency: float
    comprehensiveness_random: float
    sufficiency_random: float

    @property
    def orders(self) -> int:
        """The number of random orders."""
        return len(self.deletion_curve.values) - 1

    @property
    def verdict(self) -> str:
        """In a sentence. By chance alone, scores beat all ten random orders one time in eleven."""
        if self.positions < 2:
            return "Only one position can be emptied, so all orders are the same and nothing is measured."
        ranks = f"better than {self.deletion_beats} of {self.orders} random orders by deletion, "
        ranks += f"{self.insertion_beats} of {self.orders} by insertion"
        beaten = [beats == self.orders for beats in (self.deletion_beats, self.insertion_beats)]
        if all(beaten):
            return f"The scores are {ranks}."
        if any(beaten):
            return f"The scores beat every random order by one measure only: {ranks}."
        return f"The scores are not clearly better than chance ({ranks}): do not rely on them."


Unit = tuple[str, int]  # a position of a stack


def faithfulness(
    trace: Trace,
    scores: Mapping[str, Named | ArrayLike],
    answer: int = -1,
    token: int | None = None,
    orders: int = 10,
    seed: int = 0,
) -> Faithfulness:
    """`scores`: of each stack, [T]. `token`: another one than the answer, whose probability is measured."""
    if orders < 1:
        raise UsageError("At least one random order is needed as a baseline.", f"orders is {orders}.", "Use 1 or more.")
    answer = trace.subject.answer_index(answer)
    token = trace.token(token, answer)
    units = visible_units(trace, answer, scores)
    score_U = np.array([np.asarray(scores[stack], dtype=np.float64)[position] for stack, position in units])
    best_first = np.argsort(-score_U, kind="stable")
    generator = np.random.default_rng(seed)
    all_orders = [best_first, *(generator.permutation(len(units)) for _ in range(orders))]

    groups = min(len(units), MOST_GROUPS)
    removed = [group * len(units) // groups for group in range(groups + 1)]
    tops = [-(-share * len(units) // 100) for share in SHARES]  # rounded up
    # Each set of emptied units is one row, however often it occurs: the ends of all curves, for instance, are the same.
    rows: dict[frozenset[int], int] = {}

    def without(emptied: NDArray[np.int64]) -> int:
        return rows.setdefault(frozenset(emptied.tolist()), len(rows))

    deleted = [[without(order[:count]) for count in removed] for order in all_orders]
    inserted = [without(best_first[len(units) - count :]) for count in reversed(removed)]
    without_top = [[without(order[:top]) for top in tops] for order in all_orders]
    only_top = [[without(order[top:]) for top in tops] for order in all_orders]
    p_N = _cached_probabilities(trace, [frozenset(units[u] for u in emptied) for emptied in rows], answer, token)

    deletion, insertion = p_N[deleted], np.stack([p_N[inserted], *p_N[deleted[1:]][:, ::-1]])
    removed_shares = np.array(removed) / len(units)
    deletion_areas, insertion_areas = areas(deletion, removed_shares), areas(insertion, 1 - removed_shares[::-1])
    p_whole = p_N[without(best_first[:0])]
    comprehensiveness, sufficiency = (p_whole - p_N[sets].mean(1) for sets in (without_top, only_top))
    notes = {"answer": trace.subject.answers[answer].label, "token": trace.subject.name_of(token), "seed": seed}
    return Faithfulness(
        _curve("deletion", deletion, removed_shares, notes),
        _curve("insertion", insertion, 1 - removed_shares[::-1], notes),
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


# For each trace: p of a token with a set of positions emptied. Random orders do not depend on the scores, so their rows
# are the same for all methods.
_CACHE: WeakKeyDictionary[Trace, dict[tuple[int, int, frozenset[Unit]], float]] = WeakKeyDictionary()


def _cached_probabilities(
    trace: Trace, empty: Sequence[frozenset[Unit]], answer: int, token: int
) -> NDArray[np.float64]:
    cache = _CACHE.setdefault(trace, {})
    new = [units for units in empty if (answer, token, units) not in cache]
    if new:
        p_N = probabilities(trace, [sorted(units) for units in new], answer, token)
        cache.update({(answer, token, units): float(p) for units, p in zip(new, p_N, strict=True)})
    return np.array([cache[answer, token, units] for units in empty])


def areas(curves: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The area under each curve: [..., n + 1] → [...]. Groups of positions differ in size, so shares are uneven."""
    return np.asarray(np.trapezoid(curves, shares), dtype=np.float64)


def visible_units(trace: Trace, answer: int, stacks: Mapping[str, object] | None = None) -> list[Unit]:
    """The input positions that an answer can depend on, of the given stacks or of all."""
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
    """p of a token with each of these sets of positions emptied: [N]."""
    masks: dict[str, Tensor] = {}
    for row, units in enumerate(empty):
        for stack, position in units:
            if stack not in masks:
                masks[stack] = torch.zeros(len(empty), len(trace[stack].stack.pieces), dtype=torch.bool)
            masks[stack][row, position] = True
    p_N = with_positions_emptied(
        trace,
        {stack: mask_NT.to(trace.logits_AW.device) for stack, mask_NT in masks.items()},
        lambda logits_BAW: trace.subject.log_p(logits_BAW[:, answer], answer).exp()[:, token],
    )
    return p_N.double().cpu().numpy()


def _curve(name: str, curves: NDArray[np.float64], shares: NDArray[np.float64], notes: dict[str, Any]) -> Named:
    orders = ["by score", *(f"random {number + 1}" for number in range(len(curves) - 1))]
    percentages = [f"{100 * share:.0f} %" for share in shares]
    axis = "emptied" if name == "deletion" else "present"
    return named(f"probability of the answer, {name}", curves, [("order", orders), (axis, percentages)], **notes)
