"""Sheet: a figure with a manual layout, in inches from its upper left corner.

It has a single axis, since hundreds of small maps with an axis each take minutes to lay out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from matplotlib import colormaps, font_manager
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from regard.explain.figures import SIGNED, WEIGHTS, shortened
from regard.explain.tokens import visible

POINT = 1 / 72  # inches
LONGEST = 18  # letters of a label
MEASURED = 100  # points
CLOSEST = 1.25  # distance of labels, relative to their size


class Sheet:
    def __init__(self) -> None:
        self.figure = Figure()
        self.axis = self.figure.add_axes((0, 0, 1, 1))

    def finished(self, width: float, height: float) -> Figure:
        self.figure.set_size_inches(width, height)
        self.axis.set(xlim=(0, width), ylim=(height, 0))
        self.axis.axis("off")
        return self.figure

    def text(self, x: float, y: float, text: str, size: float = 8, **options: Any) -> None:
        """`y` is the baseline, unless `va` is given."""
        self.axis.text(x, y, text, fontsize=size, **{"va": "baseline", **options})

    def box(self, x: float, y: float, width: float, height: float, colour: Any, **options: Any) -> None:
        self.axis.add_patch(Rectangle((x, y), width, height, **{"facecolor": colour, "linewidth": 0, **options}))

    def picture(self, x: float, y: float, width: float, height: float, pixels_HWC: NDArray[np.uint8]) -> None:
        """Grey or in colour, without interpolation."""
        grey: dict[str, Any] = {"cmap": "gray", "vmin": 0, "vmax": 255} if pixels_HWC.shape[-1] == 1 else {}
        pixels = pixels_HWC[..., 0] if pixels_HWC.shape[-1] == 1 else pixels_HWC
        self.axis.imshow(pixels, interpolation="nearest", extent=(x, x + width, y + height, y), **grey)

    def heat(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        values: ArrayLike,
        largest: float,
        signed: bool = False,
        root: bool = False,
        **options: Any,
    ) -> None:
        """A heat map from 0 to `largest`, or if signed from −`largest`; NaN is grey.

        `root`: colours by the square root, so that a single large value does not hide all small ones.
        """
        values = np.ma.masked_invalid(np.asarray(values, dtype=np.float64))
        colours = colormaps[SIGNED if signed else WEIGHTS].with_extremes(bad="0.88")
        norm = PowerNorm(0.5, 0.0, largest) if root else Normalize(-largest if signed else 0.0, largest)
        self.axis.imshow(
            values,
            extent=(x, x + width, y + height, y),
            **{"cmap": colours, "norm": norm, "interpolation": "nearest", "aspect": "auto", **options},
        )

    def scale(
        self,
        x: float,
        y: float,
        largest: float,
        label: str,
        signed: bool = False,
        width: float = 1.4,
        root: bool = False,
    ) -> None:
        """The colour scale with its label, on one line."""
        low = f"−{largest:.3g}" if signed else "0"
        self.heat(x, y - 0.1, width, 0.1, np.linspace(-1 if signed else 0, 1, 64)[None], 1.0, signed, root)
        self.text(x, y + 0.03, low, 6.5, va="top")
        self.text(x + width, y + 0.03, f"{largest:.3g}", 6.5, va="top", ha="right")
        self.text(x + width + 0.1, y, label, 7.5)

    def labels_down(self, x: float, y: float, height: float, labels: Sequence[str], size: float) -> None:
        """To the left of x; if there is no space for all, every second or third one …"""
        cell, step = height / len(labels), _step(labels, height, size)
        for number in range(0, len(labels), step):
            self.text(x - 0.04, y + (number + 0.5) * cell, labels[number], size, ha="right", va="center")

    def labels_across(self, x: float, y: float, width: float, labels: Sequence[str], size: float) -> None:
        """Below y, rotated by 90°."""
        cell, step = width / len(labels), _step(labels, width, size)
        for number in range(0, len(labels), step):
            self.text(x + (number + 0.5) * cell, y + 0.04, labels[number], size, ha="center", va="top", rotation=90)


def _step(labels: Sequence[str], room: float, size: float) -> int:
    return max(1, math.ceil(CLOSEST * size * POINT * len(labels) / room))


def label(piece: str) -> str:
    """A token or class as a label, without the space before a word; a single space is ␣."""
    words = piece.strip().split(" ") if piece.strip() else [piece[:1]]
    return shortened(" ".join(map(visible, words)) or "∅", LONGEST)


def text_width(texts: Sequence[str], size: float) -> float:
    """The width of the widest text, in inches."""
    return max((_width(text) for text in texts), default=0.0) * size * POINT


@cache
def _width(text: str) -> float:
    """Relative to the font size. Letters of East Asian scripts, which the font may lack, count as squares."""
    font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
    font.set_size(MEASURED, 72)
    font.set_text("".join(letter for letter in text if letter < "ᄀ"))
    return font.get_width_height()[0] / 64 / MEASURED + sum(letter >= "ᄀ" for letter in text)


def number(value: float, sign: str = "") -> str:
    """Two decimals, without a sign before zero."""
    text = f"{value:{sign}.2f}"
    return text.replace("-", "−") if float(text) else "0.00"


def ink(value: float, largest: float, signed: bool = False) -> str:
    """Black or white, whichever is legible on the colour of a value."""
    share = value / largest if largest else 0.0
    red, green, blue, _ = colormaps[SIGNED if signed else WEIGHTS](0.5 + share / 2 if signed else share)
    return "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"
