"""Scores of all heads."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from regard.explain.explanation import Explanation
from regard.explain.names import part_name
from regard.explain.sheet import Sheet, ink, number, text_width
from regard.explain.view import View
from regard.inside.named import Named

ABOUT = {
    "importance": "drop in ln p without the head",
    "entropy": "0: attends to one key; 1: attends uniformly",
    "previous": "weight to the previous position",
    "self": "weight to itself",
    "first": "weight to the first position",
    "induction": "weight to the token after the previous occurrence",
    "copying": "share of tokens whose own logit it raises most",
}
CELL, HIGH, SIDE_BY_SIDE = 0.42, 0.22, 2


def heads(view: View) -> Explanation:
    scores = view.trace.heads()
    parts = [part_name(view.trace, part) for part in next(iter(scores.values())).labels[0]]
    arrays = [
        Named(name, score.values, score.axes, (parts, _from_one(score)), score.unit)
        for name, score in scores.items()
        if not np.isnan(score.values).all()
    ]
    missing = [name for name, score in scores.items() if np.isnan(score.values).all()]
    remarks = [f"not defined for this model: {', '.join(missing)}"] if missing else []
    return Explanation("Scores of all heads", arrays, lambda: _draw(arrays), remarks)


def _from_one(score: Named) -> list[str]:
    """The labels of the heads, counted from 1."""
    return [str(int(head) + 1) for head in score.labels[1]]


def _draw(scores: list[Named]) -> Figure:
    rows, columns = scores[0].values.shape
    left = text_width(scores[0].labels[0], 7) + 0.15
    wide = max(columns * CELL, 2.3)
    high = rows * HIGH + 0.75
    sheet = Sheet()
    for index, score in enumerate(scores):
        row, column = divmod(index, SIDE_BY_SIDE)
        x, y = left + column * (wide + left + 0.15), row * high + 0.35
        signed = score.name == "importance"
        # All scores except importance are shares and have the same scale, on which small ones look small.
        largest = (float(np.nanmax(np.abs(score.values))) or 1.0) if signed else 1.0
        sheet.text(x, y - 0.2, score.name, 8, weight="bold")
        sheet.text(x, y - 0.06, ABOUT.get(score.name, ""), 6.5, color="0.3")
        sheet.heat(x, y, columns * CELL, rows * HIGH, score.values, largest, signed)
        for part, head in np.ndindex(rows, columns):
            value = float(score.values[part, head])
            if not np.isnan(value):
                middle = x + (head + 0.5) * CELL, y + (part + 0.5) * HIGH
                sheet.text(*middle, number(value), 6.5, ha="center", va="center", color=ink(value, largest, signed))
        for part in range(rows):
            sheet.text(x - 0.05, y + (part + 0.5) * HIGH, score.labels[0][part], 7, ha="right", va="center")
        for head in range(columns):
            sheet.text(x + (head + 0.5) * CELL, y + rows * HIGH + 0.13, f"head {score.labels[1][head]}", 6, ha="center")
    return sheet.finished(SIDE_BY_SIDE * (wide + left + 0.15), -(-len(scores) // SIDE_BY_SIDE) * high)
