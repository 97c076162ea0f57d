"""Colours of classes: the same in all pictures, and far apart for consecutive classes."""

from __future__ import annotations

import colorsys

GOLDEN = 0.618034  # step in hue from one class to the next

Colour = tuple[int, int, int]


def colour_of(number: int) -> Colour:
    red, green, blue = colorsys.hsv_to_rgb(number * GOLDEN % 1, 0.85, 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)
