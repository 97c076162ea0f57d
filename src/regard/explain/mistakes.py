"""The worst mistakes as a figure: the misclassified images with the highest confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard.data.image_cache import Images
from regard.explain.figures import save, shortened
from regard.explain.image_drawing import draw_image

MOST = 24
COLUMNS = 6
CELL_WIDTH = 1.9  # inches
HIGHEST = 2.6  # inches of an image
TEXT = 0.55  # inches above and below an image
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


def worst_mistakes(images: Images, probabilities_NC: NDArray[np.float32], labels: Sequence[str]) -> list[Mistake]:
    """Wrong guesses, the most confident first."""
    guessed_N, certainty_N = probabilities_NC.argmax(-1), probabilities_NC.max(-1)
    wrong = np.flatnonzero(guessed_N != images.labels_N)
    surest = wrong[np.argsort(-certainty_N[wrong], kind="stable")][:MOST]
    return [
        Mistake(
            images.names[n],
            labels[images.labels_N[n]],
            labels[guessed_N[n]],
            float(certainty_N[n]),
            np.array(images.pixels_NHWC[n]),
        )
        for n in surest.tolist()
    ]


def draw_mistakes(mistakes: Sequence[Mistake], path: Path) -> None:
    """Each image with its true class and the predicted one; below it the name of its file."""
    columns = min(COLUMNS, max(2, len(mistakes)))
    rows = max(1, -(-len(mistakes) // columns))
    height, width = mistakes[0].pixels_HWC.shape[:2] if mistakes else (1, 1)
    cell_height = min(CELL_WIDTH * height / width, HIGHEST) + TEXT
    figure = Figure(figsize=(CELL_WIDTH * columns, cell_height * rows + 0.25), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[], frame_on=False)
    for axis, mistake in zip(axes.flat, mistakes, strict=False):
        draw_image(axis, mistake.pixels_HWC)
        true, guessed = shortened(mistake.true, LONGEST_LABEL), shortened(mistake.guessed, LONGEST_LABEL - 12)
        name = shortened(mistake.name.rsplit("/", 1)[-1], LONGEST_NAME)
        # A dollar sign in a name does not start a formula.
        axis.set_title(f"{true}\ntaken for {guessed}, {mistake.probability:.0%}", fontsize=7, parse_math=False)
        axis.set_xlabel(name, fontsize=6, color="dimgray", parse_math=False)
    title = "The surest mistakes" if mistakes else "No mistakes"
    figure.suptitle(title, fontsize=10)
    save(figure, path)
