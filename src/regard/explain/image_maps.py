"""Attention over an image: the image, the rollout over it, and every head of every layer.

Lengths are in inches. Shapes: H heads · R × S grid of patches · of an image H × W pixels, C channels
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from regard.errors import UsageError
from regard.explain.explanation import Explanation
from regard.explain.sheet import Sheet
from regard.explain.view import View
from regard.inside.named import Named, named
from regard.inside.rollout import AttentionMaps, attention_maps
from regard.inside.subject import Stack, Subject

MOST_LAYERS = 24  # drawn; the last ones of deeper models
MOST_HEADS = 16
WIDE = 8  # columns; more only with as many layers, which make the figure high anyway
SIDE = 1.3  # of a map, if the image is square
LONGEST, SHORTEST = 2.6, 0.5  # maximum side of a map; minimum side of its cell, which has a title
MARGIN = 0.1
LEFT = 0.4  # space for the names of the layers
GAP = 0.08  # between maps
BETWEEN = 0.15  # between layers
LINE = 0.17  # above a map
SCALE = 0.45  # space for the colour scale
OWN_SCALE = "each map is scaled to its own maximum"
EXPLAINED, OTHER = (255, 60, 60), (150, 150, 150)  # frames
COVERED, COVERED_SIGNED = 0.65, 0.85  # opacity of a map over an image


def image_maps(view: View) -> Explanation:
    """Attention over the patches of an image, from where the answer is read."""
    from regard.explain.rollout import rollout_faithfulness

    trace = view.trace
    if not any(part.attends for part in trace.parts()):
        raise UsageError(
            "Attention over this image cannot be drawn.",
            "The model has no attention: it mixes positions by other means.",
            'Use --what influence, or a run with model.mixer = "attention".',
        )
    answer = view.answer()
    maps = attention_maps(trace, answer)
    layers = view.layers(len(maps.layers_HRS))
    chosen = [maps.layers_HRS[layer] for layer in layers]
    heads = [view.heads(len(heads_HRS)) for heads_HRS in chosen]
    maps = AttentionMaps(
        maps.rollout_RS,
        [maps_HRS[list(layer_heads)] for maps_HRS, layer_heads in zip(chosen, heads, strict=True)],
        maps.read_from,
    )
    names = [f"layer {layer + 1}" for layer in layers]
    remarks = [
        *explained_patch(view, answer),
        f"readout: {maps.read_from}",
        OWN_SCALE,
        left_out([len(heads_HRS) for heads_HRS in maps.layers_HRS]),
    ]
    arrays = [*_named_maps(view.subject, layers, heads, maps), over_grid("rollout", maps.rollout_RS.cpu())]
    facts, faithful = rollout_faithfulness(view, answer)
    return Explanation(
        "Attention over the image: rollout through all layers, and each head",
        arrays,
        lambda: draw_maps(picture_of(view.subject, answer), maps, names, [layer_heads[0] for layer_heads in heads]),
        [remark for remark in remarks if remark],
        facts_of(view, answer) | facts,
        f"rollout: {faithful}",
    )


def facts_of(view: View, answer: int) -> dict[str, Any]:
    """The class of an image or a patch, and its probability."""
    if not hasattr(view.task, "classify") and not view.subject.of_patches:
        return {}
    predicted = view.subject.answers[answer]
    return {"label": predicted.label, "probability": float(view.trace.p_AW[answer, predicted.token])}


def explained_patch(view: View, answer: int) -> list[str]:
    """A remark on which patch is explained, if every patch has an answer."""
    if not view.subject.of_patches:
        return []
    predicted, stack = view.subject.answers[answer], view.subject.stacks[0]
    p = float(view.trace.p_AW[answer, predicted.token])
    patch = stack.pieces[stack.before + answer]
    several = f"answer {answer + 1} of {len(view.subject.answers)}"
    return [f"of the patch in row {patch.replace(', ', ', column ')}: '{predicted.label}' ({p:.1%}), {several}"]


def over_grid(name: str, map_RS: ArrayLike, unit: str = "", **notes: Any) -> Named:
    """A map over patches or pixels: [R, S]."""
    values = np.asarray(map_RS)
    rows, columns = ([str(n + 1) for n in range(side)] for side in values.shape)
    return named(name, values, [("row", rows), ("column", columns)], unit, **notes)


def _named_maps(subject: Subject, layers: range, heads: list[range], maps: AttentionMaps) -> list[Named]:
    """One array per stack, since their grids differ: [L, H, R, S]."""
    owners = [stack for stack in subject.stacks if stack.grid for _ in stack.blocks]
    arrays = []
    chosen = zip((owners[layer] for layer in layers), layers, heads, maps.layers_HRS, strict=True)
    for _, group in itertools.groupby(chosen, key=lambda item: item[0].name):
        items = list(group)
        stack: Stack = items[0][0]
        values = np.stack([heads_HRS.float().cpu().numpy() for *_, heads_HRS in items])
        rows, columns = ([str(n + 1) for n in range(side)] for side in values.shape[-2:])
        axes = [
            ("layer", [str(layer + 1) for _, layer, _, _ in items]),
            ("head", [str(head + 1) for head in items[0][2]]),
            ("row", rows),
            ("column", columns),
        ]
        name = "attention" if len(subject.stacks) == 1 else f"attention, {stack.name}"
        arrays.append(named(name, values, axes, "weight"))
    return arrays


def draw_maps(
    pixels_HWC: NDArray[np.uint8],
    maps: AttentionMaps,
    names: Sequence[str] | None = None,
    first_heads: Sequence[int] | None = None,
) -> Figure:
    """At the top the image and the rollout over it, below a block for each layer with a map for each head."""
    names = names or [f"layer {number + 1}" for number in range(len(maps.layers_HRS))]
    firsts = first_heads or [0] * len(names)
    layers = list(zip(names, firsts, maps.layers_HRS, strict=True))[-MOST_LAYERS:]
    heads = [min(MOST_HEADS, len(heads_HRS)) for *_, heads_HRS in layers]
    columns = columns_for(heads)
    size = map_width, map_height = map_size(pixels_HWC)
    step_x, step_y = max(SHORTEST, map_width) + GAP, max(SHORTEST, map_height) + LINE
    span = min(2.0, columns / 2)  # columns that each of the two maps at the top takes
    enlarged = (span * step_x - GAP) / (step_x - GAP)
    large = enlarged * map_width, enlarged * map_height
    sheet = Sheet()
    y = 0.0
    draw_over(sheet, (LEFT, y), large, "image", pixels_HWC)
    title = f"rollout, 0 to {maps.rollout_RS.max():.1%}"
    draw_over(sheet, (LEFT + span * step_x, y), large, title, pixels_HWC, maps.rollout_RS.cpu(), smooth=True)
    y += LINE + large[1]
    for (name, first, heads_HRS), count in zip(layers, heads, strict=True):
        y += BETWEEN
        block = math.ceil(count / columns) * step_y
        sheet.text(LEFT / 2, y + (LINE + block) / 2, name, 8, rotation=90, ha="center", va="center")
        for head, map_RS in enumerate(heads_HRS[:count].cpu()):
            row, column = divmod(head, columns)
            corner = LEFT + column * step_x, y + row * step_y
            draw_over(sheet, corner, size, f"head {first + head + 1}", pixels_HWC, map_RS)
        y += block
    sheet.scale(LEFT, y + SCALE - 0.2, 1.0, "of each map's maximum")
    return sheet.finished(LEFT + columns * step_x - GAP + MARGIN, y + SCALE + MARGIN)


def columns_for(heads: Sequence[int]) -> int:
    """The number of columns with the fewest empty cells and rows, if each layer starts a row."""

    def cost(columns: int) -> int:
        rows = [math.ceil(count / columns) for count in heads]
        return sum(columns * used - count for used, count in zip(rows, heads, strict=True)) + sum(rows)

    return min(range(2, max(WIDE, len(heads)) + 1), key=cost)


def left_out(heads: Sequence[int]) -> str:
    """A remark on which layers and heads are drawn, given the number of heads in each layer; empty if all are."""
    layers = list(enumerate(heads, start=1))[-MOST_LAYERS:]
    parts = [f"the last {MOST_LAYERS} of {len(heads)} layers"] if len(heads) > MOST_LAYERS else []
    for count, group in itertools.groupby(layers, key=lambda layer: layer[1]):
        numbers = [number for number, _ in group]
        if count > MOST_HEADS:
            where = f" in layer {numbers[0]}" if len(numbers) == 1 else f" in layers {numbers[0]} to {numbers[-1]}"
            parts.append(f"{MOST_HEADS} of {count} heads{where if len(numbers) < len(layers) else ''}")
    return "drawn: " + ", ".join(parts) if parts else ""


def map_size(pixels_HWC: NDArray[np.uint8]) -> tuple[float, float]:
    """Width and height of a map: the aspect ratio of the image, and roughly the same area for all ratios."""
    height, width = pixels_HWC.shape[:2]
    scale = min(SIDE / math.sqrt(width * height), LONGEST / max(width, height))
    return width * scale, height * scale


def picture_of(subject: Subject, answer: int | None = None) -> NDArray[np.uint8]:
    """The image, and the box or the patch that an answer is about in a red frame."""
    grid = subject.stacks[0].grid
    assert grid is not None
    pixels_HWC = subject.picture_HWC if subject.picture_HWC is not None else np.full((*grid, 1), 128, np.uint8)
    frames = [(box, OTHER) for number, box in enumerate(subject.boxes) if number != subject.box]
    frames += [(subject.boxes[subject.box], EXPLAINED)] if subject.boxes else []
    if answer is not None and subject.of_patches:
        frames.append((_corners(answer, grid, pixels_HWC.shape[:2]), EXPLAINED))
    if not frames:
        return pixels_HWC
    from PIL import Image, ImageDraw

    picture = Image.fromarray(pixels_HWC[..., 0] if pixels_HWC.shape[-1] == 1 else pixels_HWC).convert("RGB")
    for frame, colour in frames:
        ImageDraw.Draw(picture).rectangle([round(side) for side in frame], outline=colour)
    return np.array(picture)


def _corners(cell: int, grid: tuple[int, int], size: tuple[int, ...]) -> tuple[float, ...]:
    """Left, top, right and bottom of a cell: its outermost pixels."""
    (row, column), (height, width) = divmod(cell, grid[1]), (size[0] / grid[0], size[1] / grid[1])
    return column * width, row * height, (column + 1) * width - 1, (row + 1) * height - 1


def draw_over(
    sheet: Sheet,
    corner: tuple[float, float],
    size: tuple[float, float],
    title: str,
    pixels_HWC: NDArray[np.uint8],
    map_RS: ArrayLike | None = None,
    smooth: bool = False,
    signed: bool = False,
    largest: float | None = None,
) -> None:
    """The image below its title, and over it a map of the patches, from zero to `largest` or to its own maximum."""
    (x, y), (width, height) = corner, size
    sheet.text(x, y + LINE - 0.04, title, 7)
    sheet.picture(x, y + LINE, width, height, pixels_HWC)
    if map_RS is not None:
        largest = largest or float(np.nanmax(np.abs(np.asarray(map_RS)))) or 1.0
        interpolation = "bilinear" if smooth else "nearest"
        sheet.heat(
            x,
            y + LINE,
            width,
            height,
            map_RS,
            largest,
            signed,
            alpha=COVERED_SIGNED if signed else COVERED,
            interpolation=interpolation,
        )
