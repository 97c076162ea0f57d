"""Attention rollout: how much of each position of the input reaches the end, by attention alone."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from regard.explain.attribution import believed
from regard.explain.heat_maps import Map, draw_maps, joined_labels, reduced
from regard.explain.image_maps import draw_over, facts_of, map_size, over_grid, picture_of
from regard.explain.sheet import Sheet, label
from regard.explain.shown import Shown
from regard.explain.view import View
from regard.inside.rollout import attention_maps, rollout_of_answer
from regard.inside.rollout import rollout as rolled_through

LARGE = 2.4  # times the size of a small map


def rollout(view: View) -> Shown:
    if view.subject.last.grid is not None:
        return _of_image(view)
    rolled = rolled_through(view.trace, view.choice.stack)
    values, joined = reduced(rolled.values)

    def draw() -> Figure:
        down, across = (
            joined_labels([*map(label, names)], by) for names, by in zip(rolled.labels, joined, strict=True)
        )
        return draw_maps([[Map("", values)]], down, across, "share", ("output position", "input position"))

    remarks = [f"left out: {rolled.notes['left_out']}"]
    if max(joined) > 1:
        remarks.append(f"drawn: the largest share of each block of {joined[0]} × {joined[1]} positions")
    whose = f" of the {rolled.notes['stack']}" if len(view.subject.stacks) > 1 else ""
    title = f"Attention rollout{whose}: share of each input position in each output position"
    if rolled.notes["stack"] == view.subject.last.name:
        return Shown(title, [rolled], draw, remarks, *faithful_rollout(view, _read_last(view)))
    # The decoder reads all positions at the end.
    faithful, facts = believed(view, {rolled.notes["stack"]: rolled.values.mean(0)}, view.answer())
    return Shown(title, [rolled], draw, remarks, facts, f"mean of all output positions: {faithful}")


def _read_last(view: View) -> int:
    """The answer asked for, or else the last one: it sees the most positions."""
    return view.answer() if view.choice.answer is not None else len(view.subject.answers) - 1


def _of_image(view: View) -> Shown:
    answer = view.answer()
    maps = attention_maps(view.trace, answer)
    rolled = over_grid("rollout", maps.rollout_RS.cpu(), read_from=maps.read_from)
    pixels_HWC = picture_of(view.subject)
    size = tuple(LARGE * side for side in map_size(pixels_HWC))

    def draw() -> Figure:
        sheet = Sheet()
        width, height = size
        draw_over(sheet, (0, 0), (width, height), "image", pixels_HWC)
        title = f"rollout, 0 to {rolled.values.max():.1%}"
        draw_over(sheet, (width + 0.15, 0), (width, height), title, pixels_HWC, rolled.values, smooth=True)
        return sheet.finished(2 * width + 0.15, height + 0.17)

    remarks = [f"readout: {maps.read_from}; left out: feed-forward layers"]
    title = "Attention rollout: share of each patch in the answer"
    facts, faithful = faithful_rollout(view, answer)
    return Shown(title, [rolled], draw, remarks, facts_of(view, answer) | facts, faithful)


def faithful_rollout(view: View, answer: int) -> tuple[dict[str, Any], str]:
    """Whether the positions that reach an answer are those that it depends on."""
    rolled = rollout_of_answer(view.trace, answer)
    faithful, facts = believed(view, {rolled.notes["stack"]: rolled}, answer)
    several = len(view.subject.answers) > 1
    whose = f"answer {answer + 1}, '{label(view.subject.answers[answer].label)}': " if several else ""
    return facts, whose + faithful
