"""The built-in sample `scenes`: one to three handwritten digits on a canvas with clutter.

    pixels    colour, 48 x 48: a dark shaded ground, thin strokes and noise on it, light digits on top
    boxes     tight around the drawn pixels of each digit
    mask      which pixels are drawn: 0 ground, digit + 1 where there is one
    caption   scene = row | row " above " row          row = digit | digit " left of " digit
              digit = "a 3", "an 8", …

So one image has what captioning, detection and segmentation each learn from. Every digit lies in a quarter of its own,
at a place and in a size drawn for it: nothing overlaps, and rows are told by the halves of the canvas.

A scene is a pure function of (seed, side, number). The digits are those of scikit-learn, 8 x 8; which of them a side
may use is fixed, so train, valid and test never share one.

Shapes: H height · W width · C colours · N digits of a scene · S side of a drawn digit · I digits that there are
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

HEIGHT = WIDTH = 48
CELL = 24  # a quarter of the canvas
SMALLEST, LARGEST = 18, 23  # the side of a digit, with the margin that its 8 x 8 pixels have
MOST = 3  # digits of a scene
STROKES = (2, 6)
NOISE = 6.0  # deviation, in levels
DRAWN = 0.4  # of the full ink; from here on a pixel is the digit's

DIGITS = [str(digit) for digit in range(10)]
CLASSES = ["ground", *DIGITS]  # of the mask
SIDES = ("train", "valid", "test")
COUNTS = {"train": 6_000, "valid": 300, "test": 600}  # scenes that tasks use
SHARES = {"valid": 0.1, "test": 0.25}  # of the digits; the rest is for training
SPLIT_SEED = 8  # which digits are whose: the same in every run
VERSION = 2  # of what is drawn: prepared data of another is made again


@dataclass(frozen=True)
class Scene:
    """Digits stand in reading order: the upper row first, each from left to right."""

    pixels_HWC: NDArray[np.uint8]
    boxes_N4: NDArray[np.float32]  # x0, y0, x1, y1 in pixels: the first column and row, and those after the last
    digits_N: NDArray[np.int64]
    mask_HW: NDArray[np.uint8]
    caption: str


def scene(side: str, number: int, seed: int = 0) -> Scene:
    """The scene of this number, of those of train, valid or test."""
    rng = np.random.default_rng([seed, SIDES.index(side), number])
    ink_I88, digit_I = _digits()
    pixels_HWC = _ground(rng)
    mask_HW = np.zeros((HEIGHT, WIDTH), np.uint8)
    cells = np.sort(rng.choice(4, rng.integers(1, MOST + 1), replace=False))
    chosen = rng.choice(_of_side(side), len(cells), replace=False)
    boxes = []
    for cell, image in zip(cells, chosen, strict=True):
        size = int(rng.integers(SMALLEST, LARGEST + 1))
        top, left = (CELL * half + int(rng.integers(0, CELL - size + 1)) for half in divmod(int(cell), 2))
        ink_SS = np.asarray(Image.fromarray(ink_I88[image]).resize((size, size), Image.Resampling.BILINEAR))
        colour_C = rng.uniform(170, 255, 3)
        part_SSC = pixels_HWC[top : top + size, left : left + size]  # a view: drawn into
        part_SSC += ink_SS[..., None] * (colour_C - part_SSC)
        drawn_SS = ink_SS >= DRAWN
        mask_HW[top : top + size, left : left + size][drawn_SS] = digit_I[image] + 1
        rows, columns = np.flatnonzero(drawn_SS.any(1)), np.flatnonzero(drawn_SS.any(0))
        boxes.append([left + columns[0], top + rows[0], left + columns[-1] + 1, top + rows[-1] + 1])
    pixels_HWC += rng.normal(0, NOISE, pixels_HWC.shape)
    digits_N = digit_I[chosen]
    return Scene(
        np.rint(pixels_HWC).clip(0, 255).astype(np.uint8),
        np.array(boxes, np.float32),
        digits_N,
        mask_HW,
        caption_of(digits_N.tolist(), [int(cell) // 2 for cell in cells]),
    )


def scenes(side: str, count: int | None = None, seed: int = 0) -> list[Scene]:
    """The first scenes of train, valid or test; as many as tasks use, unless told."""
    return [scene(side, number, seed) for number in range(COUNTS[side] if count is None else count)]


def caption_of(digits: list[int], rows: list[int]) -> str:
    """What is to be said of digits in reading order, each in its row: "a 3 left of a 7 above an 8"."""
    named = [f"{'an' if digit == 8 else 'a'} {digit}" for digit in digits]
    spoken = [" left of ".join(name for name, its in zip(named, rows, strict=True) if its == row) for row in (0, 1)]
    return " above ".join(filter(None, spoken))


def _ground(rng: np.random.Generator) -> NDArray[np.float64]:
    """Dark, lighter towards one side, with strokes that are darker than any digit: [H, W, C]."""
    y_H1, x_W = np.arange(HEIGHT)[:, None] / HEIGHT - 0.5, np.arange(WIDTH) / WIDTH - 0.5
    slope_y, slope_x = rng.uniform(-40, 40, 2)
    ground_HWC = rng.uniform(20, 80, 3) + (slope_y * y_H1 + slope_x * x_W)[..., None]
    canvas = Image.fromarray(np.rint(ground_HWC).clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(canvas)
    for _ in range(rng.integers(STROKES[0], STROKES[1] + 1)):
        start_y, start_x, *end = rng.integers(0, HEIGHT, 4).tolist()
        colour = rng.integers(50, 150, 3).tolist()
        # Strokes are short: half way to another place.
        draw.line((start_x, start_y, (start_x + end[1]) // 2, (start_y + end[0]) // 2), fill=tuple(colour))
    return np.asarray(canvas, np.float64).copy()


@cache
def _digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Ink from 0 to 1, and what digit it is: [I, 8, 8], [I]."""
    from sklearn.datasets import load_digits

    loaded = load_digits()
    return (loaded.images / 16).astype(np.float32), loaded.target.astype(np.int64)


@cache
def _of_side(side: str) -> NDArray[np.int64]:
    """The numbers of the digits that a side may use."""
    count = len(_digits()[1])
    order_I = np.random.default_rng(SPLIT_SEED).permutation(count)
    valid, test = (round(count * SHARES[name]) for name in ("valid", "test"))
    parts = {"valid": order_I[:valid], "test": order_I[valid : valid + test], "train": order_I[valid + test :]}
    return parts[side]
