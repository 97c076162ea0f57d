"""Shuffled patches: what a Vision Transformer knows of where a patch lies, it knows from positions alone.

    without positions    logits(P X) = logits(X)      for every permutation P of the patches: it sees a bag of them
    with positions       logits(P X) ≠ logits(X)      but nothing says which order is the natural one:

trained on images whose patches are all permuted in one and the same way, it should be as good as on whole images. To a
convolution that would matter; to a ViT the position of a patch is one vector or another.

Shapes: N images · H × W pixels · T patches, of P × P pixels
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.digits import RECIPE, Labelled, all_digits, classifier, images
from regard.claims.frame.pictures import bars, chart
from regard.claims.frame.trainings import trained_model

PATCH = 2
NO_POSITIONS = "none"
SAME, LOSS, COST = 1e-4, 20.0, 2.0  # of probabilities; points of accuracy

ABOUT = About(
    text="Without positions a Vision Transformer is blind to where patches lie; with them any fixed order will do.",
    decks=("000", "004"),
    group="vision",
    measures="accuracy on unseen digits: without positions, on whole images and with the patches of each shuffled; "
    "with learned positions, the same; and with positions, trained and tested on images permuted in one fixed way.",
    threshold=f"without positions, shuffling changes no probability by more than {SAME:g}; with positions, it costs at "
    f"least {LOSS:.0f} points, and a fixed permutation that was trained on less than {COST:.0f}.",
    figures={
        "with_whole": "accuracy with positions, whole images, %",
        "with_shuffled": "accuracy with positions, shuffled at test time, %",
        "with_fixed": "accuracy with positions, one fixed permutation in training and test, %",
        "without_whole": "accuracy without positions, whole images, %",
        "without_shuffled": "accuracy without positions, shuffled at test time, %",
        "moved": "largest change of a probability by shuffling, without positions",
    },
    seeds=Seeds(tiny=1, normal=4, full=10),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    train, test = all_digits()
    rng = np.random.default_rng(seed)
    patches = (test.pixels_NHW[0].size) // PATCH**2
    fixed_1T = rng.permutation(patches)[None]
    shuffled = arranged(test, rng.permuted(np.tile(np.arange(patches), (len(test.labels_N), 1)), axis=1))
    whole = images(budget, "digits", train, test)
    permuted = images(budget, f"digits-permuted-{seed}", arranged(train, fixed_1T), arranged(test, fixed_1T))

    steps, *shape = budget.choose(tiny=(30, 32, 1), normal=(120, 48, 2), full=(1000, 64, 3))
    model = [*classifier(steps, *shape), f"model.patch={PATCH}"]
    without = trained_model(budget, RECIPE, *whole, *model, f'model.positions="{NO_POSITIONS}"', seed=seed)
    located = trained_model(budget, RECIPE, *whole, *model, seed=seed)
    fixed = trained_model(budget, RECIPE, *permuted, *model, seed=seed)
    return {
        "with_whole": accuracy(located, test),
        "with_shuffled": accuracy(located, shuffled),
        "with_fixed": accuracy(fixed, arranged(test, fixed_1T)),
        "without_whole": accuracy(without, test),
        "without_shuffled": accuracy(without, shuffled),
        "moved": float(np.abs(probabilities(without, shuffled) - probabilities(without, test)).max()),
    }


def arranged(of: Labelled, order_NT: NDArray[np.intp]) -> Labelled:
    """The same images with their patches in another order, of each image or one for all."""
    count, height, width = of.pixels_NHW.shape
    rows, columns = height // PATCH, width // PATCH
    grid = of.pixels_NHW.reshape(count, rows, PATCH, columns, PATCH).transpose(0, 1, 3, 2, 4)
    patches_NTPP = grid.reshape(count, rows * columns, PATCH, PATCH)
    moved_NTPP = np.take_along_axis(patches_NTPP, order_NT[:, :, None, None], axis=1)
    back = moved_NTPP.reshape(count, rows, columns, PATCH, PATCH).transpose(0, 1, 3, 2, 4)
    return replace(of, pixels_NHW=back.reshape(count, height, width))


def probabilities(model: Any, of: Labelled) -> NDArray[np.float32]:
    p_NK: NDArray[np.float32] = model.probabilities(of.pixels_NHW[..., None])
    return p_NK


def accuracy(model: Any, of: Labelled) -> float:
    """In percent; the classes are the ten digits in their order."""
    return 100 * float((probabilities(model, of).argmax(1) == of.labels_N).mean())


def verdict(measured: Measured) -> Verdict:
    whole, shuffled, fixed, bag, bag_shuffled, moved = (measured.mean(name) for name in ABOUT.figures)
    told = (
        f"Shuffling takes a ViT with positions from {whole:.1f}% to {shuffled:.1f}%; trained on one fixed permutation "
        f"it has {fixed:.1f}%. Without positions it has {bag:.1f}%, and {bag_shuffled:.1f}% of shuffled images: no "
        f"probability moves by more than {moved:.0e}."
    )
    if measured["moved"].max() > SAME:
        return does_not_hold(told)
    if whole - shuffled < LOSS:
        return does_not_hold(f"{told} Positions do not matter much.")
    return holds(told) if whole - fixed < COST else depends("which order it is", told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, y="accuracy on unseen digits, %")
    names = ["positions,\nwhole", "positions,\nshuffled", "positions,\none fixed\npermutation"]
    names += ["none,\nwhole", "none,\nshuffled"]
    bars(axis, names, [measured[name] for name in list(ABOUT.figures)[:5]])
    axis.set_ylim(0, 100)
    return figure
