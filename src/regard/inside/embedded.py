"""What the first block reads, as a sum: what stands there, where it stands, and constants.

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
    """The first three sum to what the first block reads."""

    content_TD: Tensor  # the word or the patch; of tokens that stand for nothing, such as a class token, themselves
    position_TD: Tensor
    constant_TD: Tensor  # what a norm adds
    given: Tensor  # what the embedding read: ids [T], an image [C, H, W], or vectors [T, D]
    token_TD: Tensor  # content before the norm
    place_TD: Tensor  # position before the norm
    norm: nn.Module  # of their sum

    @property
    def terms_XTD(self) -> Tensor:
        """[3, T, D]; the last are the constants."""
        return torch.stack([self.content_TD, self.position_TD, self.constant_TD])

    @property
    def without_content_TD(self) -> Tensor:
        """The same place with nothing in it: what attributions compare with."""
        return self.position_TD + self.constant_TD


def embedded(embed: Any, inputs: tuple[Any, ...], output_BTD: Tensor) -> Embedded:
    """The sum that an embedding made of these inputs, of which it has one row."""
    x_TD = output_BTD[0]
    if isinstance(embed, Embedding):
        content_TD = embed.table(inputs[0])[0] * embed.scale
        sum_TD = embed.positions(content_TD[None], inputs[1][:1])[0]
    elif isinstance(embed, PatchEmbedding):
        patches_BTD = embed.project(inputs[0][:1]).flatten(2).transpose(1, 2)
        beside = [tokens for tokens in (embed.class_token_1D, embed.registers_ED) if tokens is not None]
        content_TD = torch.cat([*beside, patches_BTD[0]])
        sum_TD = torch.cat([*beside, embed.positioned(patches_BTD)[0]])
    else:  # a step of its own: the norm of a Swin's patches, or its merging of them
        none_TD = torch.zeros_like(x_TD)
        normed = isinstance(embed, nn.LayerNorm | RMSNorm)
        token_TD, norm = (inputs[0][0], embed) if normed else (x_TD, nn.Identity())
        return Embedded(x_TD, none_TD, none_TD, inputs[0][0], token_TD, none_TD, norm)
    place_TD = sum_TD - content_TD
    terms_XTD = torch.stack([content_TD, place_TD, torch.zeros_like(sum_TD)])
    content, position, constant = through_norm(terms_XTD, embed.norm, sum_TD)
    return Embedded(content, position, constant, inputs[0][0], content_TD, place_TD, embed.norm)
