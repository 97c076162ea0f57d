"""The confusion matrix as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.explain.figures import save, shortened

MOST_WITH_NUMBERS = 20  # classes; with more, numbers in the cells would be illegible
LONGEST_LABEL = 32  # characters drawn


def draw_confusion(counts: ArrayLike, labels: Sequence[str], path: Path) -> None:
    """Counts [true, predicted] as cells coloured by their share of the row."""
    cells = np.asarray(counts)
    shares = cells / np.maximum(cells.sum(axis=1, keepdims=True), 1)
    with_numbers = len(labels) <= MOST_WITH_NUMBERS
    side = max(2.0, (0.62 if with_numbers else 0.2) * len(labels))  # inches
    figure = Figure(figsize=(side + 2.6, side + 1.8), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0, interpolation="nearest")
    names = [shortened(label, LONGEST_LABEL) for label in labels]
    size = 9 if with_numbers else 7
    rotation = 90 if max(map(len, names)) * size * 0.01 > side / len(names) else 0
    axis.set_xticks(range(len(names)), names, rotation=rotation, fontsize=size)
    axis.set_yticks(range(len(names)), names, fontsize=size)
    axis.set_xlabel("predicted")
    axis.set_ylabel("true")
    axis.set_title(f"{np.trace(cells):,} of {cells.sum():,} correct", fontsize=10)
    if with_numbers:
        for row, column in np.ndindex(cells.shape):
            if cells[row, column]:
                share = shares[row, column]
                axis.text(
                    column,
                    row,
                    f"{cells[row, column]:,}\n{share:.1%}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if share > 0.5 else "black",
                )
    figure.colorbar(image, ax=axis, label="share of the true class", shrink=0.8)
    save(figure, path)
