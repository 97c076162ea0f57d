"""Layer norm helps training.

    x ← x + part(norm(x))          with:      norm(x) = (x − mean) / √(variance + ε) · g + b
                                   without:   norm(x) = x

Without norms the residual stream grows from block to block, and the size of a block's input depends on all weights
before it. The rate that suits one of the two models need not suit the other: so both are trained at several rates, in a
shallow and in a deep stack, and each is judged at the rate that is best for itself.

The stack learns to copy a row of symbols; rows are never shown twice, so the loss of the last steps is one on rows that
are new to the model. No setting of Regard leaves norms out: so the loop is written out here, the same for both. The
model is that of the recipe `reverse`. A first version had scaled and tied embeddings, which are large in a stream that
is normalised: there the shallow stack learned quicker without norms (a loss of 0.34 against 0.90), the deep one with
them (0.48 against 1.42).

Shapes: B rows · T positions · N labels · L depths · R rates
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import nn

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import line, number, set_title
from regard.data.synthetic import sequences, vocabulary_size
from regard.models.causal import Causal
from regard.recipes import changed
from regard.settings import CausalModel, SyntheticSettings
from regard.training.loss import cross_entropy
from regard.training.optimizer import UncompiledAdam

RATES = (0.001, 0.003, 0.01, 0.03)
DEPTHS = (2, 8)
TIMES = 2.0

ABOUT = About(
    text="Layer norm helps training.",
    decks=("003", "004"),
    group="blocks",
    measures="the loss at the end of a short training with and without layer norms, same start and data, at four "
    "learning rates, in stacks of 2 and 8 blocks. A training that diverges counts as guessing.",
    threshold=f"in both stacks, each at its own best rate, the loss without norms is more than {TIMES:.0f} times that "
    "with them (means over seeds); if only in the deep one, it depends on depth.",
    figures={
        "deep": "loss of the deep stack with norms, at its best rate",
        "deep_bare": "the same without norms",
        "shallow": "loss of the shallow stack with norms, at its best rate",
        "shallow_bare": "the same without norms",
        "diverged_bare": "share of the trainings without norms that diverged",
    },
    seeds=Seeds(tiny=1, normal=3, full=10),
)


def experiment(budget: Budget, seed: int, bare: type[nn.Module] = nn.Identity) -> Mapping[str, ArrayLike]:
    """`bare`: what stands in the place of norms in the model that is said to have none."""
    depths, rates = budget.choose(tiny=((4, 6), RATES[2:3]), normal=(DEPTHS, RATES))
    with_LR, bare_LR = (
        np.array([[learn(budget, depth, rate, seed, norm) for rate in rates] for depth in depths])
        for norm in (None, bare)
    )
    guessing = math.log(_data(budget).vocabulary)
    loss_LR, loss_bare_LR = (np.where(np.isfinite(each), each, guessing) for each in (with_LR, bare_LR))
    return {
        "shallow": loss_LR[0].min(),
        "deep": loss_LR[1].min(),
        "shallow_bare": loss_bare_LR[0].min(),
        "deep_bare": loss_bare_LR[1].min(),
        "diverged_bare": (~np.isfinite(bare_LR)).mean(),
        "by_rate": np.stack([loss_LR, loss_bare_LR]),
    }


def learn(budget: Budget, depth: int, rate: float, seed: int, instead: type[nn.Module] | None) -> float:
    """The mean loss of the last ten steps; not a number if it diverged. `instead`: what takes the place of norms."""
    rows, steps = budget.choose(tiny=(16, 40), normal=(32, 100), full=(64, 400))
    data = _data(budget)
    torch.manual_seed(seed)
    shape = CausalModel(layers=depth, width=32, heads=4, feedforward=64, dropout=0, norm="pre", positions="learned")
    model = Causal(changed(shape, scale_embeddings=False, tie_embeddings="none"), vocabulary_size(data))
    if instead is not None:
        model.trunk.norm = instead()
        for block in model.trunk.blocks:
            block.mixer_norm, block.feedforward_norm = instead(), instead()
    optimizer = UncompiledAdam(model.parameters(), lr=rate, betas=(0.9, 0.98))
    losses = []
    for step in range(1, steps + 1):
        batch = sequences(data, rows, np.random.default_rng([seed, step]), training=True)
        asked_BT = batch.labels != batch.nothing
        labels_N = batch.labels[asked_BT]
        loss = cross_entropy(model(batch.tokens_BT)[asked_BT], labels_N) / len(labels_N)
        if not loss.isfinite():
            return math.nan
        losses.append(loss.item())
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, step / (steps // 5))  # a short warm-up, for both
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(np.mean(losses[-10:]))


def _data(budget: Budget) -> SyntheticSettings:
    symbols, length = budget.choose(tiny=(4, 6), normal=(6, 14), full=(10, 26))
    return SyntheticSettings(kind="copy", vocabulary=symbols, length=length)


def verdict(measured: Measured) -> Verdict:
    means = {name: measured.mean(name) for name in ABOUT.figures}
    told = (
        f"At the best rate for each, the deep stack ends at a loss of {number(means['deep'])} with norms and "
        f"{number(means['deep_bare'])} without, the shallow one at {number(means['shallow'])} and "
        f"{number(means['shallow_bare'])}; {means['diverged_bare']:.0%} of the trainings without norms diverged."
    )
    if means["deep_bare"] < TIMES * means["deep"]:
        return does_not_hold(told)
    return holds(told) if means["shallow_bare"] > TIMES * means["shallow"] else depends("depth", told)


def picture(measured: Measured) -> Figure:
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    set_title(figure, ABOUT.text)
    rates = RATES if measured["by_rate"].shape[-1] > 1 else RATES[2:3]
    for place, axis in enumerate(figure.subplots(1, 2, sharey=True)):
        for row, name in enumerate(("with layer norm", "without")):
            line(axis, rates, measured["by_rate"][:, row, place], name, row, log=True)
        axis.set_title(("shallow stack", "deep stack")[place], fontsize=10)
        axis.set_xscale("log")
        axis.set_xlabel("learning rate")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("loss at the end, nats per symbol")
    figure.axes[0].legend(loc="lower left")
    return figure
