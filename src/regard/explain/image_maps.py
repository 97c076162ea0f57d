"""Attention over an image as a figure: the image, the rollout laid over it, and every head of every layer.

Lengths are in inches. Shapes: H heads · R × S grid of patches · of an image H × W pixels, C channels
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from regard.data.image_entries import shown
from regard.errors import RegardError
from regard.explain.figures import save
from regard.explain.image_drawing import draw_image
from regard.explain.rollout import AttentionMaps, attention_maps
from regard.models.swin import Swin
from regard.models.vision import VisionTransformer

MOST_LAYERS = 24  # drawn; of a deeper model the last ones
MOST_HEADS = 16
WIDE = 8  # columns; more only with as many layers, whose figure is high anyway
SIDE = 1.3  # of a map, if the image is square
LONGEST, SHORTEST = 2.6, 0.5  # side of a map; side of its cell, for the text beside it
NARROWEST = 4.5  # the figure, so that its title fits
MARGIN = 0.1
LEFT = 0.4  # where the layers are named
GAP = 0.08  # between two maps
BETWEEN = 0.15  # two layers
LINE = 0.17  # above a map
TITLE_LINE = 0.19
CHARACTER = 0.08  # of the title


def draw_image_maps(
    model: VisionTransformer | Swin, image_CHW: Tensor, pixels_HWC: NDArray[np.uint8], title: str, path: Path
) -> AttentionMaps:
    """Where a classifier looked in an image, given as it is and scaled as the model takes it."""
    if not any(hasattr(module, "trace") for module in model.modules()):
        raise RegardError(
            "Attention over this image cannot be drawn.",
            "The model has none: it mixes positions in another way.",
            'Choose a run with model.mixer = "attention".',
        )
    maps = attention_maps(model, image_CHW)
    draw_maps(pixels_HWC, maps, title, path)
    return maps


def draw_maps(pixels_HWC: NDArray[np.uint8], maps: AttentionMaps, title: str, path: Path) -> None:
    """On top the image and the rollout over it. Below a block for each layer, with a map for each head."""
    layers = list(enumerate(maps.layers_HRS, start=1))[-MOST_LAYERS:]
    heads = [min(MOST_HEADS, len(heads_HRS)) for _, heads_HRS in layers]
    columns = columns_for(heads)
    size = map_width, map_height = map_size(pixels_HWC)
    step_x, step_y = max(SHORTEST, map_width) + GAP, max(SHORTEST, map_height) + LINE
    span = min(2.0, columns / 2)  # columns that each of the two maps on top takes
    enlarged = (span * step_x - GAP) / (step_x - GAP)
    large = enlarged * map_width, enlarged * map_height
    width = max(NARROWEST, LEFT + columns * step_x - GAP + MARGIN)
    remarks = [title, f"seen from {maps.read_from}", left_out([len(heads_HRS) for heads_HRS in maps.layers_HRS])]
    lines = [line for each in remarks for line in textwrap.wrap(shown(each), int((width - 2 * MARGIN) / CHARACTER))]

    # One axis for all, in inches from the upper left corner: an axis for each map takes twice as long.
    figure = Figure()
    axis = figure.add_axes((0, 0, 1, 1))
    axis.text(MARGIN, MARGIN, "\n".join(lines), va="top", fontsize=9, parse_math=False)
    y = MARGIN + len(lines) * TITLE_LINE
    _image(axis, (LEFT, y), large, "image", pixels_HWC)
    range_shown = f"rollout, {maps.rollout_RS.min():.1%} to {maps.rollout_RS.max():.1%}"
    _image(axis, (LEFT + span * step_x, y), large, range_shown, pixels_HWC, maps.rollout_RS.cpu(), smooth=True)
    y += LINE + large[1]
    for (layer, heads_HRS), count in zip(layers, heads, strict=True):
        y += BETWEEN
        block = math.ceil(count / columns) * step_y
        middle = y + (LINE + block) / 2
        axis.text(LEFT / 2, middle, f"layer {layer}", rotation=90, ha="center", va="center", fontsize=8)
        for head, map_RS in enumerate(heads_HRS[:count].cpu()):
            row, column = divmod(head, columns)
            corner = LEFT + column * step_x, y + row * step_y
            _image(axis, corner, size, f"head {head + 1}", pixels_HWC, map_RS)
        y += block
    height = y + MARGIN
    figure.set_size_inches(width, height)
    axis.set(xlim=(0, width), ylim=(height, 0))
    axis.axis("off")
    save(figure, path)


def columns_for(heads: Sequence[int]) -> int:
    """How many columns leave the fewest cells empty, and take the fewest rows, when each layer starts a row."""

    def cost(columns: int) -> int:
        rows = [math.ceil(count / columns) for count in heads]
        return sum(columns * used - count for used, count in zip(rows, heads, strict=True)) + sum(rows)

    return min(range(2, max(WIDE, len(heads)) + 1), key=cost)


def left_out(heads: Sequence[int]) -> str:
    """What is drawn of a model with these heads in its layers; empty if that is all."""
    layers = list(enumerate(heads, start=1))[-MOST_LAYERS:]
    parts = [f"the last {MOST_LAYERS} of {len(heads)} layers"] if len(heads) > MOST_LAYERS else []
    for count, group in itertools.groupby(layers, key=lambda layer: layer[1]):
        numbers = [number for number, _ in group]
        if count > MOST_HEADS:
            where = f" in layer {numbers[0]}" if len(numbers) == 1 else f" in layers {numbers[0]} to {numbers[-1]}"
            parts.append(f"{MOST_HEADS} of {count} heads{where if len(numbers) < len(layers) else ''}")
    return "drawn: " + ", ".join(parts) if parts else ""


def map_size(pixels_HWC: NDArray[np.uint8]) -> tuple[float, float]:
    """Width and height of a map: in the shape of the image, with about the same area for all shapes."""
    height, width = pixels_HWC.shape[:2]
    scale = min(SIDE / math.sqrt(width * height), LONGEST / max(width, height))
    return width * scale, height * scale


def _image(
    axis: Axes,
    corner: tuple[float, float],
    size: tuple[float, float],
    title: str,
    pixels_HWC: NDArray[np.uint8],
    map_RS: ArrayLike | None = None,
    smooth: bool = False,
) -> None:
    """The image below its title, and over it a map of the patches, from zero to its largest value."""
    (x, y), (width, height) = corner, size
    axis.text(x, y + LINE - 0.04, title, fontsize=7, va="baseline")
    extent = x, x + width, y + LINE + height, y + LINE
    draw_image(axis, pixels_HWC, extent)
    if map_RS is not None:
        interpolation = "bilinear" if smooth else "nearest"
        axis.imshow(
            np.asarray(map_RS), vmin=0.0, cmap="inferno", alpha=0.65, extent=extent, interpolation=interpolation
        )
