"""Adam and AdamW, with decay for matrices only; and the norm of all gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.config import TrainingSettings


def make_optimizer(model: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Weight decay is for matrices; biases and norms are left alone."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in parameters if parameter.dim() >= 2]
    others = [parameter for parameter in parameters if parameter.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=0.0, betas=(settings.beta1, settings.beta2), eps=settings.epsilon, fused=True)


def gradient_norm(model: nn.Module, largest: float) -> Tensor:
    """The norm of all gradients together; they are scaled down to `largest` if that is above 0."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
    if largest > 0:
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), largest, norm, foreach=True)
    return norm
