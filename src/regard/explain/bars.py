"""Horizontal bars on both sides of zero, with their names, in the given order."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from regard.explain.figures import NEGATIVE, POSITIVE
from regard.explain.sheet import Sheet, text_width

STEP, WIDE = 0.19, 4.2  # inches: height of a bar, and width from the lowest to the highest value


def draw_bars(names: Sequence[str], values: Sequence[float], unit: str) -> Figure:
    """Positive values are blue, to the right; negative ones orange, to the left."""
    low, high = min(0.0, *values), max(0.0, *values)
    span = (high - low) or 1.0
    left = text_width(names, 7.5) + 0.1
    numbers = 0.55  # space for a number on either side
    zero = left + numbers * (low < 0) + WIDE * -low / span
    sheet = Sheet()
    for row, (name, value) in enumerate(zip(names, values, strict=True)):
        y = STEP * row
        sheet.text(left - 0.06, y + STEP / 2, name, 7.5, ha="right", va="center")
        width = WIDE * value / span
        sheet.box(min(zero, zero + width), y + 0.03, abs(width), STEP - 0.06, POSITIVE if value > 0 else NEGATIVE)
        end, side = (zero + width + 0.05, "left") if value >= 0 else (zero + width - 0.05, "right")
        sheet.text(
            end, y + STEP / 2, f"{value:{'+' if low < 0 else ''}.3f}".replace("-", "−"), 6.5, ha=side, va="center"
        )
    height = STEP * len(names)
    sheet.axis.plot([zero, zero], [0, height], color="0.3", linewidth=0.8)
    sheet.text(zero, height + 0.06, unit, 7.5, ha="center", va="top")
    return sheet.finished(left + WIDE + 2 * numbers, height + 0.25)
