"""Training curves: loss, metrics, learning rate and speed over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.explain.figures import save
from regard.metrics import display_name
from regard.training.course import curve, panels

FEW = 30  # points: each is marked


def training_curves(records: Sequence[dict[str, Any]], metrics: Sequence[str], path: Path) -> None:
    """A panel each for the loss, these metrics, the learning rate and the speed."""
    lines_of = panels(records, metrics)
    if not lines_of:
        return
    figure = Figure(figsize=(4.2 * len(lines_of), 3.4), layout="constrained")
    axes = figure.subplots(1, len(lines_of), squeeze=False)[0]
    for axis, (title, lines) in zip(axes, lines_of.items(), strict=True):
        for key, label in lines.items():
            if points := curve(records, key):
                axis.plot(*zip(*points, strict=True), label=label, marker="." if len(points) < FEW else None)
        axis.set_title(display_name(title))
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
        if all(lines.values()):
            axis.legend()
    save(figure, path)
