"""Rollout: what reaches the end, followed back through all layers (Abnar & Zuidema, 2020).

    Â_l = ½ · mean over heads of A_l + ½ · I          rollout = Â_L ⋯ Â_2 Â_1

A block adds what attention gathers to what was there, so half of each token comes from itself. Every Â has rows
that sum to 1, and so has their product: row t says how much of each token of the input is in token t at the end.
Where a Swin Transformer merges 2 × 2 patches, the new one comes from its four in equal parts.

Shapes: H heads · T tokens · R × S grid of patches · E tokens that are left at the end
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from regard.explain.trace import trace
from regard.layers.windows import WindowAttention
from regard.models.swin import Swin
from regard.models.vision import VisionTransformer


def rollout(layers_HTT: Iterable[Tensor]) -> Tensor:
    """How much of each input token is in each output token: [T, T], rows sum to 1."""
    return reduce(lambda rollout_TT, next_TT: next_TT @ rollout_TT, map(_with_residual, layers_HTT))


def _with_residual(weights_HTT: Tensor) -> Tensor:
    """What a block takes from each token, one's own half included: Â, [T, T]."""
    identity_TT = torch.eye(weights_HTT.shape[-1], dtype=weights_HTT.dtype, device=weights_HTT.device)
    return 0.5 * weights_HTT.mean(0) + 0.5 * identity_TT


@dataclass(frozen=True)
class AttentionMaps:
    """What a model looked at in one image, seen from where the class is read."""

    rollout_RS: Tensor
    layers_HRS: list[Tensor]  # a map for each head of each layer; a Swin's later layers have more heads, coarser grids
    read_from: str  # in words


def attention_maps(model: VisionTransformer | Swin, image_CHW: Tensor) -> AttentionMaps:
    """Rollout and every head's attention, as maps over the patches of a scaled image."""
    traced = trace(model, lambda: model(image_CHW[None]))
    layers_HTT = [attention.weights_BHTS[0].float() for attention in traced.values()]
    return _swin_maps(model, layers_HTT) if isinstance(model, Swin) else _vit_maps(model, layers_HTT)


def _vit_maps(model: VisionTransformer, layers_HTT: list[Tensor]) -> AttentionMaps:
    before, grid = model.patches.before, model.patches.grid
    by_token = model.pooling != "mean"
    readers = slice(0, 1) if by_token else slice(before, None)

    def over_patches(weights: Tensor) -> Tensor:
        """From the reading tokens to the patches, as a grid: [..., R, S]."""
        return weights[..., readers, before:].mean(-2).unflatten(-1, grid)

    read_from = "the class token" if by_token else "the mean of all patches"
    return AttentionMaps(over_patches(rollout(layers_HTT)), [over_patches(each) for each in layers_HTT], read_from)


def _swin_maps(model: Swin, layers_HTT: list[Tensor]) -> AttentionMaps:
    """The class of a Swin is read from the mean of its last patches."""
    grids = [module.grid for module in model.modules() if isinstance(module, WindowAttention)]
    rollout_ET = torch.eye(layers_HTT[0].shape[-1], device=layers_HTT[0].device)
    for grid, before, weights_HEE in zip(grids, [grids[0], *grids[:-1]], layers_HTT, strict=True):
        if grid != before:
            rollout_ET = _merged(rollout_ET, grid)
        rollout_ET = _with_residual(weights_HEE) @ rollout_ET
    maps_HRS = [weights_HTT.mean(-2).unflatten(-1, grid) for weights_HTT, grid in zip(layers_HTT, grids, strict=True)]
    return AttentionMaps(rollout_ET.mean(0).unflatten(0, grids[0]), maps_HRS, "the mean of all patches")


def _merged(rollout_FT: Tensor, grid: tuple[int, int]) -> Tensor:
    """What is in the patches of this grid, each of which merges 2 × 2 of the grid before: [F = 4·E, T] → [E, T]."""
    rows, columns = grid
    return rollout_FT.unflatten(0, (rows, 2, columns, 2)).mean((1, 3)).flatten(0, 1)
