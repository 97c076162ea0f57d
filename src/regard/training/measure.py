"""Measuring a loss: how surprised a model is by data that it was not trained on, and how often it is right.

loss = −1/n Σ log p(y)          perplexity = e^loss          over the n targets of all batches
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.hardware import Hardware, free_memory, out_of_memory
from regard.training.loss import AnyBatch, cross_entropy
from regard.training.processes import ALONE, Processes

Result = TypeVar("Result")
AT_A_TIME = 1 << 26  # logits that are taken to float32 together
LARGEST_EXPONENT = 700.0  # e to more than that overflows


@dataclass(frozen=True)
class Measured:
    total: float  # cross-entropy in nats, summed
    targets: int
    right: int  # targets that the model finds likeliest
    rows: int  # with a target
    right_rows: int  # of which the model finds every target likeliest

    @property
    def loss(self) -> float:
        """Nats per target."""
        return self.total / max(self.targets, 1)

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, LARGEST_EXPONENT))

    @property
    def accuracy(self) -> float:
        """Percent of the targets."""
        return 100 * self.right / max(self.targets, 1)

    @property
    def whole(self) -> float:
        """Percent of the rows."""
        return 100 * self.right_rows / max(self.rows, 1)


@torch.inference_mode()
def measure(
    model: nn.Module,
    batches: Iterable[AnyBatch],
    logits_of: Callable[[AnyBatch], Tensor],
    hardware: Hardware,
    processes: Processes = ALONE,
) -> Measured:
    """Over all targets of all batches. `logits_of` gets a batch on the device; nothing is smoothed or dropped."""

    def compute(batch: AnyBatch) -> Tensor:
        logits = logits_of(batch)
        counts = _count(logits.argmax(-1), batch.labels, batch.nothing)
        return torch.stack([_surprise(logits, batch.labels, batch.nothing).double(), *counts.double()])

    total, *counts = sums(model, batches, compute, hardware, processes).tolist() or [0.0] * 5
    return Measured(total, *map(int, counts))


@torch.inference_mode()
def mean_loss(
    model: nn.Module,
    batches: Iterable[AnyBatch],
    loss_of: Callable[[AnyBatch], Tensor],
    hardware: Hardware,
    processes: Processes = ALONE,
) -> float:
    """The mean over all targets of a loss that is not a cross-entropy; `loss_of` sums it over a batch."""

    def compute(batch: AnyBatch) -> Tensor:
        return torch.tensor([loss_of(batch).item(), batch.targets], dtype=torch.float64)

    total, targets = sums(model, batches, compute, hardware, processes).tolist() or [0.0] * 2
    return float(total / max(targets, 1))


def sums(
    model: nn.Module,
    batches: Iterable[AnyBatch],
    compute: Callable[[AnyBatch], Tensor],
    hardware: Hardware,
    processes: Processes = ALONE,
) -> NDArray[np.float64]:
    """What is computed of each batch, a few numbers in float64, added in the order of the batches; empty of none."""

    room = Room()

    def of_batch(batch: AnyBatch) -> NDArray[np.float64]:
        found = [numbers.cpu().numpy() for _, numbers in outputs(model, [batch], compute, hardware, room)]
        return np.add.accumulate(found)[-1]

    of_each = processes.each(batches, of_batch)
    return np.add.accumulate(of_each)[-1] if of_each else np.empty(0)  # one after the other, as `sum` need not


@dataclass
class Room:
    """As far as it is known."""

    rows: float = math.inf  # of a batch that fit


def outputs(
    model: nn.Module,
    batches: Iterable[AnyBatch],
    compute: Callable[[AnyBatch], Result],
    hardware: Hardware,
    room: Room | None = None,
) -> Iterator[tuple[AnyBatch, Result]]:
    """Every batch on the device, and what is computed from it without dropout.

    Where memory runs out, a batch comes as several with fewer rows, and so do those after it.
    """
    model.eval()
    room = room or Room()
    for batch in batches:
        waiting = [batch.to(hardware.device)]
        while waiting:
            rows = len(waiting[0].labels)
            if rows > room.rows:
                waiting[:1] = waiting[0].split(math.ceil(rows / room.rows))
                continue
            try:
                with hardware.autocast():
                    result = compute(waiting[0])
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error) or rows < 2:
                    raise
            else:
                yield waiting.pop(0), result
                continue
            # Here, not in `except`: what was computed so far is held until that is left.
            room.rows = rows // 2
            free_memory(hardware.device)


def _surprise(logits: Tensor, labels: Tensor, nothing: int) -> Tensor:
    """The cross-entropy, summed."""
    logits_NW, rows = logits.flatten(0, -2), max(1, AT_A_TIME // logits.shape[-1])
    parts = zip(logits_NW.split(rows), labels.flatten().split(rows), strict=True)
    return torch.stack([cross_entropy(some, of, ignore=nothing) for some, of in parts]).sum()


def _count(guesses: Tensor, labels: Tensor, nothing: int) -> Tensor:
    """Targets, targets guessed, rows with a target, and rows with every target guessed."""
    real_BX = (labels != nothing).view(len(labels), -1)
    right_BX = real_BX & (guesses.view(real_BX.shape) == labels.view(real_BX.shape))
    asked_B = real_BX.any(1)
    whole_B = asked_B & (right_BX == real_BX).all(1)
    return torch.stack([real_BX.sum(), right_BX.sum(), asked_B.sum(), whole_B.sum()])
