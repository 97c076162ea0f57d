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

from regard.training.rows import like, whole

FILLED = 1 << 23  # numbers, at most, of matrices of several shapes that are filled up to one


class Muon(torch.optim.Muon):
    """For matrices only. `lr`, `momentum`, `weight_decay`, `ns_steps` … as in torch's own.

    While the tensor `found_inf` is 1, where there is one, nothing changes: as in torch's fused optimizers.
    """

    _step_supports_amp_scaling = True
    found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weights in together([weight for weight in group["params"] if weight.grad is not None]):
                self._update(weights, group)

    def _update(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for weight in weights:
            if "momentum_buffer" not in self.state[weight]:
                self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        momenta = [self.state[weight]["momentum_buffer"] for weight in weights]
        learning_rate = group["lr"]
        if self.found_inf is not None:
            # A gradient equal to the momentum leaves it as it is; and a step of length 0, the weights.
            chosen = torch.where(self.found_inf.bool(), _end_to_end(momenta), _end_to_end(gradients))
            parts = chosen.split([weight.numel() for weight in weights])
            gradients = [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]
            learning_rate = learning_rate * (1 - self.found_inf)
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        updates = torch._foreach_lerp(gradients, momenta, group["momentum"]) if group["nesterov"] else momenta
        of_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)  # in the order of the weights
        for update in updates:
            of_shape[update.shape].append(whole(update))
        stacks = [torch.stack(same) for same in of_shape.values()]
        orthogonal = all_orthogonal(stacks, group["ns_coefficients"], group["ns_steps"])
        # The rate may be a number or, for a captured graph, a tensor: so it is multiplied, not given as `alpha`.
        torch._foreach_mul_(weights, 1 - learning_rate * group["weight_decay"])
        steps: list[Tensor] = []
        for shape, found_MRC in zip(of_shape, orthogonal, strict=True):
            rate = learning_rate * math.sqrt(max(1, shape[0] / shape[1]))
            whole_MRC = found_MRC.to(weights[0].dtype, memory_format=torch.contiguous_format)
            steps += (whole_MRC * rate).unbind()
        torch._foreach_sub_(weights, [like(step, weight) for step, weight in zip(steps, weights, strict=True)])


def together(weights: list[Tensor]) -> list[list[Tensor]]:
    """The matrices that are worked on as one, those of a shape next to each other.

    On a GPU also matrices of several shapes, where they are small and their shorter sides are as long: what is filled
    up with zeros to the longest takes less time than starting the kernels of each shape.
    """
    of_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
    for weight in weights:
        of_shape[weight.shape].append(weight)
    of_side: dict[int, list[list[Tensor]]] = defaultdict(list)
    for shape, same in of_shape.items():
        of_side[min(shape)].append(same)
    lists = []
    for side, shapes in of_side.items():
        filled = side * max(max(same[0].shape) for same in shapes) * sum(map(len, shapes))
        if shapes[0][0].is_cuda and filled <= FILLED:
            shapes = [[weight for same in shapes for weight in same]]
        lists += shapes
    return lists


def all_orthogonal(updates: list[Tensor], coefficients: tuple[float, float, float], steps: int) -> list[Tensor]:
    """`orthogonalise` for several shapes, whose shorter sides are as long, as one. Zeros stay zeros in it."""
    if len(updates) == 1:
        return [orthogonalise(updates[0], coefficients, steps)]
    wide = [update_MRC.mT if update_MRC.shape[1] > update_MRC.shape[2] else update_MRC for update_MRC in updates]
    # Half precision is what it is computed in on a GPU.
    kind = torch.bfloat16 if updates[0].is_cuda else updates[0].dtype
    counts, longest = [len(x_MRC) for x_MRC in wide], max(x_MRC.shape[2] for x_MRC in wide)
    filled_MRC = wide[0].new_zeros(sum(counts), wide[0].shape[1], longest, dtype=kind)
    for place_MRC, x_MRC in zip(filled_MRC.split(counts), wide, strict=True):
        place_MRC[:, :, : x_MRC.shape[2]].copy_(x_MRC)
    found = [
        found_MRC[:, :, : x_MRC.shape[2]]
        for found_MRC, x_MRC in zip(orthogonalise(filled_MRC, coefficients, steps).split(counts), wide, strict=True)
    ]
    return [
        x_MRC if x_MRC.shape == update_MRC.shape else x_MRC.mT for x_MRC, update_MRC in zip(found, updates, strict=True)
    ]


def _end_to_end(matrices: list[Tensor]) -> Tensor:
    return torch.cat([matrix.flatten() for matrix in matrices])


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
