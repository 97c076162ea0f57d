"""Words and their nearest neighbours in the plane.

Unit vectors are projected to their first two principal components (`word_vectors.project`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard.data.word_vectors import WordVectors, project
from regard.explain.figures import save

ROUNDS = 200  # in which labels are moved apart


def draw_neighbourhood(vectors: WordVectors, words: Sequence[str], path: Path, per_word: int = 10) -> None:
    """These words, each in its own colour with its nearest neighbours."""
    group = {vectors.row(word): number for number, word in enumerate(words)}
    for number, word in enumerate(words):
        for neighbour, _ in vectors.nearest(word, per_word):
            group.setdefault(vectors.row(neighbour), number)
    rows = list(group)
    points, _ = project(vectors.unit[rows])
    figure = Figure(figsize=(9, 7), layout="constrained")
    axis = figure.subplots()
    colours = [f"C{group[row] % 10}" for row in rows]
    axis.scatter(points[:, 0], points[:, 1], c=colours, s=12, alpha=0.4, linewidths=0)
    axis.margins(0.12)
    figure.draw_without_rendering()
    axis.set_autoscale_on(False)
    labels = [
        axis.text(
            x,
            y,
            vectors.words[row],
            color=colour,
            fontsize=11 if row in rows[: len(words)] else 8,
            fontweight="bold" if row in rows[: len(words)] else "normal",
            ha="center",
            va="bottom",
        )
        for row, (x, y), colour in zip(rows, points.tolist(), colours, strict=True)
    ]
    boxes = np.array([label.get_window_extent().bounds for label in labels])
    moved = boxes[:, :2] + moved_apart(boxes)
    to_data = axis.transData.inverted()
    for label, (x, y), (left, bottom), width in zip(labels, points.tolist(), moved, boxes[:, 2], strict=True):
        label_x, label_y = to_data.transform((left + width / 2, bottom)).tolist()
        label.set_position((label_x, label_y))
        axis.plot([x, label_x], [y, label_y], color=label.get_color(), linewidth=0.4, alpha=0.6)
    axis.set_title(f"{', '.join(words)}: the {per_word} nearest words of each", fontsize=10)
    axis.set_xlabel("first principal component")
    axis.set_ylabel("second")
    axis.grid(alpha=0.2)
    save(figure, path)


def moved_apart(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far to move each box (left, bottom, width, height) so that few overlap: [N, 2]."""
    shift = np.zeros((len(boxes), 2))
    size = boxes[:, 2:]
    near = (size[:, None] + size[None]) / 2 + 2
    for _ in range(ROUNDS):
        centre = boxes[:, :2] + size / 2 + shift
        between = centre[:, None] - centre[None]
        overlap = np.maximum(near - np.abs(between), 0)
        np.fill_diagonal(overlap[..., 0], 0)
        overlaps = (overlap > 0).all(2)
        if not overlaps.any():
            break
        # Words are wide and low, so moving them up and down is shortest. Of two at the same height, the later goes up.
        later = np.subtract.outer(np.arange(len(boxes)), np.arange(len(boxes)))
        direction = np.sign(between[..., 1]) + (between[..., 1] == 0) * np.sign(later)
        shift[:, 1] += (overlaps * overlap[..., 1] * direction).sum(1) * 0.3
    return shift
