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

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.weights.values()), list(weights_of(model).values()), 1 - decay)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        for name, tensor in self.weights.items():
            tensor.copy_(weights[name])
