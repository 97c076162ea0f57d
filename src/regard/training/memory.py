"""How much memory a training will take, told before its first step from a few rows of its first batch.

    peak(rows) = weights + optimizer + average + gradients + a + b · rows

The first four follow from the model. What one row adds, b, and what any number of rows takes, a, are measured: loss and
gradient of a part of a batch, and of half that part, on the device itself and with its own kernels. Every gradient of a
weight is dropped as soon as it is made. Otherwise, of a few rows, one would see the gradients and not the rows.

On a GPU the peak is told by torch's allocator; on a CPU by the kernel, for the whole process: a third of what it takes
there are the gaps that malloc leaves between tensors. Compiled blocks keep less than what is measured here: for them
the prediction is an upper bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batch import Batch
from regard.hardware import Hardware, free_memory, only_new_garbage, out_of_memory
from regard.models.stack import eight_bits
from regard.process_memory import available_memory, growth_during, resident_memory

GAPS = 1.15  # by which malloc's gaps grow after the first pass: 1.0 to 1.3 (benchmarks/memory_prediction.py)
PART = {"cuda": 2, "cpu": 4}  # of a batch, one part in so many is measured: on a CPU that takes longer


@dataclass(frozen=True)
class Prediction:
    """In bytes."""

    present: int  # held before the first step: the weights; on a CPU also the program itself
    lasting: int  # of the optimizer
    gradients: int
    beside: int  # gradients that are there while the rows take most
    base: float  # a
    row: float  # b

    def peak(self, rows: int) -> int:
        """Of a training whose pieces have so many rows."""
        return self.present + self.growth(rows)

    def growth(self, rows: int) -> int:
        """What is still to be taken for it."""
        return self.lasting + max(self.gradients, self.beside + int(self.base + self.row * rows))

    def rows_within(self, room: int) -> int:
        """How many rows fit into so many bytes; 0 if none does."""
        fixed = self.lasting + self.beside + self.base
        fits = room > self.lasting + self.gradients
        return max(0, int((room - fixed) / max(self.row, 1.0))) if fits else 0


def predict(
    model: nn.Module,
    loss: Callable[[Any], Tensor],
    hardware: Hardware,
    batch: Batch,
    rows: int,
    lasting: int,
    gradients_stay: bool,
) -> Prediction | None:
    """From a batch of which `rows` are computed at a time. None if not even one of its rows fits.

    `lasting`: bytes that the optimizer will take; `gradients_stay`: from one piece or step to the next.
    """
    device, present = hardware.device, 0
    gradients = sum(weight.nbytes for weight in model.parameters() if weight.requires_grad)
    part = max(min(rows, 2), rows // PART.get(device.type, 4))
    measured: dict[int, int] = {}
    beside = gradients
    model.train()
    with only_new_garbage(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        while part and len(measured) < 2:
            try:
                if not measured:
                    _peak(model, loss, hardware, batch.first(1))  # libraries take memory for themselves at first
                    free_memory(device)
                    present = torch.cuda.memory_allocated(device) if device.type == "cuda" else resident_memory()
                measured[part] = _peak(model, loss, hardware, batch.first(part))
                if not gradients_stay and len(measured) == 1:
                    together = _peak(model, loss, hardware, batch.first(part), dropped=False)
                    beside = min(gradients, together - measured[part])
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
            free_memory(device)
            part //= 2
    if not measured:
        return None
    (most, peak), (fewer, lower) = max(measured.items()), min(measured.items())
    row = (peak - lower) / (most - fewer) if most > fewer else peak / most
    return Prediction(present, lasting, gradients, beside, peak - row * most, row)


def available(device: torch.device) -> int:
    """Bytes that this process may still take."""
    if device.type != "cuda":
        return available_memory()
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def shown(size: float) -> str:
    """3.1 GiB, 640 MiB."""
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.0f} MiB"


# ---------------------------------------------------------------- measuring


def _peak(
    model: nn.Module, loss: Callable[[Any], Tensor], hardware: Hardware, batch: Batch, dropped: bool = True
) -> int:
    """Bytes above what is held, while loss and gradient of these rows are computed.

    `dropped`: each gradient of a weight as soon as it is made; else all at the end.
    """

    def run() -> None:
        with hardware.autocast(), eight_bits(hardware.eight_bits):
            total = loss(batch.to(hardware.device))
        total.backward()  # type: ignore[no-untyped-call]

    with _gradients_dropped(model, at_once=dropped):
        if hardware.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(hardware.device)
            before = torch.cuda.memory_allocated(hardware.device)
            run()
            return torch.cuda.max_memory_allocated(hardware.device) - before
        return int(GAPS * growth_during(run, gaps=True))


@contextmanager
def _gradients_dropped(model: nn.Module, at_once: bool) -> Iterator[None]:
    def drop(weight: Tensor) -> None:
        weight.grad = None

    weights = [weight for weight in model.parameters() if weight.requires_grad]
    hooks = [weight.register_post_accumulate_grad_hook(drop) for weight in weights if at_once]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for weight in weights:
            drop(weight)
