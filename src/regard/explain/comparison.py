"""One picture of a comparison: how each variant learns, over steps and over time, and where it ends."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from regard.evaluation.compare import Trained, half_width
from regard.explain.plots import save


def comparison(variants: Sequence[Trained], figure: str, path: Path) -> None:
    """Curves of the mean over seeds, with a band from the least to the most; final figures with 95 % intervals."""
    drawn = [variant for variant in variants if variant.values(figure)]
    if not drawn:
        return
    # A translation's score may not be measured on the way; its loss always is.
    measured = [record for variant in drawn for outcome in variant.outcomes for record in outcome.validations]
    curve = figure if any(f"valid_{figure}" in record for record in measured) else "loss"
    high = max(3.8, 0.42 * len(drawn) + 1.6)
    picture, axes = plt.subplots(1, 3, figsize=(15, high), layout="constrained")
    for number, variant in enumerate(drawn):
        style = {"color": f"C{number % 10}", "linestyle": ("-", "--", ":", "-.")[number // 10 % 4]}
        steps, times, values = _curve(variant, f"valid_{curve}")
        for axis, places in ((axes[0], steps), (axes[1], times)):
            if len(places) != len(values):  # runs of before the seconds were noted
                continue
            axis.plot(places, [statistics.fmean(seen) for seen in values], marker=".", label=variant.name, **style)
            axis.fill_between(places, [*map(min, values)], [*map(max, values)], color=style["color"], alpha=0.15)
    for axis, name in ((axes[0], "step"), (axes[1], "seconds of training")):
        axis.set_title(f"validation {curve.replace('_', ' ')} by {name.split()[0]}")
        axis.set_xlabel(name)
        axis.grid(alpha=0.3)
    _final(axes[2], drawn, figure)
    handles, names = axes[0].get_legend_handles_labels()
    if handles:
        picture.legend(handles, names, loc="outside lower center", ncols=min(len(names), 6), frameon=False)
    save(picture, path)


def _curve(variant: Trained, key: str) -> tuple[list[int], list[float], list[list[float]]]:
    """The steps of the validations, the mean seconds at each, and the values of all seeds there."""
    by_step: dict[int, list[dict[str, Any]]] = {}
    for outcome in variant.outcomes:
        for record in outcome.validations:
            if key in record:
                by_step.setdefault(int(record["step"]), []).append(record)
    steps = sorted(by_step)
    timed = all("seconds" in record for records in by_step.values() for record in records)
    times = [statistics.fmean(record["seconds"] for record in by_step[step]) for step in steps] if timed else []
    return steps, times, [[record[key] for record in by_step[step]] for step in steps]


def _final(axis: Axes, variants: Sequence[Trained], figure: str) -> None:
    """Each variant's mean with its interval, and the single seeds as small dots; the best on top."""
    for number, variant in enumerate(variants):
        values, place, color = variant.values(figure), len(variants) - 1 - number, f"C{number % 10}"
        axis.errorbar(
            statistics.fmean(values), place, xerr=half_width(values), fmt="o", color=color, capsize=4, markersize=7
        )
        axis.scatter(values, [place - 0.18] * len(values), color=color, s=9, alpha=0.6)
    axis.set_yticks(range(len(variants)), [variant.name for variant in reversed(variants)])
    axis.set_ylim(-0.6, len(variants) - 0.4)
    axis.set_title(f"{figure.replace('_', ' ')} held out, 95 % interval")
    axis.grid(alpha=0.3, axis="x")
