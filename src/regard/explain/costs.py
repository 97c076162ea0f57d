"""Time, memory and decoding cost of mixers over the sequence length, on logarithmic axes: powers are straight lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from regard.explain.figures import save

Curves = Mapping[str, Sequence[tuple[int, float]]]  # by name: lengths and costs


def draw_costs(panels: Mapping[str, Curves], powers: Mapping[str, Mapping[str, str]], path: Path, title: str) -> None:
    """A panel for each title that has curves, both axes logarithmic; the legend has the powers where known."""
    # A logarithmic axis has no zero: costs too small to measure are omitted.
    positive = {title: {name: _positive(points) for name, points in curves.items()} for title, curves in panels.items()}
    panels = {title: curves for title, curves in positive.items() if any(curves.values())}
    if not panels:
        return
    styles = _styles(dict.fromkeys(name for curves in panels.values() for name in curves))
    figure = Figure(figsize=(5.6 * len(panels), 5.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (panel, curves) in zip(axes, panels.items(), strict=True):
        _draw(axis, curves, powers.get(panel, {}), styles)
        axis.set_title(panel)
    figure.suptitle(title, fontsize=10)
    save(figure, path)


def _positive(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    return [(length, cost) for length, cost in points if cost > 0]


def _styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """One colour per mixer in all panels; its other decoding methods, "mixer-method", are dashed in the same colour."""
    styles: dict[str, dict[str, Any]] = {}
    ways: dict[str, list[str]] = {}
    for name in names:
        mixer = next((known for known in ways if name.startswith(f"{known}-")), name)
        ways.setdefault(mixer, []).append(name)
        number = ways[mixer].index(name)
        styles[name] = {
            "color": f"C{list(ways).index(mixer) % 10}",
            "linestyle": ("-", "--", ":", "-.")[number % 4],
        }
    return styles


def _draw(axis: Axes, curves: Curves, powers: Mapping[str, str], styles: Mapping[str, dict[str, Any]]) -> None:
    lines: dict[str, Line2D] = {}
    for name, points in curves.items():
        if points:
            label = f"{name}  {powers[name]}" if name in powers else name
            [lines[label]] = axis.plot(*zip(*points, strict=True), marker=".", label=label, **styles[name])
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    marks = sorted({length for points in curves.values() for length, _ in points})
    axis.xaxis.set_major_locator(FixedLocator(marks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda length, _: f"{length:,.0f}"))
    # Ticks at 1, and at 2 and 5 where there is room, as plain numbers.
    least, most = axis.get_ylim()
    within = (1.0, 2.0, 5.0) if most / least < 1000 else (1.0,)
    axis.yaxis.set_major_locator(LogLocator(subs=within))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda cost, _: f"{cost:,.10g}"))
    axis.tick_params(axis="x", rotation=45)
    axis.set_xlabel("length T")
    axis.grid(alpha=0.3)
    # Explicit, since a legend ignores labels that start with _.
    handles, labels = list(lines.values()), list(lines)
    axis.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, frameon=False, fontsize=9)
