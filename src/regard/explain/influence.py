"""Influence: how strongly each output position depends on each input position, for any mixer."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from regard.explain.explanation import Explanation
from regard.explain.heat_maps import Map, block_labels, draw_maps, reduced
from regard.explain.image_maps import draw_over, explained_patch, facts_of, map_size, over_grid, picture_of
from regard.explain.sheet import Sheet, label
from regard.explain.view import View
from regard.inside.named import Named
from regard.inside.rollout import read_from, readout_positions
from regard.inside.trace import input_stacks

LARGE = 2.4  # times the size of a small map


def influence(view: View) -> Explanation:
    trace, stack = view.trace, view.choice.stack
    inputs = [each.name for each in input_stacks(trace)]
    source = stack if stack in inputs else inputs[0]
    norms = trace.influence(stack, source=source)
    method = "exact" if norms.notes["exact"] else f"estimated with {norms.notes['probes']} random directions"
    remarks = [f"the norm of the derivative, ‖∂y/∂x‖, {method}"]
    if view.subject.last.grid is not None and not stack:
        return _of_image(view, norms, remarks)
    values, block = reduced(norms.values)

    def draw() -> Figure:
        down, across = (block_labels([*map(label, names)], n) for names, n in zip(norms.labels, block, strict=True))
        axes = ("output position", "input position")
        if source != (stack or trace.last.name):
            axes = (f"{stack or trace.last.name} position", f"{source} position")
        return draw_maps([[Map("", values)]], down, across, "norm of the derivative", axes)

    if max(block) > 1:
        remarks.append(f"drawn: the largest of each block of {block[0]} × {block[1]} positions")
    title = "Influence: how strongly each output position depends on each input position"
    return Explanation(title, [norms], draw, remarks)


def _of_image(view: View, norms: Named, remarks: list[str]) -> Explanation:
    """The influence of every patch on the positions that the answer is read from."""
    answer = view.answer()
    stack = input_stacks(view.trace)[0].stack
    assert stack.grid is not None
    positions = readout_positions(view.trace, answer, view.subject.last)
    squares_T = np.square(norms.values[positions]).mean(0)
    map_RS = np.sqrt(squares_T[stack.before :])
    patches = stack.grid[0] * stack.grid[1]
    map_RS = np.append(map_RS, [np.nan] * (patches - len(map_RS))).reshape(stack.grid)
    on_answer = over_grid("influence on the answer", map_RS, read_from=read_from(view.trace, answer))

    def draw() -> Figure:
        pixels_HWC = picture_of(view.subject, answer)
        width, height = (LARGE * side for side in map_size(pixels_HWC))
        sheet = Sheet()
        draw_over(sheet, (0, 0), (width, height), "image", pixels_HWC)
        draw_over(sheet, (width + 0.15, 0), (width, height), "influence", pixels_HWC, map_RS)
        sheet.scale(0.0, height + 0.45, float(np.nanmax(map_RS)), "norm of the derivative")
        return sheet.finished(2 * width + 0.15, height + 0.7)

    title = "Influence: how strongly the readout of the answer depends on each patch"
    readout = f"readout: {on_answer.notes['read_from']}" + (" (quadratic mean)" if len(positions) > 1 else "")
    about = [*explained_patch(view, answer), readout, *remarks]
    return Explanation(title, [on_answer, norms], draw, about, facts_of(view, answer))
