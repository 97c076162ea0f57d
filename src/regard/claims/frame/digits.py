"""A small image classifier for claims about images: the built-in digits of 8 × 8 pixels, and a model of seconds.

Claims choose which digits it sees, how many, and what is done to their pixels; the same images are always the test.

Shapes: N images · H × W pixels
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.claims.frame.claim import Budget
from regard.claims.frame.trainings import made_once
from regard.data.image_sources import Digits

RECIPE = "digits"
TEST = 600  # images of the 1,797
VALID = 60  # a run needs some; nothing is chosen by them


@dataclass(frozen=True)
class Labelled:
    """Images with their labels."""

    pixels_NHW: NDArray[np.uint8]
    labels_N: NDArray[np.uint8]

    def take(self, chosen: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Labelled:
        return Labelled(self.pixels_NHW[chosen], self.labels_N[chosen])

    def of(self, classes: range) -> Labelled:
        return self.take(np.isin(self.labels_N, classes))

    def few(self, each: int, seed: int) -> Labelled:
        """This many of every class, drawn at random."""
        drawn = np.random.default_rng(seed).permutation(len(self.labels_N))
        by_class = [drawn[self.labels_N[drawn] == label][:each] for label in np.unique(self.labels_N)]
        return self.take(np.concatenate(by_class))


def all_digits() -> tuple[Labelled, Labelled]:
    """To train on, and to test on: always the same."""
    source = Digits()
    pixels_NHW = np.stack([np.asarray(content) for content in source.contents()])
    digits = Labelled(pixels_NHW, source.loaded.target.astype(np.uint8))
    shuffled = np.random.default_rng(0).permutation(len(digits.labels_N))
    return digits.take(shuffled[TEST:]), digits.take(shuffled[:TEST])


def images(budget: Budget, name: str, train: Labelled, test: Labelled) -> list[str]:
    """The settings that train on these images and test on those."""
    splits = {"train": train, "valid": test.take(slice(0, VALID)), "test": test}
    folder = made_once(budget, f"images-{name}", lambda: _idx_files(splits))
    return ['data.sample=""', f'data.images="{folder.resolve()}"']


def classifier(steps: int, width: int = 48, layers: int = 2) -> list[str]:
    """A ViT that is trained for so many steps, at rates at which a hundred are enough."""
    return [
        f"model.width={width}",
        f"model.feedforward={2 * width}",
        f"model.layers={layers}",
        "model.dropout=0.0",
        f"training.steps={steps}",
        f"training.warmup={steps // 10}",
        f"training.validate_every={steps}",
        "training.images_per_batch=32",
        "training.learning_rate=0.01",
        "training.muon.learning_rate=0.05",
        "training.ema=0.0",
        "augmentation.mixup=0.0",
    ]


def _idx_files(splits: dict[str, Labelled]) -> dict[str, bytes]:
    """As MNIST comes: a file of pixels and one of labels for each split."""
    files = {}
    for split, of in splits.items():
        count, height, width = of.pixels_NHW.shape
        files[f"{split}-images-idx3-ubyte"] = struct.pack(">4I", 0x803, count, height, width) + of.pixels_NHW.tobytes()
        files[f"{split}-labels-idx1-ubyte"] = struct.pack(">2I", 0x801, count) + of.labels_N.tobytes()
    return files
