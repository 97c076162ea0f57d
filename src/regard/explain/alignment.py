"""Alignment: which source word each output word comes from."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.explain.explanation import Explanation
from regard.explain.heat_maps import Map, draw_maps, reduced
from regard.explain.sheet import label
from regard.explain.view import View
from regard.inside.named import Named


def alignment(view: View) -> Explanation:
    choice = view.choice
    layer, head = (None if number is None else number - 1 for number in (choice.layer, choice.head))
    reading = choice.reading or None
    aligned = view.trace.alignment(layer, reading, head)  # type: ignore[arg-type]
    source, target = aligned.labels[1], aligned.labels[0]
    links = [(source[i], target[j]) for i, j in aligned.notes["links"]]
    return Explanation(
        "Alignment: which source word each output word comes from",
        [aligned],
        lambda: _draw(aligned),
        [
            f"cross-attention of {aligned.notes['way']}; {_criterion(aligned)}",
            "framed: the highest weight of each output word, unless it is on <end>",
        ],
        {"links": links},
    )


def _criterion(aligned: Named) -> str:
    criterion = aligned.notes["criterion"]
    return criterion if criterion == "asked for" else f"chosen: {criterion}"


def _draw(aligned: Named) -> Figure:
    down, across = ([*map(label, names)] for names in aligned.labels)
    figure = draw_maps([[Map("", aligned.values)]], down, across, "attention weight", ("output word", "source word"))
    if reduced(aligned.values)[1] == (1, 1):
        axis = figure.axes[0]
        left, right, bottom, top = axis.images[0].get_extent()
        wide, high = (right - left) / len(across), (bottom - top) / len(down)
        for i, j in aligned.notes["links"]:
            frame = Rectangle(
                (left + i * wide, top + j * high), wide, high, fill=False, edgecolor="#ff5c38", linewidth=1.2
            )
            axis.add_patch(frame)
    return figure
