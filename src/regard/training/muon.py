"""Muon: the update of a matrix, made nearly orthogonal, so that all its directions move alike.

    m ← β m + (1 − β) g          u = (1 − β) g + β m          w ← w − η √max(1, rows / columns) · orthogonal(u)

(Jordan et al., 2024.) It is `torch.optim.Muon`, with matrices of the same shape worked on together: a
model has dozens of them in a handful of shapes, and one by one a GPU spends its time starting small kernels.

Shapes: M matrices · R rows · C columns
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Muon(torch.optim.Muon):
    """For matrices only. `lr`, `momentum`, `weight_decay`, `ns_steps` … as in torch's own.

    While the tensor `found_inf` is 1, where there is one, nothing changes: as in torch's fused optimizers.
    """

    _step_supports_amp_scaling = True
    found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            of_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    of_shape[weight.shape].append(weight)
            for shape, weights in of_shape.items():
                self._update(shape, weights, group)

    def _update(self, shape: torch.Size, weights: list[Tensor], group: dict[str, Any]) -> None:
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for weight in weights:
            if "momentum_buffer" not in self.state[weight]:
                self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        momenta = [self.state[weight]["momentum_buffer"] for weight in weights]
        learning_rate = group["lr"]
        if self.found_inf is not None:
            # A gradient equal to the momentum leaves it as it is; and a step of length 0, the weights.
            chosen = torch.where(self.found_inf.bool(), torch.stack(momenta), torch.stack(gradients))
            gradients = list(chosen.unbind())
            learning_rate = learning_rate * (1 - self.found_inf)
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        updates = torch._foreach_lerp(gradients, momenta, group["momentum"]) if group["nesterov"] else momenta
        orthogonal_MRC = orthogonalise(torch.stack(list(updates)), group["ns_coefficients"], group["ns_steps"])
        # The rate may be a number or, for a captured graph, a tensor: so it is multiplied, not given as `alpha`.
        torch._foreach_mul_(weights, 1 - learning_rate * group["weight_decay"])
        rate = learning_rate * math.sqrt(max(1, shape[0] / shape[1]))
        torch._foreach_sub_(weights, list((orthogonal_MRC.to(weights[0].dtype) * rate).unbind()))


def orthogonalise(update_MRC: Tensor, coefficients: tuple[float, float, float], steps: int) -> Tensor:
    """Each matrix with its singular values brought near 1, by Newton and Schulz's iteration.

    X ← a X + (b XXᵀ + c (XXᵀ)²) X
    """
    a, b, c = coefficients
    tall = update_MRC.shape[1] > update_MRC.shape[2]
    # Half precision is enough, but only a GPU is faster with it.
    x_MRC = update_MRC.bfloat16() if update_MRC.is_cuda else update_MRC
    x_MRC = x_MRC.mT if tall else x_MRC
    x_MRC = x_MRC / x_MRC.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram_MRR = x_MRC @ x_MRC.mT
        polynomial_MRR = torch.baddbmm(gram_MRR, gram_MRR, gram_MRR, beta=b, alpha=c)
        x_MRC = torch.baddbmm(x_MRC, polynomial_MRR, x_MRC, beta=a)
    return x_MRC.mT if tall else x_MRC
