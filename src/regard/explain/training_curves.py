"""How a training went: loss, metrics, learning rate and speed over its steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.explain.figures import save
from regard.training.course import curve, panels

FEW = 30  # points: each is marked


def training_curves(records: Sequence[dict[str, Any]], metrics: Sequence[str], path: Path) -> None:
    """A panel each for the loss, for these metrics, the learning rate and the speed."""
    shown = panels(records, metrics)
    if not shown:
        return
    figure = Figure(figsize=(4.2 * len(shown), 3.4), layout="constrained")
    axes = figure.subplots(1, len(shown), squeeze=False)[0]
    for axis, (title, lines) in zip(axes, shown.items(), strict=True):
        for key, label in lines.items():
            if points := curve(records, key):
                axis.plot(*zip(*points, strict=True), label=label, marker="." if len(points) < FEW else None)
        axis.set_title(title.replace("_", " "))
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
        if all(lines.values()):
            axis.legend()
    save(figure, path)
