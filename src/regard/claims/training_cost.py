"""What it costs to train a translator to a given BLEU: the shape of Table 2 of "Attention Is All You Need".

    cost(BLEU) = steps until the validation reaches it · arithmetic of a training step

The table compares models that others had published, of many sizes and trained in many ways. Here all is the same but
the model: data, vocabulary, width, depth, optimizer, steps. Arithmetic is counted on batches of the training itself,
forward and backward. A second cost is counted beside it, which FLOPs do not show: operations that must wait for one
another, the longest chain of a forward pass times the steps.

The BLEU to reach is 80 % of the best that the worse model gets to. The tiny size learns too little for any BLEU, and
takes the validation loss instead. The threshold was set after one seed of two-layer models had shown that both need
about as many steps, and before arithmetic was counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard import console
from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.operations import longest_chain, operations
from regard.claims.frame.pictures import chart, line, number
from regard.claims.frame.trainings import trained_model
from regard.claims.frame.translation import RECIPE, translator
from regard.data.batch import DataState

MODELS = {"transformer": (), "gru": ('model.mixer="gru"', 'model.cross="bahdanau"')}
CHEAPER, BATCHES = 0.5, 2

ABOUT = About(
    text="A Transformer is trained to a given BLEU at a fraction of what a recurrent encoder-decoder costs.",
    decks=("002",),
    group="cost",
    measures="arithmetic of the training steps until a small translator reaches 80 % of the worse model's best BLEU on "
    "validation sentences: Transformer / GRU with Bahdanau's attention; and the same of operations that wait for each "
    "other.",
    threshold=f"the Transformer needs less than {CHEAPER:g} of the arithmetic, and {CHEAPER:g} of what waits.",
    figures={
        "ratio": "arithmetic to the same BLEU, Transformer / GRU",
        "ratio_waiting": "operations that wait, to the same BLEU, Transformer / GRU",
        "arithmetic_transformer": "arithmetic to that BLEU, Transformer",
        "arithmetic_gru": "arithmetic to that BLEU, GRU",
        "best_transformer": "best BLEU in validation, Transformer",
        "best_gru": "best BLEU in validation, GRU",
    },
    seeds=Seeds(tiny=1, normal=3, full=5),
)


@dataclass(frozen=True)
class Course:
    """Of a training: the quality at some steps, and what one step costs."""

    steps: list[float]
    quality: list[float]
    arithmetic: float
    waiting: float

    def steps_to(self, level: float) -> float:
        """The step at which this quality is reached first, on a line between two validations."""
        best = np.maximum.accumulate(self.quality)
        return float(np.interp(level, best, self.steps))


def experiment(budget: Budget, seed: int, models: Mapping[str, tuple[str, ...]] = MODELS) -> Mapping[str, ArrayLike]:
    """`models`: the settings of each; a test has others."""
    metric, sign, steps, tokens = budget.choose(
        tiny=("valid_loss", -1, 20, 128), normal=("valid_bleu", 1, 250, 1024), full=("valid_bleu", 1, 2000, 2048)
    )
    changes = (
        *translator(budget),
        "model.layers=1",
        f"training.steps={steps}",
        f"training.validate_every={steps // 5}",
        f"training.validate_bleu={str(sign > 0).lower()}",
        f"training.tokens_per_batch={tokens}",
    )
    courses = {}
    for name in MODELS:
        task = trained_model(budget, RECIPE, *changes, *models[name], seed=seed)
        records = [record for record in task.folder.read_metrics() if metric in record]
        quality = [sign * record[metric] for record in records]
        courses[name] = Course([record["step"] for record in records], quality, *cost_of_a_step(task))
    best = {name: max(course.quality) for name, course in courses.items()}
    level = min(best.values()) * (0.8 if sign > 0 else 1.0)
    needed = {name: course.steps_to(level) for name, course in courses.items()}
    arithmetic = {name: needed[name] * course.arithmetic for name, course in courses.items()}
    waiting = {name: needed[name] * course.waiting for name, course in courses.items()}
    return {
        "ratio": arithmetic["transformer"] / arithmetic["gru"],
        "ratio_waiting": waiting["transformer"] / waiting["gru"],
        **{f"arithmetic_{name}": arithmetic[name] for name in MODELS},
        **{f"best_{name}": best[name] for name in MODELS},
        **{f"steps_{name}": needed[name] for name in MODELS},
        "spent": [[step * course.arithmetic for step in course.steps] for course in courses.values()],
        "quality": [course.quality for course in courses.values()],
    }


def cost_of_a_step(task: Any) -> tuple[float, float]:
    """Arithmetic of forward and backward, and the longest chain of the forward pass; means over some batches."""
    with console.silent():
        task.prepare()
    batches = [batch for batch, _ in islice(task.stream.batches(DataState()), BATCHES)]
    batches = [batch.to(task.hardware.device) for batch in batches]
    task.model.train()
    arithmetic = [operations(partial(_backward, task, batch)) for batch in batches]
    waiting = [longest_chain(partial(task.loss, batch)) for batch in batches]
    return float(np.mean(arithmetic)), float(np.mean(waiting))


def _backward(task: Any, batch: Any) -> None:
    task.loss(batch).backward()


def verdict(measured: Measured) -> Verdict:
    ratio, waiting = measured.mean("ratio"), measured.mean("ratio_waiting")
    told = (
        f"To the same quality the Transformer needs {number(measured.mean('arithmetic_transformer'))} operations in "
        f"{measured.mean('steps_transformer'):.0f} steps, the GRU {number(measured.mean('arithmetic_gru'))} in "
        f"{measured.mean('steps_gru'):.0f}: {ratio:.2f} of the arithmetic, but {waiting:.3f} of the operations that "
        f"must wait for each other."
    )
    if ratio < CHEAPER and waiting < CHEAPER:
        return holds(told)
    return depends("what is counted", told) if min(ratio, waiting) < CHEAPER else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "arithmetic of the training so far (operations)", "BLEU in validation")
    for place, name in enumerate(("Transformer", "GRU with Bahdanau's attention")):
        line(axis, measured.curve("spent")[place], measured["quality"][:, place], name, place)
    axis.legend(loc="lower right")
    return figure
