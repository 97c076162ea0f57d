"""An exponential moving average of the weights:  a ← β a + (1 − β) w, after every step."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.training.checkpoint import weights_of


class MovingAverage:
    """In the first steps β is (1 + step) / (10 + step), so that the random start is soon forgotten."""

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.weights = {name: tensor.clone() for name, tensor in weights_of(model).items()}

    def share(self, step: int) -> float:
        """Of this step's weights in the average: 1 − β."""
        return 1 - min(self.decay, (1 + step) / (10 + step))

    @torch.no_grad()
    def update(self, model: nn.Module, share: float | Tensor) -> None:
        """`share`: on a GPU a number in memory, for a captured update to read."""
        averages, weights = list(self.weights.values()), list(weights_of(model).values())
        differences = torch._foreach_sub(weights, averages)
        torch._foreach_mul_(differences, share)
        torch._foreach_add_(averages, differences)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        for name, tensor in self.weights.items():
            tensor.copy_(weights[name])
