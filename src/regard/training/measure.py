"""Measuring a loss: how surprised a model is by data that it was not trained on, and how often it is right.

loss = −1/n Σ log p(y)          perplexity = e^loss          over the n targets of all batches
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.hardware import Hardware, free_memory, out_of_memory
from regard.training.loss import AnyBatch, cross_entropy

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
    model: nn.Module, batches: Iterable[AnyBatch], logits_of: Callable[[AnyBatch], Tensor], hardware: Hardware
) -> Measured:
    """Over all targets of all batches. `logits_of` gets a batch on the device; nothing is smoothed or dropped."""

    def compute(batch: AnyBatch) -> tuple[float, Tensor]:
        logits = logits_of(batch)
        loss = _surprise(logits, batch.labels, batch.nothing).item()
        return loss, _count(logits.argmax(-1), batch.labels, batch.nothing)

    total, counts = 0.0, torch.zeros(4, dtype=torch.long)
    for _, (loss, counted) in outputs(model, batches, compute, hardware):
        total += loss
        counts += counted
    targets, right, rows, right_rows = counts.tolist()
    return Measured(total, targets, right, rows, right_rows)


@torch.inference_mode()
def mean_loss(
    model: nn.Module, batches: Iterable[AnyBatch], loss_of: Callable[[AnyBatch], Tensor], hardware: Hardware
) -> float:
    """The mean over all targets of a loss that is not a cross-entropy; `loss_of` sums it over a batch."""
    total, targets = 0.0, 0
    for batch, loss in outputs(model, batches, loss_of, hardware):
        total, targets = total + loss.item(), targets + batch.targets
    return total / max(targets, 1)


def outputs(
    model: nn.Module, batches: Iterable[AnyBatch], compute: Callable[[AnyBatch], Result], hardware: Hardware
) -> Iterator[tuple[AnyBatch, Result]]:
    """Every batch on the device, and what is computed from it without dropout.

    Where memory runs out, a batch comes as several with fewer rows, and so do those after it.
    """
    model.eval()
    most: float = math.inf  # rows that fit
    for batch in batches:
        waiting = [batch.to(hardware.device)]
        while waiting:
            rows = len(waiting[0].labels)
            if rows > most:
                waiting[:1] = waiting[0].split(math.ceil(rows / most))
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
            most = rows // 2
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
    return torch.stack([real_BX.sum(), right_BX.sum(), asked_B.sum(), whole_B.sum()]).cpu()
