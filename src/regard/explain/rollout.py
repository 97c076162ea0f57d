"""Attention rollout: the share of each input position in the output, by attention alone."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from regard.explain.attribution import measured_faithfulness
from regard.explain.explanation import Explanation
from regard.explain.heat_maps import Map, block_labels, draw_maps, reduced
from regard.explain.image_maps import draw_over, explained_patch, facts_of, map_size, over_grid, picture_of
from regard.explain.sheet import Sheet, label
from regard.explain.view import View
from regard.inside.rollout import attention_maps, rollout_of_answer
from regard.inside.rollout import rollout as rollout_of_stack

LARGE = 2.4  # times the size of a small map


def rollout(view: View) -> Explanation:
    if view.subject.last.grid is not None:
        return _of_image(view)
    rolled = rollout_of_stack(view.trace, view.choice.stack)
    values, block = reduced(rolled.values)

    def draw() -> Figure:
        down, across = (block_labels([*map(label, names)], n) for names, n in zip(rolled.labels, block, strict=True))
        return draw_maps([[Map("", values)]], down, across, "share", ("output position", "input position"))

    remarks = [f"left out: {rolled.notes['left_out']}"]
    if max(block) > 1:
        remarks.append(f"drawn: the largest share of each block of {block[0]} × {block[1]} positions")
    owner = f" of the {rolled.notes['stack']}" if len(view.subject.stacks) > 1 else ""
    title = f"Attention rollout{owner}: share of each input position in each output position"
    if rolled.notes["stack"] == view.subject.last.name:
        return Explanation(title, [rolled], draw, remarks, *rollout_faithfulness(view, _chosen_or_last(view)))
    # The decoder reads all output positions.
    faithful, facts = measured_faithfulness(view, {rolled.notes["stack"]: rolled.values.mean(0)}, view.answer())
    return Explanation(title, [rolled], draw, remarks, facts, f"mean of all output positions: {faithful}")


def _chosen_or_last(view: View) -> int:
    """The chosen answer, or the last one, which sees the most positions."""
    return view.answer() if view.choice.answer is not None else len(view.subject.answers) - 1


def _of_image(view: View) -> Explanation:
    answer = view.answer()
    maps = attention_maps(view.trace, answer)
    rolled = over_grid("rollout", maps.rollout_RS.cpu(), read_from=maps.read_from)
    pixels_HWC = picture_of(view.subject, answer)
    size = tuple(LARGE * side for side in map_size(pixels_HWC))

    def draw() -> Figure:
        sheet = Sheet()
        width, height = size
        draw_over(sheet, (0, 0), (width, height), "image", pixels_HWC)
        title = f"rollout, 0 to {rolled.values.max():.1%}"
        draw_over(sheet, (width + 0.15, 0), (width, height), title, pixels_HWC, rolled.values, smooth=True)
        return sheet.finished(2 * width + 0.15, height + 0.17)

    remarks = [*explained_patch(view, answer), f"readout: {maps.read_from}; left out: {maps.left_out}"]
    title = "Attention rollout: share of each patch in the answer"
    facts, faithful = rollout_faithfulness(view, answer)
    return Explanation(title, [rolled], draw, remarks, facts_of(view, answer) | facts, faithful)


def rollout_faithfulness(view: View, answer: int) -> tuple[dict[str, Any], str]:
    """The faithfulness of the rollout to an answer: for JSON, and in one line."""
    rolled = rollout_of_answer(view.trace, answer)
    faithful, facts = measured_faithfulness(view, {rolled.notes["stack"]: rolled}, answer)
    several = len(view.subject.answers) > 1
    prefix = f"answer {answer + 1}, '{label(view.subject.answers[answer].label)}': " if several else ""
    return facts, prefix + faithful
