"""The input of the first block as a sum of three terms.

    x_0 = norm(content + position) = content' + position' + constant        the last: the bias of the norm

Shapes: B rows · T positions · D model width
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.inside.readout import through_norm
from regard.layers.embedding import Embedding
from regard.layers.norm import RMSNorm
from regard.layers.patches import PatchEmbedding


@dataclass(frozen=True)
class Embedded:
    """The first three tensors sum to the input of the first block."""

    content_TD: Tensor  # the vector of the token or patch; a class token or register counts as content
    position_TD: Tensor
    constant_TD: Tensor  # the bias of the norm, if there is one
    input: Tensor  # of the embedding: ids [T], an image [C, H, W], or vectors [T, D]
    raw_content_TD: Tensor  # before the norm
    raw_position_TD: Tensor
    norm: nn.Module  # applied to the sum of the two

    @property
    def terms_XTD(self) -> Tensor:
        """Content, position and constants: [3, T, D]."""
        return torch.stack([self.content_TD, self.position_TD, self.constant_TD])

    @property
    def without_content_TD(self) -> Tensor:
        """Position and constants alone: the baseline of attributions."""
        return self.position_TD + self.constant_TD


def embedded(embed: Any, inputs: tuple[Any, ...], output_BTD: Tensor) -> Embedded:
    """Split the output of an embedding (its first row) into these terms."""
    x_TD = output_BTD[0]
    if isinstance(embed, Embedding):
        content_TD = embed.table(inputs[0])[0] * embed.scale
        sum_TD = embed.positions(content_TD[None], inputs[1][:1])[0]
    elif isinstance(embed, PatchEmbedding):
        patches_BTD = embed.project(inputs[0][:1]).flatten(2).transpose(1, 2)
        extra_tokens = [tokens for tokens in (embed.class_token_1D, embed.registers_ED) if tokens is not None]
        content_TD = torch.cat([*extra_tokens, patches_BTD[0]])
        sum_TD = torch.cat([*extra_tokens, embed.positioned(patches_BTD)[0]])
    else:  # the norm after a Swin's patch embedding, or its patch merging: all content
        zero_TD = torch.zeros_like(x_TD)
        is_norm = isinstance(embed, nn.LayerNorm | RMSNorm)
        raw_content_TD, norm = (inputs[0][0], embed) if is_norm else (x_TD, nn.Identity())
        return Embedded(x_TD, zero_TD, zero_TD, inputs[0][0], raw_content_TD, zero_TD, norm)
    raw_position_TD = sum_TD - content_TD
    terms_XTD = torch.stack([content_TD, raw_position_TD, torch.zeros_like(sum_TD)])
    content, position, constant = through_norm(terms_XTD, embed.norm, sum_TD)
    return Embedded(content, position, constant, inputs[0][0], content_TD, raw_position_TD, embed.norm)
