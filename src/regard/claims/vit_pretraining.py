"""Pre-training a Vision Transformer on some images, fine-tuning it on others.

    pre-trained     θ₀ random → images of 0 … 4 → the few images of 5 … 9
    from scratch    θ₀ random →                   the few images of 5 … 9, for as many steps as the other took in all

The classes of the two sets have nothing in common, and the last layer is new in both. So what is gained are features:
strokes and where they lie. The model from scratch is given all the steps that both trainings of the other one took:
else it could lose for want of time alone.

What a trial changed: fine-tuning has as many steps as pre-training, as half of them were too few. Also tried, with one
seed each: lower rates in it (worse than from scratch), and other sets to pre-train on, seven digits of ten (+1 and +3
points) or all of them upside down (+9 and −5). Rates were chosen from scratch. The threshold is as it was.

Shapes: K numbers of images of each class
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.digits import RECIPE, all_digits, classifier, images
from regard.claims.frame.pictures import by_count
from regard.claims.frame.trainings import metrics, trained

FIRST, LATER = range(5), range(5, 10)  # digits to pre-train on, and to fine-tune on
FEWEST, FEW = 2, 5  # images of each class
GAIN = 5.0  # points

ABOUT = About(
    text="A Vision Transformer that was pre-trained on other images is better on little data than one from scratch.",
    decks=("004",),
    group="vision",
    measures="the accuracy on unseen images of the digits 5 to 9, after training on few of them: pre-trained on the "
    "digits 0 to 4, and from scratch, for as many steps as pre-training and fine-tuning together.",
    threshold=f"with {FEWEST} and with {FEW} images of each class, pre-training gains at least {GAIN:.0f} points, and "
    "more than the interval of the difference.",
    figures={
        "gain_fewest": f"gain, {FEWEST} images of each class, points",
        "gain_few": f"gain, {FEW} images of each class, points",
        "gain_most": "gain, most images of each class, points",
        "accuracy_few": f"accuracy of the pre-trained one, {FEW} images of each class, %",
    },
    seeds=Seeds(tiny=1, normal=3, full=10),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    steps = budget.choose(tiny=12, normal=80, full=300)
    each_class = budget.choose(tiny=(FEW,), normal=(FEWEST, FEW, 20), full=(FEWEST, FEW, 20, 60))
    train, test = all_digits()
    first = images(budget, "digits-0-4", train.of(FIRST), test.of(FIRST))
    pretrained = trained(budget, RECIPE, *first, *model(budget, steps), seed=seed)
    accuracies: list[list[float]] = [[], []]
    for each in each_class:
        few = images(budget, f"digits-5-9-{each}-{seed}", train.of(LATER).few(each, seed), test.of(LATER))
        tuned = trained(budget, RECIPE, *few, *model(budget, steps), seed=seed, start_from=pretrained)
        scratch = trained(budget, RECIPE, *few, *model(budget, steps_from_scratch(steps)), seed=seed)
        accuracies[0].append(metrics(tuned)["accuracy"])
        accuracies[1].append(metrics(scratch)["accuracy"])
    gains = [tuned - scratch for tuned, scratch in zip(*accuracies, strict=True)]
    return {
        "gain_fewest": gains[0],
        "gain_few": gains[each_class.index(FEW)],
        "gain_most": gains[-1],
        "accuracy_few": accuracies[0][each_class.index(FEW)],
        "each_class": each_class,
        "accuracies": accuracies,
    }


def model(budget: Budget, steps: int) -> list[str]:
    return classifier(steps, *budget.choose(tiny=(32, 1), normal=(48, 2), full=(64, 3)))


def steps_from_scratch(steps: int) -> int:
    """As many as pre-training and fine-tuning together."""
    return 2 * steps


def verdict(measured: Measured) -> Verdict:
    tuned, scratch = measured.curve("accuracies")
    each_class = measured.curve("each_class")
    told = "; ".join(f"{t:.1f} and {s:.1f} with {n:.0f}" for n, t, s in zip(each_class, tuned, scratch, strict=True))
    told = f"Accuracy in percent, pre-trained and from scratch, by images of each class: {told}."
    gained = [measured.mean(name) > max(GAIN, measured.half_width(name) or 0) for name in ("gain_fewest", "gain_few")]
    if all(gained):
        return holds(told)
    return depends("how many images there are", told) if any(gained) else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    names = ("pre-trained on other digits", "from scratch, as many steps in all")
    counts_N, accuracies_S2N = measured.curve("each_class"), measured["accuracies"]
    x, y = "images of each class to learn from", "accuracy on unseen images, %"
    return by_count(ABOUT.text, x, y, counts_N, accuracies_S2N, names)[0]
