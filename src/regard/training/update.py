"""One update of the weights that nobody waits for: forward, backward, norm, clipping, optimizer and average.

On a GPU all of it is one CUDA graph. The program only puts the batch and a few numbers into the GPU's memory, replays
the graph, and reads the loss when the next steps are already under way.

So it is the GPU that must see to it that a step which is not finite never touches the weights. From the first loss or
norm on that is not finite, `failed` is 1, and every update leaves weights, optimizer and average as they are; whoever
reads the loss of that step stops the training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.training.averaging import MovingAverage
from regard.training.graph import Backward, Graphs
from regard.training.optimizer import Optimizer
from regard.training.replayed import Replayed


@dataclass(frozen=True)
class Outcome:
    """The mean loss of an update and the norm of its gradient, on their way to the program."""

    loss_and_norm: Tensor
    arrived: torch.cuda.Event | None = None  # None: they are here

    def read(self) -> tuple[float, float]:
        """Waits for them."""
        if self.arrived is not None:
            self.arrived.synchronize()
        loss, norm = self.loss_and_norm.tolist()
        return loss, norm


class Update:
    """`update(pieces, targets, rate, share, seed)` begins an update; it needs an optimizer that is `guarded`."""

    def __init__(
        self,
        backward: Backward,
        optimizer: Optimizer,
        average: MovingAverage | None,
        in_pieces: Callable[[list[Any], int, Callable[[int], None]], Tensor],
    ):
        """`in_pieces` adds up the gradient of several micro-batches, and returns their loss."""
        self.backward, self.optimizer, self.average = backward, optimizer, average
        self.in_pieces = in_pieces
        self.device = backward.hardware.device
        self.on_gpu = self.device.type == "cuda"
        # What changes from step to step, copied there as one: 1 / targets, the average's share, and the rates.
        self.numbers = torch.zeros(2 + len(optimizer.optimizers), device=self.device)
        self.scale, self.share = self.numbers[0], self.numbers[1]
        self.loss, self.failed = torch.zeros(2, device=self.device).unbind()
        self.outcome = torch.zeros(2, device=self.device)
        optimizer.guard(self.failed, self.numbers[2:])
        self.whole: Callable[[Any], None] = self._whole
        if self.on_gpu:
            self.whole = Graphs(self._whole, self._nothing_changes, self.device)
        self.from_gradients = Replayed(self._from_gradients, captured=self.on_gpu)

    def __call__(
        self, pieces: list[Any], targets: int, rate: float, share: float, seed: Callable[[int], None]
    ) -> Outcome:
        """The micro-batches of one update; `seed(n)` is called before the n-th."""
        rates = [rate * factor for _, factor in self.optimizer.optimizers]
        numbers = torch.tensor([1 / targets, share, *rates], pin_memory=self.on_gpu)
        self.numbers.copy_(numbers, non_blocking=True)
        if len(pieces) == 1:
            seed(0)
            self.whole(pieces[0])
        else:
            self.loss.copy_(self.in_pieces(pieces, targets, seed))
            self.from_gradients()
        return self._sent()

    def _whole(self, batch: Any) -> None:
        # Written anew at every step, gradients need neither be set to zero nor added to.
        self.optimizer.forget_gradients()
        self.loss.copy_(self.backward.compute(batch, self.scale))
        self._apply()
        self.optimizer.forget_gradients()

    def _from_gradients(self) -> None:
        self._apply()
        self.optimizer.zero_gradients()

    @torch.no_grad()
    def _apply(self) -> None:
        """The update itself, from the gradients."""
        torch.stack([self.loss, self.optimizer.norm()], out=self.outcome)
        self.failed.copy_(torch.maximum(self.failed, (~self.outcome.isfinite()).any()))
        self.optimizer.apply()
        if self.average:
            self.average.update(self.backward.model, self.share * (1 - self.failed))

    @contextmanager
    def _nothing_changes(self) -> Iterator[None]:
        before = self.failed.clone()
        self.failed.fill_(1)
        try:
            yield
        finally:
            self.failed.copy_(before)
            self.optimizer.moved = False

    def _sent(self) -> Outcome:
        if not self.on_gpu:
            return Outcome(self.outcome.clone())
        here = torch.empty(2, pin_memory=True)
        here.copy_(self.outcome, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record(torch.cuda.current_stream(self.device))
        return Outcome(here, arrived)
