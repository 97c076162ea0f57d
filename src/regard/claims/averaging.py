"""Averaging the last checkpoints: the mean of their weights translates better than the last of them.

    w̄ = ¹⁄₅ (w_n + w_(n−k) + … + w_(n−4k))          k: steps between checkpoints

Steps with a high rate circle around a good place, and the mean of a circle is its middle. A schedule that ends at zero
has come to rest by itself: its last checkpoints lie along the way there, and their mean is a step back. So both are
tried: a rate that stays, and one that falls to zero along a cosine. Both are the base translator, trained a little
shorter; each run is tested twice, with its last weights and with the mean of its last five checkpoints. The tiny
version sorts symbols instead, and counts those that are right instead of BLEU.

In a training this short the rate that falls ends far above the one that stays (a loss of 1.24 against 0.60): the two
models are not equally good, and each is compared with its own mean alone.

That a gain must be one per cent at least was added after a trial of the tiny version: one seed has no interval.
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard import console
from regard.claims.frame import synthetic, translation
from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import COLOURS, MARKS, chart
from regard.claims.frame.trainings import trained_model
from regard.training.checkpoint import Checkpoints, load_model

SCHEDULES = {"constant": "a rate that stays", "cosine": "a rate that falls to zero"}
AVERAGED = 5  # as in the paper
LOWER = 0.01  # by how much a loss must be, relative to it

ABOUT = About(
    text="The mean of the last checkpoints is a better model than the last one.",
    decks=(),
    group="blocks",
    measures="loss and BLEU on held-out pairs, of the last weights and of the mean of the last five checkpoints (a "
    "fifth of the training), after a constant rate and after one that falls to zero.",
    threshold=f"with both schedules the loss of the mean is lower, by {LOWER:.0%} or more, and by more than the 95 % "
    "interval over seeds.",
    figures={
        "constant_gain": "loss of the last weights − loss of the mean, constant rate",
        "cosine_gain": "the same, rate falls to zero",
        "constant_last": "loss of the last weights, constant rate",
        "cosine_last": "loss of the last weights, rate falls to zero",
        "constant_bleu": "BLEU of the mean − BLEU of the last weights, constant rate",
        "cosine_bleu": "the same, rate falls to zero",
    },
    seeds=Seeds(tiny=1, normal=3, full=5),
)


def experiment(budget: Budget, seed: int, averaged: int = AVERAGED) -> Mapping[str, ArrayLike]:
    score = budget.choose(tiny="accuracy", normal="bleu")
    measured: dict[str, ArrayLike] = {}
    for schedule in SCHEDULES:
        last, mean = tested(budget, schedule, seed, averaged)
        measured[f"{schedule}_gain"] = last["loss"] - mean["loss"]
        measured[f"{schedule}_bleu"] = mean[score] - last[score]
        measured[f"{schedule}_last"], measured[f"{schedule}_mean"] = last["loss"], mean["loss"]
    return measured


def tested(budget: Budget, schedule: str, seed: int, averaged: int) -> tuple[dict[str, float], dict[str, float]]:
    """The metrics of the last weights, and those of the mean of the last checkpoints."""
    steps = budget.choose(tiny=75, normal=250, full=2000)
    every = steps // 25
    if budget.size == "tiny":  # a translator of a second learns nothing: a model that sorts symbols does
        recipe = synthetic.RECIPE
        base = synthetic.symbols("sort", vocabulary=6, half=5, rows=8, layers=1, steps=steps)
        base += ["training.learning_rate=0.01"]
    else:
        recipe, base = translation.RECIPE, [*translation.translator(budget), "training.validate_bleu=false"]
    run = trained_model(
        budget,
        recipe,
        *base,
        f"training.steps={steps}",
        f"training.validate_every={steps}",
        f"training.warmup={every}",
        f"training.save_every={every}",
        f"training.keep_checkpoints={AVERAGED}",
        f'training.schedule="{schedule}"',
        seed=seed,
    )
    saved = Checkpoints(run.folder.checkpoints, every, AVERAGED, console.warn)
    with console.silent():
        run.prepare()
        last = run.test()
        load_model(run.model, saved.mean(saved.steps()[-averaged:]), run.folder.path)
        return last, run.test()


def verdict(measured: Measured) -> Verdict:
    gains = {schedule: measured.mean(f"{schedule}_gain") for schedule in SCHEDULES}
    helps = [
        schedule
        for schedule, gain in gains.items()
        if gain >= LOWER * measured.mean(f"{schedule}_last") and measured.interval(f"{schedule}_gain")[0] > 0
    ]
    told = " ".join(
        f"After {words}, averaging takes the loss from {measured.mean(f'{schedule}_last'):.3f} to "
        f"{measured.mean(f'{schedule}_mean'):.3f} and BLEU by {measured.mean(f'{schedule}_bleu'):+.1f}."
        for schedule, words in SCHEDULES.items()
    )
    if gains["cosine"] < 0 < gains["constant"]:
        told += " Once the rate has fallen to zero nothing is left to average out, and the mean is a step back."
    if len(helps) == len(SCHEDULES):
        return holds(told)
    return depends("the schedule", told) if helps else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, y="loss on held-out pairs (a line for each seed)")
    for place, (schedule, words) in enumerate(SCHEDULES.items()):
        values_2S = [measured[f"{schedule}_last"], measured[f"{schedule}_mean"]]
        first, *_ = axis.plot([0, 1], values_2S, color=COLOURS[place], marker=MARKS[place])
        first.set_label(words)
    axis.set_xticks([0, 1], ["last weights", f"mean of the last {AVERAGED} checkpoints"])
    axis.set_xlim(-0.4, 1.4)
    axis.legend(loc="center right")
    return figure
