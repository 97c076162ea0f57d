"""Without a non-linearity, two layers are one.

    (x W₁ + b₁) W₂ + b₂  =  x (W₁ W₂) + (b₁ W₂ + b₂)

So a feed-forward part without activation is one matrix, of a rank no higher than before, and whatever it learns the
matrices around it could. Shown twice: the product on the right is computed from the weights and compared with the
layer; and the best linear map is fitted to what the layer gives, which leaves nothing over if, and only if, it is
linear.

Shapes: B vectors · D model width · F inner width
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor

from regard.claims.frame.claim import About, Budget, Measured, Verdict, does_not_hold, holds
from regard.claims.frame.pictures import bars, chart, number
from regard.layers.feedforward import FeedForward
from regard.settings import SequenceModel

VECTORS, WIDTH, INNER = 2000, 16, 64
LINEAR, BENT = 1e-9, 0.05
KINDS = ("relu", "gelu", "silu")

ABOUT = About(
    text="Without a non-linearity the feed-forward part adds nothing: two layers collapse into one matrix.",
    decks=("004",),
    group="blocks",
    measures="how far the layer without activation is from the one matrix computed from its weights; and the share of "
    "its output that the best linear map leaves over, without activation and with ReLU, GELU and SiLU.",
    threshold=f"without activation both are below {LINEAR:g}; with each activation more than {BENT:.0%} is left over.",
    figures={
        "collapsed": "relative difference between the layer without activation and one matrix",
        "left_none": "share that a linear map leaves over, no activation",
        "left_relu": "the same with ReLU",
        "left_gelu": "the same with GELU",
        "left_silu": "the same with SiLU",
    },
)


def experiment(
    budget: Budget, seed: int, activation: Callable[[Tensor], Tensor] = lambda inner: inner
) -> Mapping[str, ArrayLike]:
    """`activation`: what stands in its place when there is none."""
    torch.manual_seed(seed)
    x_BD = torch.randn(VECTORS, WIDTH, dtype=torch.float64)
    layers = {kind: _layer(kind) for kind in KINDS}
    linear = layers["relu"]
    with torch.no_grad():
        left = {kind: left_over(x_BD, layer(x_BD)) for kind, layer in layers.items()}
        linear.activation = activation
        y_BD = linear(x_BD)
        one_DD = (linear.contract.weight @ linear.expand.weight).T
        bias_D = linear.contract.weight @ linear.expand.bias + linear.contract.bias
        collapsed = float((x_BD @ one_DD + bias_D - y_BD).norm() / y_BD.norm())
    return {
        "collapsed": collapsed,
        "left_none": left_over(x_BD, y_BD),
        **{f"left_{kind}": share for kind, share in left.items()},
    }


def _layer(kind: str) -> FeedForward:
    shape = {"width": WIDTH, "heads": 1, "feedforward": INNER, "activation": kind, "dropout": 0}
    return FeedForward(SequenceModel.model_validate(shape)).double()


def left_over(x_BD: Tensor, y_BD: Tensor) -> float:
    """What the best affine map of x does not explain of y, as a share of its size around the mean."""
    with_one = torch.cat([x_BD, torch.ones(len(x_BD), 1, dtype=x_BD.dtype)], dim=1)
    rest_BD = y_BD - with_one @ torch.linalg.lstsq(with_one, y_BD).solution
    return float(rest_BD.norm() / (y_BD - y_BD.mean(0)).norm())


def verdict(measured: Measured) -> Verdict:
    linear = max(measured["collapsed"].max(), measured["left_none"].max())
    bent = {kind: measured.mean(f"left_{kind}") for kind in KINDS}
    told = (
        f"Without activation one matrix does the same ({number(linear)} at worst). With one, no matrix can: "
        + ", ".join(f"{share:.0%} is left over with {kind}" for kind, share in bent.items())
        + "."
    )
    return holds(told) if linear < LINEAR and min(bent.values()) > BENT else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, y="share that the best linear map leaves over")
    bars(axis, ["none", *KINDS], [measured[f"left_{kind}"] for kind in ("none", *KINDS)])
    axis.set_xlabel("activation")
    return figure
