"""Influence: how strongly each position at the end depends on each of the input, whatever mixes them."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from regard.explain.heat_maps import Map, draw_maps, joined_labels, reduced
from regard.explain.image_maps import draw_over, facts_of, map_size, over_grid, picture_of
from regard.explain.sheet import Sheet, label
from regard.explain.shown import Shown
from regard.explain.view import View
from regard.inside.named import Named
from regard.inside.rollout import read_from, readers_of
from regard.inside.trace import input_stacks

LARGE = 2.4  # times the size of a small map


def influence(view: View) -> Shown:
    trace, stack = view.trace, view.choice.stack
    inputs = [each.name for each in input_stacks(trace)]
    of = stack if stack in inputs else inputs[0]
    found = trace.influence(stack, of=of)
    how = "exact" if found.notes["exact"] else f"estimated with {found.notes['probes']} random directions"
    remarks = [f"the norm of the derivative, ‖∂y/∂x‖, {how}"]
    if view.subject.last.grid is not None and not stack:
        return _of_image(view, found, remarks)
    values, joined = reduced(found.values)

    def draw() -> Figure:
        down, across = (joined_labels([*map(label, names)], by) for names, by in zip(found.labels, joined, strict=True))
        ends = ("output position", "input position")
        if of != (stack or trace.last.name):
            ends = (f"position of the {stack or trace.last.name}", f"position of the {of}")
        return draw_maps([[Map("", values)]], down, across, "norm of the derivative", ends)

    if max(joined) > 1:
        remarks.append(f"drawn: the largest of each block of {joined[0]} × {joined[1]} positions")
    return Shown("Influence: how strongly each output position depends on each input position", [found], draw, remarks)


def _of_image(view: View, found: Named, remarks: list[str]) -> Shown:
    """From where the answer is read to every patch."""
    answer = view.answer()
    stack = input_stacks(view.trace)[0].stack
    assert stack.grid is not None
    readers = readers_of(view.trace, answer, view.subject.last)
    squares_T = np.square(found.values[readers]).mean(0)
    map_RS = np.sqrt(squares_T[stack.before :])
    places = stack.grid[0] * stack.grid[1]
    map_RS = np.append(map_RS, [np.nan] * (places - len(map_RS))).reshape(stack.grid)
    over = over_grid("influence on the answer", map_RS, read_from=read_from(view.trace, answer))

    def draw() -> Figure:
        pixels_HWC = picture_of(view.subject)
        width, height = (LARGE * side for side in map_size(pixels_HWC))
        sheet = Sheet()
        draw_over(sheet, (0, 0), (width, height), "image", pixels_HWC)
        draw_over(sheet, (width + 0.15, 0), (width, height), "influence", pixels_HWC, map_RS)
        sheet.scale(0.0, height + 0.45, float(np.nanmax(map_RS)), "norm of the derivative")
        return sheet.finished(2 * width + 0.15, height + 0.7)

    title = "Influence: how strongly what the answer is read from depends on each patch"
    seen = f"readout: {over.notes['read_from']}" + (" (quadratic mean)" if len(readers) > 1 else "")
    return Shown(title, [over, found], draw, [seen, *remarks], facts_of(view, answer))
