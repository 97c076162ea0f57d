"""The beam search as a tree: the hypotheses kept and pruned at each step, and the winner."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from regard.explain.explanation import Explanation
from regard.explain.figures import POSITIVE
from regard.explain.heat_maps import BOLD
from regard.explain.sheet import Sheet, label, text_width
from regard.explain.view import View
from regard.inside.beams import BeamTree, Node, beam_tree
from regard.inside.named import named

HIGH, TOP = 0.3, 0.15  # inches: height of a hypothesis, and margin above the first
MOST_STEPS = 40  # drawn
PRUNED = 2  # drawn at each step: the likeliest pruned hypotheses
GREY = "0.6"


def beams(view: View) -> Explanation:
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
        f"beam size {tree.beams}, length penalty {tree.length_penalty:g}; {len(ended)} finished hypotheses; "
        "below each token, its log-probability"
    ]
    if steps > MOST_STEPS:
        remarks.append(f"drawn: the first {MOST_STEPS} of {steps} steps")
    title = "Beam search: the hypotheses kept at each step, and the winner"
    return Explanation(title, arrays, lambda: _draw(tree), remarks, tree.to_json(), output_text=tree.text)


def text_of(tree: BeamTree, node: Node) -> str:
    return "".join(each.word for each in tree.path(node.id)).strip()


def _drawn(tree: BeamTree) -> list[list[Node]]:
    """The hypotheses to draw at each step, the likeliest first."""
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
    corners = {
        node.id: (float(starts[step]), TOP + HIGH * (row + 0.5))
        for step, nodes in enumerate(steps)
        for row, node in enumerate(nodes)
    }
    sheet = Sheet()
    for step, nodes in enumerate(steps):
        if step:
            sheet.text(starts[step], 0.12, f"step {step}", 6, color=GREY)
        for node in sorted(nodes, key=lambda node: node.on_path):  # the winner on top
            _edge(sheet, tree, node, corners)
            _node(sheet, node, corners[node.id])
    height = HIGH * max(map(len, steps))
    return sheet.finished(float(starts[-1]), TOP + height + 0.1)


def _edge(sheet: Sheet, tree: BeamTree, node: Node, corners: Mapping[int, tuple[float, float]]) -> None:
    if node.parent is None or node.parent not in corners:
        return
    (x0, y0), (x1, y1) = corners[node.parent], corners[node.id]
    parent = tree.nodes[node.parent]
    end = max(BOLD * text_width([label(parent.word)], 7.5), text_width([_numbers(parent)], 5.5)) + 0.04
    colour, wide = (POSITIVE, 1.8) if node.on_path else (("0.8", 0.6) if node.fate == "pruned" else ("0.45", 0.8))
    sheet.axis.plot([x0 + end, x1 - 0.03], [y0, y1], color=colour, linewidth=wide, solid_capstyle="round")


def _node(sheet: Sheet, node: Node, corner: tuple[float, float]) -> None:
    x, y = corner
    colour = POSITIVE if node.on_path else (GREY if node.fate == "pruned" else "black")
    sheet.text(x, y, label(node.word), 7.5, color=colour, va="center", weight="bold" if node.on_path else "normal")
    sheet.text(x, y + 0.12, _numbers(node), 5.5, color=colour, va="center")


def _numbers(node: Node) -> str:
    """The log-probability of the token, and the score of a finished hypothesis."""
    if not node.step:
        return ""
    numbers = f"{node.log_p:.2f}" if node.score is None else f"{node.log_p:.2f}, score {node.score:.2f}"
    return numbers.replace("-", "−")
