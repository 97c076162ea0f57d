"""The search for the best output, as a tree: what was kept at each step, what was pruned, and what won."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from regard.explain.figures import POSITIVE
from regard.explain.heat_maps import BOLD
from regard.explain.sheet import Sheet, label, text_width
from regard.explain.shown import Shown
from regard.explain.view import View
from regard.inside.beams import BeamTree, Node, beam_tree
from regard.inside.named import named

HIGH, TOP = 0.3, 0.15  # inches of a hypothesis, and above the first
MOST_STEPS = 40  # drawn
PRUNED = 2  # drawn at each step: the likeliest of those that were not kept
GREY = "0.6"


def beams(view: View) -> Shown:
    tree = beam_tree(view.task, next(iter(view.given), ""))
    ended = tree.ended
    texts = [text_of(tree, node) for node in ended]
    numbered = [f"{number + 1} {text}" for number, text in enumerate(texts)]
    axes = [("hypothesis", numbered)]
    arrays = [
        named("score", np.array([node.score for node in ended], np.float64), axes),
        named("log-probability", [node.total for node in ended], axes, "nats"),
        named("tokens", [node.step for node in ended], axes),
    ]
    steps = max(node.step for node in tree.nodes)
    remarks = [
        f"beam of {tree.beams}, length penalty {tree.length_penalty:g}; {len(ended)} hypotheses ended; "
        "below each token, its log-probability"
    ]
    if steps > MOST_STEPS:
        remarks.append(f"drawn: the first {MOST_STEPS} of {steps} steps")
    title = "Beam search: the hypotheses kept at each step, and the winner"
    return Shown(title, arrays, lambda: _draw(tree), remarks, tree.to_json(), output_text=tree.text)


def text_of(tree: BeamTree, node: Node) -> str:
    return "".join(each.word for each in tree.path(node.id)).strip()


def _drawn(tree: BeamTree) -> list[list[Node]]:
    """What is drawn of each step, the likeliest first."""
    steps = []
    for step in range(min(MOST_STEPS, max(node.step for node in tree.nodes)) + 1):
        nodes = sorted((node for node in tree.nodes if node.step == step), key=lambda node: -node.total)
        pruned = [node for node in nodes if node.fate == "pruned"][:PRUNED]
        steps.append([node for node in nodes if node.fate != "pruned" or node in pruned])
    return steps


def _draw(tree: BeamTree) -> Figure:
    steps = _drawn(tree)
    widths = [
        max(BOLD * text_width([label(node.word) for node in nodes], 7.5), text_width([*map(_numbers, nodes)], 5.5))
        for nodes in steps
    ]
    starts = np.cumsum([0.0, *(width + 0.38 for width in widths)])
    places = {
        node.id: (float(starts[step]), TOP + HIGH * (row + 0.5))
        for step, nodes in enumerate(steps)
        for row, node in enumerate(nodes)
    }
    sheet = Sheet()
    for step, nodes in enumerate(steps):
        if step:
            sheet.text(starts[step], 0.12, f"step {step}", 6, color=GREY)
        for node in sorted(nodes, key=lambda node: node.on_path):  # the winner on top
            _edge(sheet, tree, node, places)
            _node(sheet, node, places[node.id])
    height = HIGH * max(map(len, steps))
    return sheet.finished(float(starts[-1]), TOP + height + 0.1)


def _edge(sheet: Sheet, tree: BeamTree, node: Node, places: Mapping[int, tuple[float, float]]) -> None:
    if node.parent is None or node.parent not in places:
        return
    (x0, y0), (x1, y1) = places[node.parent], places[node.id]
    before = tree.nodes[node.parent]
    end = max(BOLD * text_width([label(before.word)], 7.5), text_width([_numbers(before)], 5.5)) + 0.04
    colour, wide = (POSITIVE, 1.8) if node.on_path else (("0.8", 0.6) if node.fate == "pruned" else ("0.45", 0.8))
    sheet.axis.plot([x0 + end, x1 - 0.03], [y0, y1], color=colour, linewidth=wide, solid_capstyle="round")


def _node(sheet: Sheet, node: Node, place: tuple[float, float]) -> None:
    x, y = place
    colour = POSITIVE if node.on_path else (GREY if node.fate == "pruned" else "black")
    sheet.text(x, y, label(node.word), 7.5, color=colour, va="center", weight="bold" if node.on_path else "normal")
    sheet.text(x, y + 0.12, _numbers(node), 5.5, color=colour, va="center")


def _numbers(node: Node) -> str:
    """The log-probability of the token; of a hypothesis that ended, its score."""
    if not node.step:
        return ""
    shown = f"{node.log_p:.2f}" if node.score is None else f"{node.log_p:.2f}, score {node.score:.2f}"
    return shown.replace("-", "−")
