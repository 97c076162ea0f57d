"""A comparison as a figure: how each variant learns, over steps and over time, and where it ends."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.evaluation.compare import TrainedVariant, half_width
from regard.explain.figures import save


def draw_comparison(variants: Sequence[TrainedVariant], metric: str, path: Path) -> None:
    """Mean curves over seeds, with a band from minimum to maximum; final values with 95 % intervals."""
    measured = [variant for variant in variants if variant.values(metric)]
    if not measured:
        return
    # A translation's score may not be measured during training; its loss always is.
    records = [record for variant in measured for outcome in variant.outcomes for record in outcome.validations]
    curve = metric if any(f"valid_{metric}" in record for record in records) else "loss"
    figure = Figure(figsize=(15, max(3.8, 0.42 * len(measured) + 1.6)), layout="constrained")
    by_step, by_time, final = figure.subplots(1, 3)
    for number, variant in enumerate(measured):
        style = {"color": f"C{number % 10}", "linestyle": ("-", "--", ":", "-.")[number // 10 % 4]}
        steps, times, values = _curve(variant, f"valid_{curve}")
        for axis, x in ((by_step, steps), (by_time, times)):
            if len(x) != len(values):  # older runs did not record the seconds
                continue
            axis.plot(x, [statistics.fmean(seeds) for seeds in values], marker=".", label=variant.name, **style)
            axis.fill_between(x, [*map(min, values)], [*map(max, values)], color=style["color"], alpha=0.15)
    for axis, name in ((by_step, "step"), (by_time, "seconds of training")):
        axis.set_title(f"validation {curve.replace('_', ' ')} by {name.split()[0]}")
        axis.set_xlabel(name)
        axis.grid(alpha=0.3)
    _draw_final(final, measured, metric)
    handles, names = by_step.get_legend_handles_labels()
    if handles:
        figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), 6), frameon=False)
    save(figure, path)


def _curve(variant: TrainedVariant, key: str) -> tuple[list[int], list[float], list[list[float]]]:
    """The steps of the validations, and at each the mean seconds and the values of all seeds."""
    by_step: dict[int, list[dict[str, Any]]] = {}
    for outcome in variant.outcomes:
        for record in outcome.validations:
            if key in record:
                by_step.setdefault(int(record["step"]), []).append(record)
    steps = sorted(by_step)
    timed = all("seconds" in record for records in by_step.values() for record in records)
    times = [statistics.fmean(record["seconds"] for record in by_step[step]) for step in steps] if timed else []
    return steps, times, [[record[key] for record in by_step[step]] for step in steps]


def _draw_final(axis: Axes, variants: Sequence[TrainedVariant], metric: str) -> None:
    """The mean of each variant with its interval, and its seeds as small dots; the best on top."""
    for number, variant in enumerate(variants):
        values, y, color = variant.values(metric), len(variants) - 1 - number, f"C{number % 10}"
        axis.errorbar(
            statistics.fmean(values), y, xerr=half_width(values), fmt="o", color=color, capsize=4, markersize=7
        )
        axis.scatter(values, [y - 0.18] * len(values), color=color, s=9, alpha=0.6)
    axis.set_yticks(range(len(variants)), [variant.name for variant in reversed(variants)])
    axis.set_ylim(-0.6, len(variants) - 0.4)
    axis.set_title(f"{metric.replace('_', ' ')} held out, 95 % interval")
    axis.grid(alpha=0.3, axis="x")
