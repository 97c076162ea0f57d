"""Pictures of claims: one idea each, with the claim as title, in colours that colour-blind readers can tell apart.

The colours are those of Okabe and Ito; lines differ by their marks, too.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard.evaluation.compare import half_width

BLUE, ORANGE, GREEN, PURPLE, SKY, RED, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#666666",
)
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED)
MARKS = "osD^vP"
TITLE = 68  # letters of a line
SMALLEST = 1e-300  # what nothing is drawn as, on an axis of logarithms


def chart(title: str, x: str = "", y: str = "", size: tuple[float, float] = (7, 4.4)) -> tuple[Figure, Axes]:
    """A figure with one pair of axes."""
    figure = Figure(figsize=size, layout="constrained")
    axis = figure.subplots()
    set_title(figure, title)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    return figure, axis


def set_title(figure: Figure, title: str) -> None:
    figure.suptitle(textwrap.fill(title, TITLE), fontsize=11)


def line(
    axis: Axes, x: Sequence[float] | NDArray[Any], values_SX: NDArray[Any], label: str, number: int, log: bool = False
) -> None:
    """The mean over seeds, and the 95 % interval as a band; with `log` of the logarithms, on an axis of them."""
    colour, mark, every = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)], max(1, len(x) // 12)
    shown_SX = np.log(np.maximum(values_SX, SMALLEST)) if log else values_SX
    back = np.exp if log else np.asarray
    mean_X = shown_SX.mean(0)
    axis.plot(x, back(mean_X), color=colour, label=label, marker=mark, markersize=5, markevery=every)
    if len(values_SX) > 1:
        half_X = np.array([half_width(values_S.tolist()) for values_S in shown_SX.T])
        axis.fill_between(x, back(mean_X - half_X), back(mean_X + half_X), color=colour, alpha=0.2, linewidth=0)
    if log:
        axis.set_yscale("log")


def bars(axis: Axes, names: Sequence[str], values_of: Sequence[NDArray[Any]]) -> None:
    """A bar for each, the mean over seeds with its 95 % interval."""
    for number, values_S in enumerate(values_of):
        half = half_width(values_S.tolist())
        axis.bar(number, values_S.mean(), yerr=half, color=COLOURS[number % len(COLOURS)], capsize=4, width=0.6)
    axis.set_xticks(range(len(names)), names)


def by_count(
    title: str, x: str, y: str, counts_N: NDArray[Any], values_SKN: NDArray[Any], names: Sequence[str]
) -> tuple[Figure, Axes]:
    """A line for each of K variants, against how many examples there are, on an axis of logarithms."""
    figure, axis = chart(title, x, y)
    for number, name in enumerate(names):
        line(axis, counts_N, values_SKN[:, number], name, number)
    axis.set_xscale("log")
    axis.set_xticks(counts_N, [f"{count:.0f}" for count in counts_N])
    axis.minorticks_off()
    axis.legend(loc="lower right")
    return figure, axis


def table(axis: Axes, values: NDArray[Any], rows: Sequence[str], columns: Sequence[str], digits: int = 1) -> None:
    """A matrix with its numbers written into it; nothing where there is none."""
    axis.imshow(values, cmap="Blues", vmin=0, vmax=1.4 * float(np.nanmax(values)), aspect="auto")
    axis.set_xticks(range(len(columns)), columns, rotation=45, ha="right")
    axis.set_yticks(range(len(rows)), rows)
    axis.grid(False)
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value) and value:
            axis.text(column, row, f"{value:.{digits}f}".replace("0.", ".", 1), ha="center", va="center", fontsize=9)


def number(value: float) -> str:
    """Short, with digits where they count."""
    size = abs(value)
    if value == 0 or 1e-3 <= size < 1e5:
        shown = f"{value:,.0f}" if size >= 1000 else f"{value:.3g}" if size >= 1 else f"{value:.4f}".rstrip("0")
        return shown.rstrip(".") if value else "0"
    return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e")


def rendered(figure: Figure, kind: str) -> bytes:
    """As "svg" or "png"; the same figure gives the same bytes."""
    content = io.BytesIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": "regard"}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(content, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return content.getvalue()
