"""Convolutions as matrices: row t is what position t takes from every position.

Shapes: L layers · C channels · T positions
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from regard.errors import UsageError
from regard.explain.explanation import Explanation
from regard.explain.heat_maps import reduced
from regard.explain.names import part_name
from regard.explain.sheet import Sheet, label, text_width
from regard.explain.view import View
from regard.inside.named import Named, named
from regard.inside.operator import mean_operator
from regard.layers.hyena import Hyena

POSITIONS = 48
LAYERS, CHANNELS = 4, 5  # drawn at most
SIDE, GAP, LINE = 1.9, 0.12, 0.17  # inches
NONE = (
    "There are no convolutions to draw.",
    "No layer of this model mixes positions by a convolution.",
    'Choose a run with a mixer that does, such as model.mixer = "hyena".',
)


def convolutions(view: View) -> Explanation:
    if view.given:
        return operators(view)
    matrices = toeplitz(view.task.model, view.task.settings.width)
    title = "The first convolution of each layer as a Toeplitz matrix; rows: output positions, columns: input positions"
    remark = "each matrix on its own colour scale"
    return Explanation(title, [matrices], lambda: _draw(matrices), [remark])


def operators(view: View) -> Explanation:
    """For one input, each Hyena layer as a single matrix; it includes the gates, which depend on the input."""
    parts = [part for part in view.trace.parts() if isinstance(part.module, Hyena)]
    if not parts:
        raise UsageError(*NONE)
    pieces = {stack.name: stack.pieces for stack in view.subject.stacks}
    arrays = [
        replace(
            mean_operator(part, pieces[part.name.partition(".")[0]]),
            name=f"operator, {part_name(view.trace, part.name)}",
        )
        for part in parts
    ]
    worst = max(array.notes["difference"] for array in arrays)
    title = "Hyena as a matrix: mean |operator| over channels; rows: output positions, columns: input positions"
    remark = f"applied to v, the matrices differ from the layers' own outputs by at most {worst:.1e}"
    scales = "each matrix on its own colour scale, shown below it"
    return Explanation(title, arrays, lambda: _draw_operators(arrays), [remark, scales])


def _draw_operators(arrays: Sequence[Named]) -> Figure:
    """A row of matrices for each stack, whose layers have the same positions."""
    groups = [list(group) for _, group in itertools.groupby(arrays, key=lambda array: array.labels)]
    sheet, top, widest = Sheet(), 0.0, 0.0
    for group in groups:
        names = [label(piece) for piece in group[0].labels[0]]
        side = max(SIDE, min(5.0, 0.16 * len(names)))
        left, below = text_width(names, 6.5) + 0.15, text_width(names, 6.5) + 0.25
        for number, array in enumerate(group):
            x = left + number * (side + GAP)
            sheet.text(x, top + LINE - 0.04, array.name.removeprefix("operator, "), 7)
            largest = float(array.values.max()) or 1.0
            sheet.heat(x, top + LINE, side, side, reduced(array.values)[0], largest)
            sheet.labels_across(x, top + LINE + side, side, names, 6.5)
            sheet.scale(x, top + LINE + side + below, largest, "", width=0.7 * side)
        sheet.labels_down(left, top + LINE, side, names, 6.5)
        top += LINE + side + below + 0.3
        widest = max(widest, left + len(group) * (side + GAP))
    return sheet.finished(widest, top)


@torch.inference_mode()
def toeplitz(model: nn.Module, width: int) -> Named:
    """The first convolution of the first layers whose mixer has `toeplitz`: [L, C, T, T]."""
    mixers: dict[str, Any] = {name: module for name, module in model.named_modules() if hasattr(module, "toeplitz")}
    if not mixers:
        raise UsageError(*NONE)
    mixers = dict(list(mixers.items())[:LAYERS])
    # From the channel with the slowest decay to the one with the fastest.
    channels = sorted({round(n * (width - 1) / (CHANNELS - 1)) for n in range(CHANNELS)})
    matrices = [[mixer.toeplitz(POSITIONS, channel).float().cpu() for channel in channels] for mixer in mixers.values()]
    positions = [str(position + 1) for position in range(POSITIONS)]
    axes = [
        ("layer", [_layer_name(name) for name in mixers]),
        ("channel", [str(channel + 1) for channel in channels]),
        ("position", positions),
        ("from", positions),
    ]
    return named("toeplitz", torch.stack([torch.stack(row) for row in matrices]), axes)


def _draw(matrices: Named) -> Figure:
    sheet = Sheet()
    layers, channels = matrices.values.shape[:2]
    for row, column in np.ndindex(layers, channels):
        x, y = column * (SIDE + GAP), row * (SIDE + GAP + LINE) + LINE
        values = matrices.values[row, column]
        sheet.text(x, y - 0.04, f"{matrices.labels[0][row]} · channel {matrices.labels[1][column]}", 7)
        sheet.heat(x, y, SIDE, SIDE, values, float(np.abs(values).max()) or 1.0, signed=True)
    return sheet.finished(channels * (SIDE + GAP) - GAP, layers * (SIDE + GAP + LINE))


def _layer_name(name: str) -> str:
    """'encoder.0.mixer' as 'encoder 1', 'trunk.blocks.2.mixer' as 'layer 3'."""
    *_, stack, number, _ = name.split(".")
    return f"{'layer' if stack == 'blocks' else stack} {int(number) + 1}"
