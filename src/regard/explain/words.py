"""Text with a background colour for each word: evidence for something, or against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from regard.explain.figures import SIGNED
from regard.explain.sheet import Sheet, ink, text_width
from regard.explain.tokens import visible

WIDE = 8.5  # inches of a line
STEP, HIGH, SIZE = 0.27, 0.2, 9.0
MOST_WORDS = 600  # drawn of a group; of more, those around the strongest


@dataclass(frozen=True)
class Word:
    text: str  # with the space before it, if it has one
    value: float | None  # None: the answer itself, which is framed


Group = tuple[str, Sequence[Word]]  # a heading, and the words below it


def draw_words(groups: Sequence[Group], scale: str) -> Figure:
    """Each group below its heading; blue is evidence for the answer, orange against it."""
    sheet, largest = Sheet(), largest_of(groups)
    widest, y = draw_groups(sheet, 0.0, groups, largest)
    sheet.scale(0.0, y + 0.2, largest, scale, signed=True)
    return sheet.finished(widest, y + 0.4)


def largest_of(groups: Sequence[Group]) -> float:
    return max((abs(word.value) for _, words in groups for word in words if word.value is not None), default=0.0) or 1.0


def draw_groups(sheet: Sheet, y: float, groups: Sequence[Group], largest: float) -> tuple[float, float]:
    """Draw from y downwards; returns the width, and the y below the last line."""
    widest = 3.0
    for heading, words in groups:
        if heading:
            sheet.text(0.0, y + 0.13, heading, 8, weight="bold")
            y += 0.2
        x = 0.0
        for word in strongest_stretch(words):
            text = visible(word.text.strip() or word.text) or "∅"
            x += 0.06 if word.text[:1].isspace() and x else 0.0
            width = text_width([text], SIZE) + 0.06
            if x and (x + width > WIDE or "\n" in word.text):
                x, y = 0.0, y + STEP
            _draw(sheet, x, y, width, text, word.value, largest)
            x += width + 0.02
            widest = max(widest, x)
        y += STEP + 0.08
    return widest, y


def strongest_stretch(words: Sequence[Word]) -> Sequence[Word]:
    """All words, or if there are too many, those around the strongest."""
    if len(words) <= MOST_WORDS:
        return words
    middle = int(np.argmax([abs(word.value or 0.0) for word in words]))
    start = min(max(0, middle - MOST_WORDS // 2), len(words) - MOST_WORDS)
    return words[start : start + MOST_WORDS]


def _draw(sheet: Sheet, x: float, y: float, width: float, text: str, value: float | None, largest: float) -> None:
    background = "white" if value is None else colormaps[SIGNED](0.5 + 0.5 * value / largest)
    frame = {"edgecolor": "black", "linewidth": 1.2} if value is None else {}
    sheet.box(x, y, width, HIGH, background, **frame)
    colour = "black" if value is None else ink(value, largest, signed=True)
    sheet.text(x + width / 2, y + HIGH / 2, text, SIZE, ha="center", va="center", color=colour)
