"""Residual connections keep the gradient of early layers alive.

    with      x ← x + part(norm(x))            without      x ← part(norm(x))

Measured at the start of training, where a model either gets going or not: how large the gradient of the first block is,
relative to that of the last, as blocks are stacked. Two things are told apart. Layer norm alone keeps the *size* of
gradients, since it brings every vector back to the same length. So all is measured with and without norms. What norms
cannot keep is the difference between positions: attention averages, and without the residual nothing brings a word's
own vector back, so that after a few blocks all positions are alike and no gradient can tell them apart.

Shapes: B rows · T positions · D model width · L depths tried
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor, nn

from regard.claims.frame.claim import About, Budget, Measured, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import chart, line, number
from regard.layers.block import Block
from regard.layers.context import Context
from regard.models.initialise import initialise
from regard.settings import SequenceModel

DEPTHS = (2, 4, 8, 16, 32)
WIDTH, ROWS, POSITIONS = 32, 4, 20
ALIVE, DEAD = 0.1, 0.01

ABOUT = About(
    text="Residual connections keep the gradient of early layers from vanishing.",
    decks=("003", "004"),
    group="blocks",
    measures="the gradient of the first block relative to that of the last, before training, with and without "
    "residuals, with and without layer norm; and how much positions still differ after the last block, relative to "
    "their size.",
    threshold=f"in the deepest stack, more than {ALIVE} with residuals and less than {DEAD} without, with layer norm "
    "and without it.",
    figures={
        "residual": "first block's gradient / last block's, residuals and norms",
        "plain": "the same without residuals, with norms",
        "residual_bare": "the same with residuals, without norms",
        "plain_bare": "the same without residuals, without norms",
        "spread_residual": "how much positions differ at the end, residuals and norms",
        "spread_plain": "how much positions differ at the end, norms only",
    },
)


class WithoutResiduals(Block):
    """A block whose parts replace what they read, instead of adding to it."""

    def forward(self, x: Tensor, context: Context) -> Tensor:
        x = self.mixer(self.mixer_norm(x), context)
        return self.feedforward(self.feedforward_norm(x))


def experiment(budget: Budget, seed: int, plain: type[Block] = WithoutResiduals) -> Mapping[str, ArrayLike]:
    """`plain`: the block that is said to have no residuals."""
    depths = DEPTHS[: budget.choose(tiny=4, normal=5)]
    kinds = {"residual": (Block, True), "plain": (plain, True)}
    kinds |= {"residual_bare": (Block, False), "plain_bare": (plain, False)}
    curves = {name: [gradients(*kind, depth, seed) for depth in depths] for name, kind in kinds.items()}
    return {
        **{name: curve[-1][0] for name, curve in curves.items()},
        **{f"spread_{name}": curves[name][-1][1] for name in ("residual", "plain")},
        "by_depth": [[ratio for ratio, _ in curve] for curve in curves.values()],
    }


def gradients(kind: type[Block], norms: bool, depth: int, seed: int) -> tuple[float, float]:
    """The first block's gradient relative to the last one's; how much positions differ at the end."""
    torch.manual_seed(seed)
    settings = SequenceModel(layers=depth, width=WIDTH, heads=4, feedforward=2 * WIDTH, dropout=0, norm="pre")
    blocks = nn.ModuleList(kind(settings) for _ in range(depth))
    initialise(blocks, settings, depth)
    blocks.double()
    for block in blocks if not norms else ():
        block.mixer_norm, block.feedforward_norm = nn.Identity(), nn.Identity()
    x_BTD, target_BTD = torch.randn(2, ROWS, POSITIONS, WIDTH, dtype=torch.float64)
    context = Context.build(None, torch.arange(POSITIONS)[None], causal=False)
    for block in blocks:
        x_BTD = block(x_BTD, context)
    (nn.functional.layer_norm(x_BTD, (WIDTH,)) * target_BTD).mean().backward()
    sizes = [
        torch.cat([weight.grad.flatten() for weight in block.parameters() if weight.grad is not None]).norm()
        for block in blocks
    ]
    around_BTD = x_BTD - x_BTD.mean(1, keepdim=True)
    return float(sizes[0] / sizes[-1]), (around_BTD.norm() / x_BTD.norm()).item()


def verdict(measured: Measured) -> Verdict:
    residual, plain, bare, plain_bare = (
        measured.mean(name) for name in ("residual", "plain", "residual_bare", "plain_bare")
    )
    told = (
        f"With norms, the first block's gradient is {number(residual)} of the last one's with residuals and "
        f"{number(plain)} without; without norms {number(bare)} and {number(plain_bare)}. Positions differ by "
        f"{measured.mean('spread_residual'):.0%} of their size at the end with residuals, by "
        f"{number(measured.mean('spread_plain'))} without: norms keep the gradient's size, only "
        f"residuals what it is about."
    )
    if min(residual, bare) < ALIVE:
        return does_not_hold(told)
    if max(plain, plain_bare) < DEAD:
        return holds(told)
    return depends("layer norm", told) if plain_bare < DEAD else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "blocks", "gradient of the first block / of the last")
    names = ("residuals, norms", "no residuals, norms", "residuals, no norms", "no residuals, no norms")
    depths = DEPTHS[: measured["by_depth"].shape[-1]]
    for place, name in enumerate(names):
        line(axis, depths, measured["by_depth"][:, place], name, place, log=True)
    axis.set_xscale("log", base=2)
    axis.legend()
    return figure
