"""Attribution: how much each input position contributes to an answer, and how faithful these scores are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from matplotlib.figure import Figure

from regard.errors import UsageError, did_you_mean
from regard.explain.explanation import Explanation
from regard.explain.image_maps import draw_over, explained_patch, facts_of, map_size, over_grid, picture_of
from regard.explain.kinds import parameters
from regard.explain.sheet import Sheet, label
from regard.explain.view import View
from regard.explain.words import Group, Word, draw_groups, draw_words
from regard.inside.attribution import Method
from regard.inside.faithfulness import Faithfulness, faithfulness
from regard.inside.named import Named

WORDS = "words"  # for questions: occlusion of whole words
NAMES = {
    "integrated-gradients": "Integrated gradients",
    "gradient-input": "Gradient × input",
    "occlusion": "Occlusion",
    "rollout": "Attention rollout",
}
LARGE = 2.4  # times the size of a small map


def attribution(view: View) -> Explanation:
    answers_questions = "context" in parameters(view.task)
    method: Any = view.choice.method or (WORDS if answers_questions else "integrated-gradients")
    known = [*get_args(Method), *([WORDS] if answers_questions else [])]
    if method not in known:
        raise UsageError(
            f"Unknown attribution method '{method}'.",
            f"The methods are {', '.join(known)}.",
            did_you_mean(method, known),
        )
    if method == WORDS:
        from regard.explain.occlusion import effects

        return effects(view)
    answer = view.answer()
    attributed = view.trace.attribute(method, answer, view.token(answer))
    stacks, notes = attributed.stacks, attributed.notes
    measured = attributed.faithful()
    count = len(view.subject.answers)
    which = "the given token" if view.subject.answers[answer].given else "the output"
    remarks = explained_patch(view, answer) or ([f"of {which}, answer {answer + 1} of {count}"] if count > 1 else [])
    if "error" in notes:
        remarks.append(
            f"the scores of all positions sum to {notes['sum']:+.3f}; the logit minus that of an empty input is "
            f"{notes['difference']:+.3f}: an error of {notes['error']:.2%}"
        )
    return Explanation(
        f"{NAMES[method]}: contribution of each position to '{label(notes['token'])}'",
        [*_arrays(view, stacks), measured.deletion_curve, measured.insertion_curve],
        lambda: _draw(view, stacks, answer),
        remarks,
        facts_of(view, answer) | {"method": method} | to_facts(measured),
        in_one_line(measured),
    )


def in_one_line(measured: Faithfulness) -> str:
    if measured.positions < 2:
        return measured.verdict
    return (
        f"{measured.verdict} Deletion {measured.deletion:.3g} (random order {measured.deletion_random:.3g}; "
        f"lower is better), insertion {measured.insertion:.3g} ({measured.insertion_random:.3g}; higher is better)."
    )


def to_facts(measured: Faithfulness) -> dict[str, Any]:
    """All its numbers, for JSON."""
    return {"faithfulness": measured.facts | {"verdict": measured.verdict}}


def measured_faithfulness(view: View, scores: Mapping[str, Any], answer: int) -> tuple[str, dict[str, Any]]:
    """The faithfulness of any scores: in one line, and for JSON."""
    measured = faithfulness(view.trace, scores, answer)
    return in_one_line(measured), to_facts(measured)


def _arrays(view: View, stacks: Mapping[str, Named]) -> list[Named]:
    """The scores of each stack; those of an image also as a map."""
    arrays = []
    for name, array in stacks.items():
        suffix = f", {name}" if len(stacks) > 1 else ""
        arrays.append(replace(array, name=f"attribution{suffix}"))
        stack = view.trace[name].stack
        if stack.grid:
            map_RS = array.values[stack.before :]
            if map_RS.size == stack.grid[0] * stack.grid[1]:
                arrays.append(over_grid(f"map{suffix}", map_RS.reshape(stack.grid), array.unit))
    return arrays


def _draw(view: View, stacks: Mapping[str, Named], answer: int) -> Figure:
    unit = next(iter(stacks.values())).unit
    legend = {
        "logit": "added to the logit",
        "nats": "drop in ln p when emptied, in nats",
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
    return _draw_image(view, image, stacks[image], groups, largest, legend, answer)


def _words(view: View, array: Named, answer: int) -> list[Word]:
    words = [Word(piece, float(value)) for piece, value in zip(array.labels[0], array.values, strict=True)]
    stack, last = view.trace[array.notes["stack"]], view.subject.answers[answer].position
    if stack.causal and last is not None and stack is view.trace.last:
        return words[: last + 1]  # later positions are not visible to the answer
    return words


def _draw_image(
    view: View, name: str, array: Named, groups: Sequence[Group], largest: float, legend: str, answer: int
) -> Figure:
    """The image, the map over it, and the text that was read too, if any, on one scale."""
    stack, pixels_HWC = view.trace[name].stack, picture_of(view.subject, answer)
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
