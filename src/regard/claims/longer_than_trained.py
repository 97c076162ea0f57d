"""Sequences that are longer than those of the training.

    learned          a table has no entries there: rows that were never trained
    sinusoidal       a code for every p, but combinations that were never seen
    index            a number larger than any before
    rotary, none     nothing about p itself: distances, or only what stands before
    GRU              the same state, a few times more

One deck has it that a Transformer is of fixed length, unlike an RNN of arbitrary length; another, that without
recurrence any length of context is possible. The task: each key has a value, and keys come again (recall). It needs no
more of a long sequence than of a short one, so only the model can be the reason if it fails. Eight times the length of
the training were planned; it became sixteen, since short trainings in the tiny size show less at eight.

Shapes: K kinds of models · L lengths
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import GREY, chart, line
from regard.claims.frame.synthetic import SHORT, right_at
from regard.claims.frame.trainings import trained_model

POSITIONS = ("learned", "rotary", "sinusoidal", "index", "none")
RECURRENT = "gru"
TIMES = (1, 2, 4, 8, 16)  # as long as in training
LEARNED, KEPT, LOST = 0.9, 0.9, 0.75

ABOUT = About(
    text="A Transformer is of fixed length: it fails on sequences longer than those it has seen, an RNN does not.",
    decks=("000", "002"),
    group="limits",
    measures="right answers in a recall of keys and values, in the last of sixteen times as many positions as in "
    "training, for each kind of positions and for a GRU; relative to sequences of the trained length.",
    threshold=f"the GRU keeps more than {KEPT:.0%}, and with every kind of positions less than {LOST:.0%} is kept.",
    figures={
        "gru": "kept at sixteen times the length, GRU",
        "learned": "kept at sixteen times the length, learned positions",
        "rotary": "kept at sixteen times the length, rotary positions",
    },
    seeds=Seeds(tiny=1, normal=3, full=10),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    length, steps, keys = budget.choose(tiny=(12, 80, 3), normal=(32, 200, 4), full=(64, 1000, 8))
    settings = [
        *SHORT,
        'synthetic.kind="recall-multi"',
        f"synthetic.vocabulary={2 * keys}",
        f"synthetic.length={length}",
        f"training.tokens_per_batch={32 * length}",
        f"training.steps={steps}",
        "model.width=32",
        "model.feedforward=64",
    ]
    # With the learning rates of the recipe, a GRU learns much more slowly than attention.
    rates = ["training.learning_rate=0.01", "training.muon.learning_rate=0.05"]
    models = {"gru": ['model.positions="none"', f'model.mixer="{RECURRENT}"', *rates]}
    models |= {kind: [f'model.positions="{kind}"'] for kind in POSITIONS[: budget.choose(tiny=2, normal=5)]}
    curves_KL = []
    for changes in models.values():
        run = trained_model(budget, "recall", *settings, *changes, seed=seed)
        # At the end: the first positions of a long sequence are those of a short one.
        curves_KL.append([np.nanmean(right_at(run, times * length)[-length // 2 :]) for times in TIMES])
    kept = {name: curve[-1] / curve[0] for name, curve in zip(models, curves_KL, strict=True)}
    return {**kept, "by_length": curves_KL}


def verdict(measured: Measured) -> Verdict:
    kinds = [kind for kind in POSITIONS if kind in measured]
    kept = {kind: measured.mean(kind) for kind in ("gru", *kinds)}
    told = ", ".join(f"{kind} {share:.0%}" for kind, share in kept.items())
    told = f"Kept at sixteen times the length: {told}."
    if measured.curve("by_length")[:, 0].min() < LEARNED:
        return does_not_hold(f"Not every model has learned the task at the length of the training. {told}")
    fail = [kind for kind in kinds if kept[kind] < LOST]
    if kept["gru"] <= KEPT or not fail:
        return does_not_hold(told)
    if len(fail) == len(kinds):
        return holds(told)
    return depends("the kind of positions", f"{told} Beyond the trained length it fails with {', '.join(fail)}.")


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "length, in lengths of the training", "share of right answers at the end")
    names = ("GRU", "learned positions", "rotary", "sines", "the number itself", "no positions")
    for place, name in enumerate(names[: measured["by_length"].shape[1]]):
        line(axis, TIMES, measured["by_length"][:, place], name, place)
    axis.set_xscale("log", base=2)
    axis.set_xticks(TIMES, [f"{times} ×" for times in TIMES])
    axis.axvline(1, color=GREY, linestyle=":", linewidth=1)
    axis.set_ylim(0, 1.05)
    axis.legend(loc="lower left", ncols=2)
    return figure
