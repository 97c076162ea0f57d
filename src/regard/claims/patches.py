"""Patches are words: a Vision Transformer is the Transformer with another embedding.

    text     x_t = E[word_t] + PE(t)                     image    x_t = patch_t W + PE(t)
    then the same blocks

That "everything else is the same" can be taken at its word. The blocks of a ViT and of a text encoder must come from
the same class and file, and with the same weights give the same numbers for the same vectors. And what stands before
them must be no more than flattening a patch and multiplying it by a matrix.

Shapes: B images · C channels · H × W pixels · T patches · D model width
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional as F

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, does_not_hold, holds
from regard.claims.frame.pictures import BLUE, GREY, chart, number
from regard.layers.context import Context
from regard.layers.embedding import token_embedding
from regard.models.initialise import initialise
from regard.models.trunk import Trunk
from regard.models.vision import VisionTransformer
from regard.settings import ImageModel, SequenceModel

SIDE, PATCH, SAME = 16, 4, 1e-9
SHAPE: dict[str, Any] = {"layers": 2, "width": 32, "heads": 4, "feedforward": 64, "dropout": 0.0, "norm": "pre"}

ABOUT = About(
    text="To a Vision Transformer patches are words: behind the embedding, everything is the same.",
    decks=("000", "002", "004"),
    group="vision",
    measures="whether the blocks of a ViT and of a text encoder are of the same class and file; how far their outputs "
    "differ with the same weights on the same vectors; and how far a patch's vector is from its pixels times a matrix.",
    threshold=f"the same class and file; both differences below {SAME:g} of the outputs.",
    figures={
        "blocks": "relative difference of the outputs, same weights",
        "embedding": "relative difference between a patch's vector and pixels times a matrix",
        "shared": "share of the ViT's weights that belong to such blocks",
        "same_class": "blocks of the same class and file, share",
    },
    seeds=Seeds(tiny=1, normal=5, full=5),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    torch.manual_seed(seed)
    vit = VisionTransformer(ImageModel(patch=PATCH, positions="learned", **SHAPE), SIDE, SIDE, 3, classes=10).double()
    settings = SequenceModel(positions="none", **SHAPE)
    text = Trunk(settings, token_embedding(settings, 100), causal=False).double()
    initialise(text, settings, depth=2)
    text.blocks.load_state_dict(vit.trunk.blocks.state_dict())
    text.norm.load_state_dict(vit.trunk.norm.state_dict())
    images_BCHW = torch.randn(4, 3, SIDE, SIDE, dtype=torch.float64)
    with torch.no_grad():
        patches_BTD = vit.patches(images_BCHW)
        context = Context.build(None, torch.arange(patches_BTD.shape[1])[None], causal=False)
        blocks = relative(text.read(patches_BTD, context), vit.tokens(images_BCHW))
        project = vit.patches.project
        assert vit.patches.positions_RSD is not None and project.bias is not None
        pixels_BTX = F.unfold(images_BCHW, PATCH, stride=PATCH).mT
        product_BTD = pixels_BTX @ project.weight.flatten(1).T + project.bias + vit.patches.positions_RSD.flatten(0, 1)
    pairs = list(zip(vit.trunk.blocks, text.blocks, strict=True))
    in_blocks = sum(weight.numel() for weight in vit.trunk.blocks.parameters())
    return {
        "blocks": blocks,
        "embedding": relative(product_BTD, patches_BTD),
        "shared": in_blocks / sum(weight.numel() for weight in vit.parameters()),
        "same_class": sum(type(a) is type(b) and inspect.getfile(type(a)) == inspect.getfile(type(b)) for a, b in pairs)
        / len(pairs),
    }


def relative(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


def verdict(measured: Measured) -> Verdict:
    blocks, embedding = measured["blocks"].max(), measured["embedding"].max()
    told = (
        f"Blocks of one class, from one file, give outputs that differ by {number(blocks)}; a patch's vector is "
        f"its pixels times a matrix ({number(embedding)}). {measured.mean('shared'):.0%} of the weights of this ViT "
        f"are in its blocks."
    )
    same = measured["same_class"].min() == 1
    return holds(told) if same and max(blocks, embedding) < SAME else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "share of the weights")
    shared = measured.mean("shared")
    axis.barh([0], [shared], color=BLUE, label="blocks: the same as for words")
    axis.barh([0], [1 - shared], left=[shared], color=GREY, label="patches, positions and classes: its own")
    axis.set_yticks([])
    axis.set_ylim(-1, 1)
    axis.legend(loc="upper center")
    return figure
