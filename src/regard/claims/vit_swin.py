"""ViT against Swin on little data.

    ViT     every patch sees every other one from the first block on; what is near it must be learned
    Swin    a patch sees its window; windows shift, and neighbours merge: what is near is built in

Both have the same patches (2 × 2 pixels), as many blocks, about as many weights, the same steps and images. Swin sees
windows of 2 × 2 patches, and merges the grid of 4 × 4 into one of 2 × 2 half way.

A first trial had each pixel as a patch, as the example for Swin in the documentation has: on 5 images of each class
Swin was 13 to 28 points behind, at more than twice the cost. So larger patches are rather in Swin's favour. The short
training, and the verdict's branch for it, were added after the tiny version, which has no other, came out the other way
than the long one. The threshold is as it was. Rates were chosen on the ViT; and that it is windows and merging which
make the difference, rather than other parts of Swin, is not shown here.

Shapes: K numbers of images of each class
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.digits import RECIPE, all_digits, classifier, images
from regard.claims.frame.pictures import COLOURS, MARKS, chart, line
from regard.claims.frame.trainings import metrics, trained
from regard.evaluation.compare import half_width

GAIN = 3.0  # points

ABOUT = About(
    text="On little data a Swin Transformer, which looks at neighbours first, is better than a plain ViT.",
    decks=("002",),
    group="vision",
    measures="the accuracy on unseen digits after training on few of them: a ViT and a Swin of as many blocks and "
    "about as many weights, with the same patches.",
    threshold=f"on the fewest images, Swin is at least {GAIN:.0f} points ahead, and more than the interval of the "
    "difference.",
    figures={
        "gain_few": "Swin's lead on the fewest images, points",
        "gain_short": "Swin's lead on the fewest images after a fifth of the steps, points",
        "gain_many": "Swin's lead on the most images, points",
        "swin_few": "accuracy of Swin on the fewest images, %",
        "vit_few": "accuracy of the ViT on the fewest images, %",
    },
    seeds=Seeds(tiny=1, normal=3, full=10),
)
WINDOWS = ["model.window=2", 'model.positions="none"', "model.heads=4"]


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    each_class, steps, short, blocks = budget.choose(
        tiny=((5,), 16, 16, 2), normal=((5, 20), 100, 20, 4), full=((5, 20, 100), 500, 100, 4)
    )
    train, test = all_digits()

    def accuracy(model: list[str], each: int) -> float:
        few = images(budget, f"digits-{each}-{seed}", train.few(each, seed), test)
        return metrics(trained(budget, RECIPE, *few, *model, seed=seed))["accuracy"]

    accuracies_2K = [[accuracy(kind(steps, blocks), each) for each in each_class] for kind in (vit, swin)]
    vit_short, swin_short = (accuracy(kind(short, blocks), each_class[0]) for kind in (vit, swin))
    (vit_few, *_), (swin_few, *_) = accuracies_2K
    return {
        "gain_short": swin_short - vit_short,
        "gain_few": swin_few - vit_few,
        "gain_many": accuracies_2K[1][-1] - accuracies_2K[0][-1],
        "swin_few": swin_few,
        "vit_few": vit_few,
        "each_class": each_class,
        "accuracies": accuracies_2K,
        "short": [vit_short, swin_short],
    }


def vit(steps: int, blocks: int) -> list[str]:
    """Four blocks of width 52 have 86,000 weights."""
    return classifier(steps, width=52, layers=blocks)


def swin(steps: int, blocks: int) -> list[str]:
    """Two blocks of width 32, two of 64, and what merges between them have 90,000 weights."""
    return [*classifier(steps, width=32), f"model.stages=[{blocks // 2}, {blocks // 2}]", *WINDOWS]


def verdict(measured: Measured) -> Verdict:
    vit_K, swin_K = measured.curve("accuracies")
    each_class = measured.curve("each_class")
    told = "; ".join(f"{s:.1f} and {v:.1f} with {n:.0f}" for n, v, s in zip(each_class, vit_K, swin_K, strict=True))
    told = f"Accuracy in percent, Swin and ViT, by images of each class: {told}."
    told += f" After a fifth of the steps, with the fewest images, Swin's lead is {measured.mean('gain_short'):+.1f}."
    few, short, many = (
        measured.mean(name) > max(GAIN, measured.half_width(name) or 0)
        for name in ("gain_few", "gain_short", "gain_many")
    )
    if few:
        return holds(told)
    if short:
        return depends("how long they are trained", f"{told} What is built in is learned sooner, but not better.")
    return depends("how many images there are", told) if many else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "images of each class to learn from", "accuracy on unseen digits, %")
    each_class = measured.curve("each_class")
    for number, name in enumerate(("ViT", "Swin")):
        line(axis, each_class, measured["accuracies"][:, number], name, number)
        short_S, place = measured["short"][:, number], each_class[0] * (1.03 + 0.04 * number)  # beside each other
        half, about = half_width(short_S.tolist()), f"{name}, a fifth of the steps"
        mark, colour = MARKS[number], COLOURS[number]
        axis.errorbar(place, short_S.mean(), half, fmt=mark, color=colour, mfc="white", capsize=4, label=about)
    axis.set_xscale("log")
    axis.set_xticks(each_class, [f"{each:.0f}" for each in each_class])
    axis.minorticks_off()
    axis.legend(loc="lower right")
    return figure
