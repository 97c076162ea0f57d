"""Heat maps with labelled positions, one or a grid of them, for labels and sequences of any length.

Shapes: T positions, down · S positions, across
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard.explain.sheet import POINT, Sheet, ink, label, text_width
from regard.explain.view import View
from regard.inside.subject import Subject

MOST_POSITIONS = 512  # drawn; more are reduced
CELL, LARGE_CELL = 0.125, 0.25  # inches per position, if there is room: in one of several maps, and in a single one
SMALLEST, NARROWEST = 1.4, 0.3  # minimum of the longer side of a map, and of the shorter
WIDEST, WIDEST_OF_MANY = 10.0, 4.0
ALL_WIDE, ALL_HIGH = 24.0, 48.0  # of a grid of maps, approximately
BOLD = 1.15  # width of bold text, relative to normal
GAP, TITLE = 0.12, 0.17
SCALE = 0.5  # space for the colour scale


@dataclass(frozen=True)
class Map:
    title: str
    values_TS: NDArray[np.floating]


def draw_maps(
    rows: Sequence[Sequence[Map]],
    down: Sequence[str],
    across: Sequence[str],
    unit: str,
    axes: tuple[str, str],
    signed: bool = False,
    largest: float | None = None,
    root: bool = False,
) -> Figure:
    """A grid of maps with the same positions, which are labelled at the left and at the bottom.

    `root`: colours by the square root of the values.
    """
    columns = max(map(len, rows))
    size = 8 if columns * len(rows) == 1 else 6
    width, height = _sides(len(across), len(down), columns, len(rows))
    left = text_width(down, size) + 0.3
    below = text_width(across, size) + 0.15
    if largest is None:
        largest = max((float(np.nanmax(np.abs(each.values_TS))) for row in rows for each in row), default=1.0) or 1.0
    sheet = Sheet()
    for r, row in enumerate(rows):
        y = r * (height + TITLE + GAP) + TITLE
        for c, heat_map in enumerate(row):
            x = left + c * (width + GAP)
            sheet.text(x, y - 0.04, heat_map.title, 6.5 if columns > 1 else 7.5)
            sheet.heat(x, y, width, height, reduced(heat_map.values_TS)[0], largest, signed, root)
            if r == len(rows) - 1:
                sheet.labels_across(x, y + height, width, across, size)
        sheet.labels_down(left, y, height, down, size)
    bottom = len(rows) * (height + TITLE + GAP) - GAP
    sheet.text(0.0, bottom / 2, axes[0], 8, rotation=90, ha="left", va="center")
    total = left + columns * (width + GAP) - GAP
    sheet.text(left + (total - left) / 2, bottom + below, axes[1], 8, ha="center", va="top")
    end = bottom + below + 0.2
    sheet.scale(left, end + 0.2, largest, unit, signed, root=root)
    return sheet.finished(max(total, left + 3), end + SCALE)


def _sides(across: int, down: int, columns: int, rows: int) -> tuple[float, float]:
    """Width and height of one map: space for every label unless that is too large; cells are square."""
    single = columns * rows == 1
    most_wide = WIDEST if single else min(WIDEST_OF_MANY, ALL_WIDE / columns)
    most_high = WIDEST if single else min(WIDEST_OF_MANY, ALL_HIGH / rows)
    cell = min(LARGE_CELL if single else CELL, most_wide / across, most_high / down)
    cell = max(cell, SMALLEST / max(across, down))
    return max(across * cell, NARROWEST), max(down * cell, NARROWEST)


def reduced(values: NDArray[np.floating], most: int = MOST_POSITIONS) -> tuple[NDArray[np.floating], tuple[int, int]]:
    """Values with at most `most` rows and columns, and the size of a block, down and across, that became one value.

    This is the value with the largest magnitude in the block: a mean would hide single links.
    """
    *before, height, width = values.shape
    down, across = (max(1, math.ceil(side / most)) for side in (height, width))
    if down == across == 1:
        return values, (1, 1)
    rows, columns = math.ceil(height / down), math.ceil(width / across)
    padded = np.full((*before, rows * down, columns * across), np.nan, dtype=values.dtype)
    padded[..., :height, :width] = values
    blocks = padded.reshape(*before, rows, down, columns, across)
    largest = np.where(np.isnan(blocks), 0.0, np.abs(blocks))
    order = np.moveaxis(largest, -3, -2).reshape(*before, rows, columns, down * across).argmax(-1)
    flat = np.moveaxis(blocks, -3, -2).reshape(*before, rows, columns, down * across)
    return np.take_along_axis(flat, order[..., None], -1)[..., 0], (down, across)


def block_labels(labels: Sequence[str], size: int) -> list[str]:
    """The first label of every block."""
    return list(labels) if size == 1 else [f"{name} …" for name in labels[::size]]


def answer_labels(subject: Subject) -> list[str]:
    """The labels of all answers, numbered if there are several."""
    labels = [label(answer.label) for answer in subject.answers]
    return labels if len(labels) == 1 else [f"{number + 1}  {name}" for number, name in enumerate(labels)]


def drawn_answers(view: View, most: int, name: str) -> tuple[range, list[str]]:
    """Which answers are drawn: the chosen one or all; but of many the last, or of patches those around the default."""
    count = len(view.subject.answers)
    if view.choice.answer is not None:
        return range(view.answer(), view.answer() + 1), []
    if count <= most:
        return range(count), []
    first = count - most
    if not view.subject.of_patches:
        return range(first, count), [f"drawn: the last {most} of {count} {name}"]
    first = min(max(0, view.answer() - most // 2), first)
    return range(first, first + most), [f"drawn: {name} {first + 1} to {first + most} of {count}"]


def source_of_answers(subject: Subject, chosen: Sequence[int]) -> str:
    """Whether these answers are generated or stand in the input."""
    given = [subject.answers[number].given for number in chosen]
    if not any(given):
        return "the output"
    return "the input" if all(given) else "the input, then the output"


def draw_cells(
    values: NDArray[np.floating],
    words: Sequence[Sequence[str]],
    down: Sequence[str],
    across: Sequence[str],
    unit: str,
    axes: tuple[str, str],
    largest: float = 1.0,
    signed: bool = False,
    each_row: int = 14,
    high: float = 0.24,
) -> Figure:
    """A table with a word in each cell, coloured by its value; columns that do not fit continue below."""
    size, rows = 7.0, len(down)
    longest = max(BOLD * text_width(across, size), text_width([word for row in words for word in row], size))
    wide = min(1.6, max(0.45, longest + 0.12))
    left = text_width(down, 7.5) + 0.35
    sheet = Sheet()
    y = 0.1
    for start in range(0, len(across), each_row):
        y += 0.2
        for column, name in enumerate(across[start : start + each_row]):
            sheet.text(left + (column + 0.5) * wide, y - 0.05, _cut(name, wide, size), size, ha="center", weight="bold")
        for row in range(rows):
            sheet.text(left - 0.06, y + (row + 0.5) * high, down[row], 7.5, ha="right", va="center")
        part = values[:, start : start + each_row]
        sheet.heat(left, y, wide * part.shape[1], high * rows, part, largest, signed)
        for row, column in np.ndindex(part.shape):
            if not np.isnan(part[row, column]):
                word = _cut(words[row][start + column], wide, size)
                colour = ink(float(part[row, column]), largest, signed)
                x, middle = left + (column + 0.5) * wide, y + (row + 0.5) * high
                sheet.text(x, middle, word, size, ha="center", va="center", color=colour)
        y += high * rows + 0.12
    sheet.text(0.0, y / 2, axes[0], 8, rotation=90, ha="left", va="center")
    total = left + wide * min(each_row, len(across))
    sheet.text(left, y + 0.1, axes[1], 8, va="center")
    sheet.scale(left, y + 0.42, largest, unit, signed)
    return sheet.finished(max(total + 0.05, left + 3.2), y + 0.62)


def _cut(text: str, wide: float, size: float) -> str:
    most = max(2, int(wide / (0.58 * size * POINT)))
    return text if len(text) <= most or BOLD * text_width([text], size) <= wide - 0.1 else f"{text[: most - 1]}…"
