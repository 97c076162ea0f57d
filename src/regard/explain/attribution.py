"""Attribution: how much each position of the input speaks for an answer, and how far one may believe that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
from matplotlib.figure import Figure

from regard.errors import UsageError, did_you_mean
from regard.explain.image_maps import draw_over, facts_of, map_size, over_grid, picture_of
from regard.explain.kinds import parameters
from regard.explain.sheet import Sheet, label
from regard.explain.shown import Shown
from regard.explain.view import View
from regard.explain.words import Group, Word, draw_groups, draw_words
from regard.inside.attribution import Method
from regard.inside.faithfulness import Faithfulness, faithfulness
from regard.inside.named import Named

WORDS = "words"  # of a question and its context: whole words are taken away
NAMES = {
    "integrated-gradients": "Integrated gradients",
    "gradient-input": "Gradient × input",
    "occlusion": "Occlusion",
    "rollout": "Attention rollout",
}
LARGE = 2.4  # times the size of a small map


def attribution(view: View) -> Shown:
    answers_questions = "context" in parameters(view.task)
    method: Any = view.choice.method or (WORDS if answers_questions else "integrated-gradients")
    known = [*get_args(Method), *([WORDS] if answers_questions else [])]
    if method not in known:
        raise UsageError(
            f"There is no attribution '{method}'.", "There is no such method.", did_you_mean(method, known)
        )
    if method == WORDS:
        from regard.explain.occlusion import effects

        return effects(view)
    answer = view.answer()
    found = view.trace.attribute(method, answer, view.token(answer))
    token = label(found.notes["token"])
    faithful = found.faithful()
    several = len(view.subject.answers)
    remarks = [f"of {_whose(view, answer)}, answer {answer + 1} of {several}"] if several > 1 else []
    if "error" in found.notes:
        remarks.append(
            f"the scores of all positions sum to {found.notes['sum']:+.3f}; the logit minus that of an empty input is "
            f"{found.notes['difference']:+.3f}: an error of {found.notes['error']:.2%}"
        )
    arrays = [*_arrays(view, found.stacks), faithful.deletion_curve, faithful.insertion_curve]
    unit = next(iter(found.stacks.values())).unit
    return Shown(
        f"{NAMES[method]}: contribution of each position to '{token}'",
        arrays,
        lambda: _draw(view, found.stacks, unit, answer),
        remarks,
        facts_of(view, answer) | {"method": method, "faithfulness": measured(faithful)},
        in_words(faithful),
    )


def _whose(view: View, answer: int) -> str:
    return "the given token" if view.subject.answers[answer].given else "the output"


def in_words(found: Faithfulness) -> str:
    if found.positions < 2:
        return "faithfulness is not measured: only one position can be emptied, so all orders are the same"
    orders = len(found.deletion_curve.values) - 1
    return (
        f"deletion {found.deletion:.3f} (random order {found.deletion_random:.3f}; lower is better), "
        f"insertion {found.insertion:.3f} ({found.insertion_random:.3f}; higher is better); "
        f"better than {found.deletion_beats} of {orders} random orders by deletion, "
        f"{found.insertion_beats} of {orders} by insertion"
    )


def measured(found: Faithfulness) -> dict[str, float]:
    """All its numbers."""
    return {name: value for name, value in vars(found).items() if isinstance(value, float | int)}


def believed(view: View, scores: Mapping[str, Any], answer: int) -> tuple[str, dict[str, Any]]:
    """The same of any scores: in words, and for JSON."""
    found = faithfulness(view.trace, scores, answer)
    return in_words(found), {"faithfulness": measured(found)}


def _arrays(view: View, stacks: Mapping[str, Named]) -> list[Named]:
    """One of each stack; that of an image as a map as well."""
    arrays = []
    for name, array in stacks.items():
        several = f", {name}" if len(stacks) > 1 else ""
        arrays.append(Named(f"attribution{several}", *list(vars(array).values())[1:]))
        stack = view.trace[name].stack
        if stack.grid:
            map_RS = array.values[stack.before :]
            if map_RS.size == stack.grid[0] * stack.grid[1]:
                arrays.append(over_grid(f"map{several}", map_RS.reshape(stack.grid), array.unit))
    return arrays


def _draw(view: View, stacks: Mapping[str, Named], unit: str, answer: int) -> Figure:
    legend = {
        "logit": "added to the logit",
        "nats": "drop in ln p when it is removed, in nats",
        "share": "share of what reaches the answer",
    }[unit]
    if unit != "share":  # a share is never negative
        legend = f"{legend}; blue: evidence for the answer, orange: against it"
    images = [name for name in stacks if view.trace[name].stack.grid]
    groups = [
        (name if len(stacks) > 1 else "", _words(view, array, answer))
        for name, array in stacks.items()
        if name not in images
    ]
    if not images:
        return draw_words(groups, legend)
    [image] = images
    largest = max(float(np.abs(array.values).max()) for array in stacks.values()) or 1.0
    return _draw_image(view, image, stacks[image], groups, largest, legend)


def _words(view: View, array: Named, answer: int) -> list[Word]:
    words = [Word(piece, float(value)) for piece, value in zip(array.labels[0], array.values, strict=True)]
    stack, last = view.trace[array.notes["stack"]], view.subject.answers[answer].position
    if stack.causal and last is not None and stack is view.trace.last:
        return words[: last + 1]  # what comes after cannot be seen
    return words


def _draw_image(view: View, name: str, array: Named, groups: Sequence[Group], largest: float, legend: str) -> Figure:
    """The image, the map over it, and below them what else was read, all on one scale."""
    stack, pixels_HWC = view.trace[name].stack, picture_of(view.subject)
    assert stack.grid is not None
    width, height = (LARGE * side for side in map_size(pixels_HWC))
    rows, columns = stack.grid
    values = array.values[stack.before :]
    map_RS = np.append(values, [np.nan] * (rows * columns - len(values))).reshape(rows, columns)
    sheet = Sheet()
    draw_over(sheet, (0, 0), (width, height), "image", pixels_HWC)
    right = (width + 0.15, 0.0)
    draw_over(sheet, right, (width, height), "attribution", pixels_HWC, map_RS, signed=True, largest=largest)
    widest, y = draw_groups(sheet, height + 0.3, groups, largest)
    sheet.scale(0.0, y + 0.2, largest, legend, signed=True)
    return sheet.finished(max(widest, 2 * width + 0.15), y + 0.4)
