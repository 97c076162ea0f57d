"""One update in several pieces: the gradients of the micro-batches, added, whoever computed them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.training.graph import Backward
from regard.training.optimizer import Optimizer
from regard.training.processes import Processes, Reduce
from regard.training.tree import TreeSum


def add_pieces(
    pieces: Sequence[Any],
    targets: int,
    backward: Backward,
    optimizer: Optimizer,
    seed: Callable[[int], None],
    processes: Processes,
    reduce: Reduce,
    asked_to_stop: bool = False,
) -> tuple[Tensor, bool]:
    """Leaves the gradient of the whole batch in the weights; returns its mean loss.

    `seed(n)` is called before the n-th micro-batch, by whichever process has it. Second: whether any process was asked
    to stop, so that all stop after the same step.
    """
    tree, device = TreeSum(), backward.hardware.device
    total_1, there = torch.zeros(1, device=device), [False] * len(optimizer.parameters)
    mine = processes.share(len(pieces))
    for index in mine:
        seed(index)
        total_1 += backward(pieces[index], targets)
        if reduce == "exact" or index == mine[-1]:  # else gradients add themselves to what is there
            gradients, these = optimizer.take_gradients(backward.captured)
            there = [one or other for one, other in zip(there, these, strict=True)]
            tree.add([total_1, *gradients])
            total_1 = torch.zeros_like(total_1)
    if processes.count == 1:
        loss_1, *gradients = tree.total()
        optimizer.put_gradients(gradients, there)
        return loss_1[0], False
    flags_W = torch.tensor([asked_to_stop, *there], dtype=torch.float32, device=device)
    flags_W, loss_1, *gradients = processes.add([flags_W, *tree.total()], reduce)
    stop, *there = (flags_W > 0).tolist()
    optimizer.put_gradients(gradients, there)
    return loss_1[0], stop


def held(pieces: int, processes: Processes, reduce: Reduce) -> int:
    """Gradients of the whole model that are held at once, at most, besides the one that is computed."""
    return len(processes.share(pieces)).bit_length() if reduce == "exact" and pieces > 1 else 0
