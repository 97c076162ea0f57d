"""Adam, AdamW and Muon, with decay for matrices only; and the norm of all gradients.

Muon is for the matrices inside the blocks; embeddings, norms, biases and the output layer go on with AdamW. So do,
without decay, weights that are no maps: those of the networks that make Hyena's filters, which are frequencies, Swin's
biases for distances, and where patches are in an image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regard.settings import TrainingSettings
from regard.layers.block import Block
from regard.layers.hyena import ImplicitFilter
from regard.layers.patches import PatchEmbedding
from regard.layers.windows import WindowAttention
from regard.training.muon import Muon
from regard.training.replayed import Replayed


class Optimizer:
    """One or two of torch's optimizers, each with its share of the model's parameters, stepped as one."""

    def __init__(self, model: nn.Module, settings: TrainingSettings):
        self.parameters = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        inside = matrices_of_blocks(model) if settings.optimizer == "muon" else []
        others = [weight for weight in self.parameters.values() if not any(weight is other for other in inside)]
        free = {id(weight) for weight in no_maps(model)}
        decayed = [weight for weight in others if weight.dim() >= 2 and id(weight) not in free]
        kept = {id(weight) for weight in decayed}
        groups = [
            {"params": decayed, "weight_decay": settings.weight_decay},
            {"params": [weight for weight in others if id(weight) not in kept], "weight_decay": 0.0},
        ]
        kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
        betas = (settings.beta1, settings.beta2)
        self.device = next(iter(self.parameters.values())).device
        on_gpu = self.device.type == "cuda"
        # Each with the factor from the schedule's rate to its own.
        self.parts: list[tuple[torch.optim.Optimizer, float]] = [
            (kind(groups, lr=self._rate(), betas=betas, eps=settings.epsilon, fused=True, capturable=on_gpu), 1.0)
        ]
        if inside:
            rate: Any = self._rate()
            muon = Muon(inside, lr=rate, momentum=settings.muon_momentum, weight_decay=settings.weight_decay)
            self.parts.append((muon, settings.muon_learning_rate / settings.learning_rate))
        self.clip_norm = settings.clip_norm
        self._capture()

    def step(self, rate: float) -> None:
        """Update every weight at this rate, and set the gradients back to zero."""
        for optimizer, factor in self.parts:
            for group in optimizer.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(rate * factor)
                else:
                    group["lr"] = rate * factor
        self.update()

    def _update(self) -> None:
        for optimizer, _ in self.parts:
            optimizer.step()
            # Kept in place: a captured graph adds to the same memory at every step.
            optimizer.zero_grad(set_to_none=False)

    def _norm(self) -> Tensor:
        """The norm of all gradients together; they are scaled down to `clip_norm` if that is above 0."""
        weights = list(self.parameters.values())
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
        if self.clip_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(weights, self.clip_norm, norm, foreach=True)
        return norm

    def _rate(self) -> float | Tensor:
        """On a GPU a number that stays where it is, for the captured update to read."""
        return torch.zeros((), device=self.device) if self.device.type == "cuda" else 0.0

    def _capture(self) -> None:
        """An update is hundreds of small kernels: on a GPU they are captured, and replayed as one."""
        self.gradient_norm = Replayed(self._norm, self.device)
        self.update = Replayed(self._update, self.device)

    def tensors(self) -> dict[str, Tensor]:
        """All that is remembered from step to step, as named tensors: 'exp_avg/decoder.0…'."""
        return {
            f"{key}/{name}": value
            for name, parameter in self.parameters.items()
            for optimizer, _ in self.parts
            for key, value in optimizer.state.get(parameter, {}).items()
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for key_and_name, value in tensors.items():
            key, _, name = key_and_name.partition("/")
            parameter = self.parameters[name]
            for optimizer, _ in self.parts:
                if any(parameter is own for group in optimizer.param_groups for own in group["params"]):
                    # Adam's step counter stays where torch keeps it: with the parameter when fused.
                    optimizer.state[parameter][key] = value.to(parameter.device).clone()
        self._capture()


def matrices_of_blocks(model: nn.Module) -> list[nn.Parameter]:
    """The weights of the linear maps inside the blocks; a map to a single number is a vector."""
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    others = {id(weight) for weight in no_maps(model)}
    weights = [weight for block in blocks for weight in block.parameters() if id(weight) not in others]
    return [weight for weight in weights if weight.dim() == 2 and min(weight.shape) > 1]


def no_maps(model: nn.Module) -> list[nn.Parameter]:
    """Weights that have the shape of a matrix but map nothing to anything."""
    found: list[nn.Parameter] = []
    for module in model.modules():
        if isinstance(module, ImplicitFilter):
            found += module.parameters()
        elif isinstance(module, WindowAttention):
            found.append(module.table)
        elif isinstance(module, PatchEmbedding):
            places = (module.class_token_1D, module.registers_ED, module.positions_RSD)
            found += [weight for weight in places if weight is not None]
    return found
