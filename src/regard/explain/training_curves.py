"""How a training went: loss, metrics, learning rate and speed over its steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.explain.figures import save

FEW = 30  # points: each is marked


def training_curves(records: Sequence[dict[str, Any]], metrics: Sequence[str], path: Path) -> None:
    """A panel each for the loss, for these metrics as far as they were validated, the learning rate and the speed."""
    keys = list(dict.fromkeys(key for record in records for key in record))
    panels = {"loss": {"loss": "training", "valid_loss": "validation"}}
    panels |= {metric: {f"valid_{metric}": "validation"} for metric in metrics if metric != "loss"}
    panels |= {key: {key: ""} for key in ["learning_rate", *(key for key in keys if key.endswith("_per_second"))]}
    panels = {title: lines for title, lines in panels.items() if any(key in keys for key in lines)}
    if not panels:
        return
    figure = Figure(figsize=(4.2 * len(panels), 3.4), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for key, label in lines.items():
            points = [(record["step"], record[key]) for record in records if key in record]
            if points:
                axis.plot(*zip(*points, strict=True), label=label, marker="." if len(points) < FEW else None)
        axis.set_title(title.replace("_", " "))
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
        if all(lines.values()):
            axis.legend()
    save(figure, path)
