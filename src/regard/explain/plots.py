"""Pictures, as PNG files."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike


def training_curves(metrics: Sequence[dict[str, Any]], path: Path) -> None:
    """Loss, scores, learning rate and speed over the steps of a run."""
    panels = {
        "loss": [("loss", "training"), ("valid_loss", "validation")],
        "BLEU": [("valid_bleu", "validation, greedy")],
        "bits per byte": [("valid_bits_per_byte", "validation")],
        "bits per pixel": [("valid_bits_per_pixel", "validation")],
        "accuracy, %": [("valid_accuracy", "validation")],
        "learning rate": [("learning_rate", "")],
        "tokens per second": [("tokens_per_second", "")],
        "texts per second": [("texts_per_second", "")],
        "words per second": [("words_per_second", "")],
        "images per second": [("images_per_second", "")],
        "pixels per second": [("pixels_per_second", "")],
    }
    drawn = {
        title: lines for title, lines in panels.items() if any(key in record for record in metrics for key, _ in lines)
    }
    if not drawn:
        return
    figure, axes = plt.subplots(1, len(drawn), figsize=(4.2 * len(drawn), 3.4), squeeze=False, layout="constrained")
    for axis, (title, lines) in zip(axes[0], drawn.items(), strict=True):
        for key, label in lines:
            points = [(record["step"], record[key]) for record in metrics if key in record]
            if points:
                axis.plot(*zip(*points, strict=True), label=label, marker="." if len(points) < 30 else None)
        axis.set_title(title)
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
        if lines[0][1]:
            axis.legend()
    save(figure, path)


def attention_grid(weights: ArrayLike, sources: Sequence[str], targets: Sequence[str], path: Path, title: str) -> None:
    """One small picture for each layer and head: weights [layers, heads, targets, sources]."""
    grid = np.asarray(weights)
    layers, heads = grid.shape[:2]
    wide, high = max(1.8, 0.17 * len(sources)), max(1.8, 0.17 * len(targets))
    figure, axes = plt.subplots(
        layers, heads, figsize=(wide * heads + 1.5, high * layers + 1.2), squeeze=False, layout="constrained"
    )
    for layer in range(layers):
        for head in range(heads):
            axis = axes[layer][head]
            heat(
                axis,
                grid[layer, head],
                sources if layer == layers - 1 else [],
                targets if head == 0 else [],
                size=6,
            )
            axis.set_title(f"layer {layer + 1} · head {head + 1}", fontsize=7)
    figure.suptitle(title, fontsize=9)
    save(figure, path)


def alignment(weights: ArrayLike, sources: Sequence[str], targets: Sequence[str], path: Path, title: str) -> None:
    """One picture of which source token each target token looks at: weights [targets, sources]."""
    size = (max(4.0, 0.45 * len(sources) + 2), max(3.0, 0.38 * len(targets) + 1.6))
    figure, axis = plt.subplots(figsize=size, layout="constrained")
    image = heat(axis, weights, sources, targets, size=9)
    axis.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axis, label="attention weight", shrink=0.8)
    save(figure, path)


def positions_heatmap(codes: ArrayLike, path: Path, title: str) -> None:
    """Position encodings: one row a position, one column a channel."""
    figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
    largest = float(np.abs(np.asarray(codes)).max())
    image = axis.imshow(
        np.asarray(codes), aspect="auto", cmap="RdBu_r", interpolation="nearest", vmin=-largest, vmax=largest
    )
    axis.set_xlabel("channel")
    axis.set_ylabel("position")
    axis.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axis)
    save(figure, path)


def matrix_grid(
    matrices: Sequence[Sequence[ArrayLike]], layers: Sequence[str], channels: Sequence[int], path: Path, title: str
) -> None:
    """One small picture for each layer and channel: what position t (down) takes from position s (across)."""
    figure, axes = plt.subplots(
        len(matrices),
        len(channels),
        figsize=(2.1 * len(channels), 2.1 * len(matrices) + 0.6),
        squeeze=False,
        layout="constrained",
    )
    for layer, row in enumerate(matrices):
        for place, matrix in enumerate(row):
            axis = axes[layer][place]
            largest = float(np.abs(np.asarray(matrix)).max()) or 1.0
            axis.imshow(np.asarray(matrix), cmap="RdBu_r", vmin=-largest, vmax=largest, interpolation="nearest")
            axis.set_title(f"{layers[layer]} · channel {channels[place] + 1}", fontsize=7)
            axis.tick_params(labelsize=6)
    figure.suptitle(title, fontsize=9)
    save(figure, path)


def heat(axis: Axes, weights: ArrayLike, columns: Sequence[str], rows: Sequence[str], size: int) -> Any:
    image = axis.imshow(np.asarray(weights), cmap="viridis", vmin=0.0, vmax=1.0, interpolation="nearest", aspect="auto")
    axis.set_xticks(range(len(columns)), columns, rotation=90, fontsize=size)
    axis.set_yticks(range(len(rows)), rows, fontsize=size)
    return image


def save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # A script that the font lacks is drawn as boxes; the user can do nothing about it here.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(path, dpi=150)
    plt.close(figure)
