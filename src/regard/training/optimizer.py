"""Adam, AdamW and Muon, with decay for matrices only; and the norm of all gradients.

Muon is for the matrices inside the blocks; embeddings, norms, biases and the output layer go on with AdamW. So do,
without decay, weights that are no maps: those of the networks that make Hyena's filters, which are frequencies, Swin's
biases for distances, and where patches are in an image.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.config import TrainingSettings
from regard.layers.block import Block
from regard.layers.hyena import ImplicitFilter
from regard.layers.patches import PatchEmbedding
from regard.layers.windows import WindowAttention
from regard.training.muon import Muon


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
        # Each with the factor from the schedule's rate to its own.
        self.parts: list[tuple[torch.optim.Optimizer, float]] = [
            (kind(groups, lr=0.0, betas=betas, eps=settings.epsilon, fused=True), 1.0)
        ]
        if inside:
            muon = Muon(inside, lr=0.0, momentum=settings.muon_momentum, weight_decay=settings.weight_decay)
            self.parts.append((muon, settings.muon_learning_rate / settings.learning_rate))

    def step(self, rate: float) -> None:
        """Update every weight at this rate, and set the gradients back to zero."""
        for optimizer, factor in self.parts:
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
            optimizer.step()
            # Kept in place: a captured graph adds to the same memory at every step.
            optimizer.zero_grad(set_to_none=False)

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


def gradient_norm(model: nn.Module, largest: float) -> Tensor:
    """The norm of all gradients together; they are scaled down to `largest` if that is above 0."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
    if largest > 0:
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), largest, norm, foreach=True)
    return norm
