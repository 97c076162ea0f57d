"""One picture of what mixers cost against the length: time, memory, decoding; straight lines are powers of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from regard.explain.plots import save

Curves = Mapping[str, Sequence[tuple[int, float]]]  # by name: lengths and costs
# A mixer has the same colour in all panels; the other ways to decode it are broken lines of that colour.
COLOURS = ("attention", "unfused", "local", "hyena", "rnn", "lstm", "gru")
STYLES = {"all": "--", "naive": ":", "distilled": "-."}


def costs(panels: Mapping[str, Curves], powers: Mapping[str, Mapping[str, str]], path: Path, title: str) -> None:
    """A panel for each title that has curves, both axes logarithmic; the powers, where known, stand in the legend."""
    drawn = {title: curves for title, curves in panels.items() if any(curves.values())}
    if not drawn:
        return
    figure, axes = plt.subplots(1, len(drawn), figsize=(5.6 * len(drawn), 5.6), squeeze=False, layout="constrained")
    for axis, (panel, curves) in zip(axes[0], drawn.items(), strict=True):
        _draw(axis, curves, powers.get(panel, {}))
        axis.set_title(panel)
    figure.suptitle(title, fontsize=10)
    save(figure, path)


def _draw(axis: Axes, curves: Curves, powers: Mapping[str, str]) -> None:
    for name, points in curves.items():
        if not points:
            continue
        mixer, _, way = name.partition("-")
        label = f"{name}  {powers[name]}" if name in powers else name
        lengths, values = zip(*points, strict=True)
        colour, style = f"C{COLOURS.index(mixer)}", STYLES.get(way, "-")
        axis.plot(lengths, values, marker=".", label=label, color=colour, linestyle=style)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    marks = sorted({length for points in curves.values() for length, _ in points})
    axis.xaxis.set_major_locator(FixedLocator(marks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda length, _: f"{length:,.0f}"))
    # Ones, and twos and fives where there is room, in plain figures.
    least, most = axis.get_ylim()
    within = (1.0, 2.0, 5.0) if most / least < 1000 else (1.0,)
    axis.yaxis.set_major_locator(LogLocator(subs=within))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda cost, _: f"{cost:,.10g}"))
    axis.tick_params(axis="x", rotation=45)
    axis.set_xlabel("length T")
    axis.grid(alpha=0.3)
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, frameon=False, fontsize=9)
