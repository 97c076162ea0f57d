"""One update in several pieces: the gradients of the micro-batches, added, whoever computed them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.training.graph import Backward
from regard.training.optimizer import Optimizer
from regard.training.processes import Processes, Reduce
from regard.training.tree import TreeSum, tree_sum


@dataclass(frozen=True)
class Division:
    """Who computes the micro-batches of an update, and how their gradients are added."""

    processes: Processes
    reduce: Reduce
    sharded: bool  # gradients are added over the processes while they are computed, and each keeps its rows of them

    def mine(self, pieces: int) -> range:
        return self.processes.share(pieces, in_turn=self.sharded)

    def held(self, pieces: int) -> int:
        """Gradients of the whole model that are held at once, at most, besides the one that is computed."""
        return len(self.mine(pieces)).bit_length() if self.reduce == "exact" and pieces > 1 else 0


def add_pieces(
    pieces: Sequence[Any],
    targets: int,
    backward: Backward,
    optimizer: Optimizer,
    seed: Callable[[int], None],
    division: Division,
    asked_to_stop: bool = False,
) -> tuple[Tensor, bool]:
    """Leaves the gradient of the whole batch in the weights; returns its mean loss.

    `seed(n)` is called before the n-th micro-batch, by whichever process has it. Second: whether any process was asked
    to stop, so that all stop after the same step.
    """
    processes, exact = division.processes, division.reduce == "exact"
    tree, there = TreeSum(), [False] * len(optimizer.parameters)
    losses_N = torch.zeros(len(pieces), device=backward.hardware.device)
    mine = division.mine(len(pieces))
    for index in mine:
        seed(index)
        losses_N[index] = backward(pieces[index], targets)
        if exact or index == mine[-1]:  # else gradients add themselves to what is there
            gradients, these = optimizer.take_gradients(backward.captured)
            there = [one or other for one, other in zip(there, these, strict=True)]
            tree.add(gradients)
    stop, gradients = False, tree.total()
    if processes.count > 1:
        flags_W = torch.tensor([asked_to_stop, *there], dtype=torch.float32, device=losses_N.device)
        # To a loss, the other processes add 0.
        own = [flags_W, losses_N] if division.sharded else [flags_W, losses_N, *gradients]
        flags_W, losses_N, *added = processes.add(own, division.reduce)
        stop, *there = (flags_W > 0).tolist()
        gradients = gradients if division.sharded else added
    optimizer.put_gradients(gradients, there)
    return tree_sum(losses_N), stop
