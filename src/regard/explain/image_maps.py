"""Attention over an image as a picture: the image, the rollout laid over it, and every head of every layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from regard.explain.mistakes import draw_image
from regard.explain.plots import save
from regard.explain.rollout import AttentionMaps

MOST_LAYERS = 12  # drawn; of a deeper model the last ones
MOST_HEADS = 12


def draw_maps(pixels_HWC: NDArray[np.uint8], maps: AttentionMaps, title: str, path: Path) -> None:
    """The first row: the image and the rollout over it. Below: a row for each layer, a column for each head."""
    first = max(0, len(maps.layers_HRS) - MOST_LAYERS)
    shown_HRS = [heads_HRS[:MOST_HEADS].cpu() for heads_HRS in maps.layers_HRS[first:]]
    rows, columns = len(shown_HRS) + 1, max(2, *(len(heads_HRS) for heads_HRS in shown_HRS))
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(1.7 * columns, 1.8 * rows + 0.6),
        squeeze=False,
        layout="constrained",
    )
    for axis in axes.flat:
        axis.axis("off")
    draw_image(axes[0][0], pixels_HWC)
    axes[0][0].set_title("image", fontsize=7)
    _overlay(axes[0][1], pixels_HWC, maps.rollout_RS.cpu(), smooth=True)
    axes[0][1].set_title(f"rollout, {maps.rollout_RS.min():.1%} to {maps.rollout_RS.max():.1%}", fontsize=7)
    for layer, heads_HRS in enumerate(shown_HRS):
        for head, map_RS in enumerate(heads_HRS):
            _overlay(axes[layer + 1][head], pixels_HWC, map_RS)
            axes[layer + 1][head].set_title(f"layer {first + layer + 1} · head {head + 1}", fontsize=7)
    figure.suptitle(f"{title}\nseen from {maps.read_from}", fontsize=9)
    save(figure, path)


def _overlay(axis: Axes, pixels_HWC: NDArray[np.uint8], map_RS: ArrayLike, smooth: bool = False) -> None:
    """A map of the patches over the image, from nothing to its most: even attention is evenly bright."""
    draw_image(axis, pixels_HWC)
    height, width = pixels_HWC.shape[:2]
    axis.imshow(
        np.asarray(map_RS),
        vmin=0.0,
        cmap="inferno",
        alpha=0.65,
        extent=(-0.5, width - 0.5, height - 0.5, -0.5),
        interpolation="bilinear" if smooth else "nearest",
    )
