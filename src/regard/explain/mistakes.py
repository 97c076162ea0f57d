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
CELL = 1.9  # inches across
HIGHEST = 2.6  # inches of an image
WRITTEN = 0.55  # inches above and below an image
LONGEST_NAME = 32  # characters drawn
LONGEST_LABEL = 28


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
    """Each image with its true class and what it was taken for; below it the name of its file."""
    columns = min(COLUMNS, max(2, len(mistakes)))
    rows = max(1, -(-len(mistakes) // columns))
    height, width = mistakes[0].pixels_HWC.shape[:2] if mistakes else (1, 1)
    high = min(CELL * height / width, HIGHEST) + WRITTEN
    figure, axes = plt.subplots(
        rows, columns, figsize=(CELL * columns, high * rows + 0.25), squeeze=False, layout="constrained"
    )
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[], frame_on=False)
    for axis, mistake in zip(axes.flat, mistakes, strict=False):
        draw_image(axis, mistake.pixels_HWC)
        true, guessed = shortened(mistake.true, LONGEST_LABEL), shortened(mistake.guessed, LONGEST_LABEL - 12)
        name = shortened(mistake.name.rsplit("/", 1)[-1], LONGEST_NAME)
        # A dollar sign in a name is no formula.
        axis.set_title(f"{true}\ntaken for {guessed}, {mistake.probability:.0%}", fontsize=7, parse_math=False)
        axis.set_xlabel(name, fontsize=6, color="dimgray", parse_math=False)
    title = "The surest mistakes" if mistakes else "No mistakes"
    figure.suptitle(title, fontsize=10)
    save(figure, path)


def shortened(name: str, longest: int) -> str:
    """A name that is too long loses its middle: names differ at the start and at the end."""
    if len(name) <= longest:
        return name
    end = longest // 2
    return f"{name[: longest - end - 1]}…{name[-end:]}"


def draw_image(
    axis: Any, pixels_HWC: NDArray[np.uint8], place: tuple[float, float, float, float] | None = None
) -> None:
    """Grey or in colour, every pixel as it is; all over the axis, or from left to right and from bottom to top."""
    grey = pixels_HWC.shape[-1] == 1
    if grey:
        axis.imshow(pixels_HWC[..., 0], cmap="gray", vmin=0, vmax=255, interpolation="nearest", extent=place)
    else:
        axis.imshow(pixels_HWC, interpolation="nearest", extent=place)
