"""Several heads instead of one: each looks elsewhere, and writes elsewhere.

    head_i = softmax(X Wq_i (X Wk_i)ᵀ / √K) X Wv_i            MultiHead = Σ_i head_i Wo_i            K = D / H

However many heads share a width, the weights are as many. What differs is how many places a position can look at
at once. The task needs several: what all permutations so far amount to. Measured of every pair of heads in a block:

    looks     ½ Σ_s |a_i(t, s) − a_j(t, s)|, mean over positions t: 0 is the same, 1 nothing in common
    overlap   mean cos² of the angles between the spaces that Wo_i and Wo_j write to: 1 is the same, K / D is chance

The task was chosen after a trial with one seed each: the small translator had 71.0 BLEU with four heads and 69.5 with
one, too little to tell apart at this cost; permutations showed more. So the verdict is about a task that needs several
places at once, and the gain in translation is small at best. It depends on the training, too: with 400 updates at a
learning rate of 0.005, four heads had 61 % and one 43 % ("holds"); with 500 at 0.003, which is the one that stayed,
63 % and 59 %: one head learns more slowly, and catches up.

Shapes: B sequences · H heads · T queries · S keys · V value width of a head · D model width
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import bars, set_title
from regard.claims.frame.synthetic import permutations
from regard.claims.frame.trainings import metrics, trained, trained_model
from regard.data.synthetic import held_out, spell

MANY = 4
TRACED = 8  # sequences
ELSEWHERE, APART, BETTER = 0.25, 0.5, 0.05

ABOUT = About(
    text="Heads look at different places and work in different subspaces, so several beat one of the same width.",
    decks=("002", "003", "004"),
    group="attention",
    measures=f"how differently the {MANY} heads of a block share out their attention, how much the spaces they write "
    "to overlap, and right answers about permutations with one head and with four, of the same width.",
    threshold=f"heads differ in more than {ELSEWHERE:.0%} of their attention, their spaces overlap by less than "
    f"{APART:.0%}, and {MANY} heads answer at least {BETTER:.0%} more questions rightly than one.",
    figures={
        "many": "right answers, four heads",
        "one": "right answers, one head",
        "looks": "share of attention in which two heads differ",
        "overlap": "overlap of the spaces that two heads write to",
    },
    seeds=Seeds(tiny=1, normal=3, full=10),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    settings = permutations(budget)
    one = metrics(trained(budget, "permutations", *settings, "model.heads=1", seed=seed))
    run = trained_model(budget, "permutations", *settings, f"model.heads={MANY}", seed=seed)
    looks, overlap = between_heads(run)
    many = run.evaluate().metrics["accuracy"]
    return {"many": many / 100, "one": one["accuracy"] / 100, "looks": looks, "overlap": overlap}


@torch.no_grad()
def between_heads(run: Any) -> tuple[float, float]:
    """How differently two heads of a block look, and how much the spaces that they write to overlap; mean of pairs."""
    settings, looks, overlaps = run.settings.synthetic, [0.0], [0.0]
    for tokens_T in held_out(settings, "test").first(TRACED).tokens_BT.tolist():
        for part in run.trace(" ".join(spell(settings, token) for token in tokens_T)).parts():
            if part.attends:
                weights_HTS = part.attention().weights_BHTS[0, :, 1:]  # the first position sees itself alone
                pairs = combinations(weights_HTS, 2)
                looks += [float((one - other).abs().sum(-1).mean() / 2) for one, other in pairs]
    for block in run.model.trunk.blocks:
        bases_HDV = torch.linalg.qr(block.mixer.to_out.weight.unflatten(1, (MANY, -1)).transpose(0, 1)).Q
        overlaps += [float((one.T @ other).square().sum() / one.shape[1]) for one, other in combinations(bases_HDV, 2)]
    return float(np.mean(looks[1:] or looks)), float(np.mean(overlaps[1:] or overlaps))


def verdict(measured: Measured) -> Verdict:
    many, one, looks, overlap = (measured.mean(name) for name in ABOUT.figures)
    told = (
        f"Two heads of a block differ in {looks:.0%} of their attention, and the spaces that they write to overlap by "
        f"{overlap:.0%} (by chance {1 / MANY:.0%}). Right answers: {many:.0%} with {MANY} heads, {one:.0%} with one."
    )
    if looks < ELSEWHERE or overlap > APART:
        return does_not_hold(told)
    return (
        holds(told)
        if many - one > BETTER
        else depends("task and training", f"Heads differ, but help little here. {told}")
    )


def picture(measured: Measured) -> Figure:
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    set_title(figure, ABOUT.text)
    left, right = figure.subplots(1, 2)
    bars(left, ["one head", f"{MANY} heads"], [measured["one"], measured["many"]])
    left.set_ylabel("share of right answers")
    bars(
        right,
        ["attention in which\nthey differ", "overlap of what\nthey write to"],
        [measured["looks"], measured["overlap"]],
    )
    right.set_ylabel("two heads of a block")
    for axis in (left, right):
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    return figure
