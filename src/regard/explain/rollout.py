"""Rollout: what reaches the end, followed back through all layers (Abnar & Zuidema, 2020).

    Â_l = ½ · mean over heads of A_l + ½ · I          rollout = Â_L ⋯ Â_2 Â_1

A block adds what attention gathers to what was there, so half of each token comes from itself. Every Â has rows
that sum to 1, and so has their product: row t says how much of each token of the input is in token t at the end.

Shapes: L layers · H heads · T tokens · R × S grid of patches
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.explain.trace import trace
from regard.models.vision import VisionTransformer


def rollout(weights_LHTT: Tensor) -> Tensor:
    """How much of each input token is in each output token: [T, T], rows sum to 1."""
    identity_TT = torch.eye(weights_LHTT.shape[-1], dtype=weights_LHTT.dtype, device=weights_LHTT.device)
    found_TT = identity_TT
    for weights_HTT in weights_LHTT:
        found_TT = (0.5 * weights_HTT.mean(0) + 0.5 * identity_TT) @ found_TT
    return found_TT


@dataclass(frozen=True)
class AttentionMaps:
    """What a ViT looked at in one image, seen from where the class is read."""

    rollout_RS: Tensor
    heads_LHRS: Tensor
    read_from: str  # in words


@torch.inference_mode()
def attention_maps(model: VisionTransformer, image_CHW: Tensor) -> AttentionMaps:
    """Rollout and every head's attention, as maps over the patches of a scaled image."""
    traced = trace(model, lambda: model(image_CHW[None]))
    weights_LHTT = torch.stack([found.weights_BHTS[0].float() for found in traced.values()])
    before, grid = model.patches.before, model.patches.grid
    by_token = model.pooling != "mean"
    readers = slice(0, 1) if by_token else slice(before, None)

    def over_patches(weights: Tensor) -> Tensor:
        """From the reading tokens to the patches, as a grid: [..., R, S]."""
        return weights[..., readers, before:].mean(-2).unflatten(-1, grid)

    read_from = "the class token" if by_token else "the mean of all patches"
    return AttentionMaps(over_patches(rollout(weights_LHTT)), over_patches(weights_LHTT), read_from)
