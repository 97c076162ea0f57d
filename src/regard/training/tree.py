"""Sums that do not depend on who adds: along a fixed tree of pairs.

    g₀ + g₁     g₂ + g₃     g₄ + g₅     g₆ + g₇
         └────┬────┘             └────┬────┘
              └──────────┬────────────┘

Floating-point addition is not associative: a running sum has other last bits than two halves that are added. A tree
has the same ones whether one process adds all of it, or two a half each, or four a quarter, and then the upper part.
That takes a number of terms, and of processes, that is a power of two.

Each term is a list of tensors, added one by one.
"""

from __future__ import annotations

import torch
from torch import Tensor


class TreeSum:
    """`add` the terms in their order; the `total` is that of the tree. Holds one term for each level at most."""

    def __init__(self) -> None:
        self.levels: list[list[Tensor] | None] = []  # at level n the sum of 2ⁿ terms that waits for its neighbour

    def add(self, term: list[Tensor]) -> None:
        """The tensors are taken over, and changed."""
        for level, earlier in enumerate(self.levels):
            if earlier is None:
                self.levels[level] = term
                return
            term, self.levels[level] = _added(earlier, term), None
        self.levels.append(term)

    def total(self) -> list[Tensor]:
        sums = [each for each in self.levels if each is not None]
        total = sums[0]
        for earlier in sums[1:]:  # several only where the number of terms is not a power of two
            total = _added(earlier, total)
        return total


def tree_sum(terms_NX: Tensor) -> Tensor:
    """Of the rows of a matrix."""
    tree = TreeSum()
    for term_X in terms_NX.clone().unbind():
        tree.add([term_X])
    return tree.total()[0]


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _added(one: list[Tensor], other: list[Tensor]) -> list[Tensor]:
    torch._foreach_add_(one, other)
    return one
