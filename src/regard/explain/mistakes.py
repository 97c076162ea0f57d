"""The worst mistakes as a picture: images that the model was surest of, and wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray

from regard.data.image_cache import Images
from regard.explain.plots import save

SHOWN = 24
COLUMNS = 6


@dataclass(frozen=True)
class Mistake:
    name: str
    true: str
    guessed: str
    probability: float  # of what was guessed
    pixels_HWC: NDArray[np.uint8]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "true": self.true, "guessed": self.guessed, "probability": self.probability}


def worst_mistakes(images: Images, found_NK: NDArray[np.float32], labels: Sequence[str]) -> list[Mistake]:
    """The wrong guesses, the surest first."""
    guessed_N, sure_N = found_NK.argmax(-1), found_NK.max(-1)
    wrong = np.flatnonzero(guessed_N != images.labels_N)
    chosen = wrong[np.argsort(-sure_N[wrong], kind="stable")][:SHOWN]
    return [
        Mistake(
            images.names[n],
            labels[images.labels_N[n]],
            labels[guessed_N[n]],
            float(sure_N[n]),
            np.array(images.pixels_NHWC[n]),
        )
        for n in chosen.tolist()
    ]


def draw_mistakes(mistakes: Sequence[Mistake], path: Path) -> None:
    """Each image with its true class and what it was taken for."""
    rows = max(1, -(-len(mistakes) // COLUMNS))
    figure, axes = plt.subplots(
        rows, COLUMNS, figsize=(1.9 * COLUMNS, 2.3 * rows + 0.5), squeeze=False, layout="constrained"
    )
    for axis in axes.flat:
        axis.axis("off")
    for axis, mistake in zip(axes.flat, mistakes, strict=False):
        draw_image(axis, mistake.pixels_HWC)
        axis.set_title(f"{mistake.true}\ntaken for {mistake.guessed}, {mistake.probability:.0%}", fontsize=7)
    title = "The surest mistakes" if mistakes else "No mistakes"
    figure.suptitle(title, fontsize=10)
    save(figure, path)


def draw_image(axis: Any, pixels_HWC: NDArray[np.uint8]) -> None:
    """Grey or in colour, every pixel as it is."""
    grey = pixels_HWC.shape[-1] == 1
    if grey:
        axis.imshow(pixels_HWC[..., 0], cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    else:
        axis.imshow(pixels_HWC, interpolation="nearest")
