"""What a model of pixels knows about classes, layer by layer (iGPT).

    accuracy_l = of a linear classifier on the mean of layer l's outputs over all pixels of an image

A model that only learned to predict the next pixel, and saw no label, must find out what is in an image, and then turn
that into a pixel again. So the layers in between should know most: the first know only pixels, the last only the next
one. That is what the authors of iGPT report of models of up to 48 layers. Here it is asked of a small one.

The best of the middle layers is taken seed by seed, on the same test images: that is in favour of the claim. A third of
the digits is the test: with a tenth, as in the recipe, a first run of three seeds gave −0.2 ± 11.5 points.

Shapes: L + 1 layers, the embedding first
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard import console
from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, does_not_hold, holds
from regard.claims.frame.pictures import chart, line
from regard.claims.frame.trainings import trained_model

RECIPE = "digits-pixels"
LEAD = 1.0  # points

ABOUT = About(
    text="In a model of pixels the middle layers know most about what is in an image.",
    decks=("004",),
    group="vision",
    measures="how well a linear classifier reads the digit from each layer of a model that draws digits by pixels: "
    "from the best of the middle third of the layers, from the last one, and from the embedding.",
    threshold=f"the best middle layer is ahead of the embedding and of the last layer, of each by more than "
    f"{LEAD:.0f} point and by more than the interval of the difference.",
    figures={
        "lead": "best middle layer ahead of the last layer, points",
        "middle": "accuracy from the best middle layer, %",
        "last": "accuracy from the last layer, %",
        "embedding": "accuracy from the embedding, %",
        "rise": "best middle layer ahead of the embedding, points",
    },
    seeds=Seeds(tiny=1, normal=3, full=5),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    layers, width, steps, batch = budget.choose(tiny=(3, 16, 10, 8), normal=(6, 48, 150, 16), full=(12, 96, 2000, 32))
    model = trained_model(
        budget,
        RECIPE,
        "data.held_out_test=0.3333",
        f"model.layers={layers}",
        f"model.width={width}",
        f"model.feedforward={4 * width}",
        "model.dropout=0.0",
        f"training.steps={steps}",
        f"training.warmup={steps // 10}",
        f"training.validate_every={steps}",
        f"training.images_per_batch={batch}",
        seed=seed,
    )
    with console.silent():
        probed = model.probe(train=budget.choose(tiny=200, normal=1500), test=1000)
    accuracies = [layer["accuracy"] for layer in probed["layers"]]
    middle = max(accuracies[layers // 3 : layers - layers // 3 + 1])
    return {
        "lead": middle - accuracies[-1],
        "middle": middle,
        "last": accuracies[-1],
        "embedding": accuracies[0],
        "rise": middle - accuracies[0],
        "accuracies": accuracies,
    }


def verdict(measured: Measured) -> Verdict:
    curve = measured.curve("accuracies")
    told = (
        f"The digit is read from the embedding with {measured.mean('embedding'):.1f}%, from the best middle layer with "
        f"{measured.mean('middle'):.1f}%, from the last one with {measured.mean('last'):.1f}%; on average layer "
        f"{curve.argmax()} of {len(curve) - 1} knows most."
    )
    ahead = {name: measured.mean(name) > max(LEAD, measured.half_width(name) or 0) for name in ("lead", "rise")}
    if all(ahead.values()):
        return holds(told)
    half = measured.half_width("lead") or 0
    if measured.mean("lead") < -half:
        return does_not_hold(
            f"{told} A small model has no layers to spare for turning what it knows into pixels again."
        )
    return does_not_hold(f"{told} The difference to the last one is {measured.mean('lead'):+.1f} ± {half:.1f} points.")


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "layer (0: embedding)", "accuracy of a linear classifier, %")
    layers = range(measured["accuracies"].shape[-1])
    line(axis, layers, measured["accuracies"], "trained to predict the next pixel", 0)
    axis.set_xticks(layers)
    axis.legend(loc="lower right")
    return figure
