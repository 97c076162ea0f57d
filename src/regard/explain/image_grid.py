"""Many small images side by side in one.

Shapes: N images · H × W pixels · C channels
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from regard.files import write_atomically

GAP = 4  # pixels between two images
APART = 24  # pixels between two groups
VISIBLE = 84  # smaller images are enlarged to at least this side
WIDEST = 4096  # limit of enlarging, for the whole
LINE = 16  # pixels for a label
ONE_ROW = 10  # a group of up to this many images is never wrapped
BACKGROUND = (255, 255, 255)


def save_grid(
    images_NHWC: NDArray[np.uint8],
    path: Path,
    columns: int | None = None,
    scale: int | None = None,
    labels: Sequence[str] | None = None,
    group: int | None = None,
) -> None:
    """Write a PNG atomically. A label is above its image.

    Every `group` consecutive images form a block, with this many columns; by default the whole is roughly square.
    """
    count, height, width, _ = images_NHWC.shape
    line = LINE if labels else 0
    if group:
        large = scale or math.ceil(VISIBLE / min(height, width))
        steps = width * large + GAP, height * large + GAP + line
        columns, across = _blocks(count // group, group, columns, steps)
    else:
        group, columns, across = count, columns or math.ceil(math.sqrt(count)), 1
    rows, down = math.ceil(group / columns), math.ceil(count / group / across)
    scale = scale or _enlarged(max(across * columns * width, down * rows * height), min(height, width))
    step_x, step_y = width * scale + GAP, height * scale + GAP + line
    apart_y = _apart_y(rows)
    block_x, block_y = columns * step_x + APART, rows * step_y + apart_y
    canvas = Image.new("RGB", (across * block_x - APART + GAP, down * block_y - apart_y + GAP), BACKGROUND)
    drawing = ImageDraw.Draw(canvas)
    for number, image_HWC in enumerate(images_NHWC):
        block, cell = divmod(number, group)
        x = GAP + block % across * block_x + cell % columns * step_x
        y = GAP + block // across * block_y + cell // columns * step_y
        if labels:
            drawing.text((x, y), labels[number], fill="black")
        # Every pixel becomes a square, without interpolation.
        large_HWC = image_HWC.repeat(scale, axis=0).repeat(scale, axis=1)
        canvas.paste(_image(large_HWC), (x, y + line))
    save_picture(canvas, path)


def save_image(image_HWC: NDArray[np.uint8], path: Path) -> None:
    """Write one image unchanged as a PNG, atomically."""
    save_picture(_image(image_HWC), path)


def _image(image_HWC: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(image_HWC[..., 0] if image_HWC.shape[-1] == 1 else image_HWC)


def save_picture(image: Image.Image, path: Path) -> None:
    """Write a PNG atomically."""
    content = io.BytesIO()
    image.save(content, "PNG")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())


def _enlarged(longest: int, side: int) -> int:
    """The factor that makes an image visible, unless the whole would be too large."""
    return max(1, min(math.ceil(VISIBLE / side), WIDEST // longest))


def _blocks(groups: int, group: int, columns: int | None, steps: tuple[int, int]) -> tuple[int, int]:
    """The columns of a group, and how many groups are side by side, for a roughly square image."""

    def longest_side(shape: tuple[int, int]) -> tuple[int, int]:
        columns, across = shape
        rows, down = math.ceil(group / columns), math.ceil(groups / across)
        width = across * (columns * steps[0] + APART) - APART
        height = down * (rows * steps[1] + _apart_y(rows)) - _apart_y(rows)
        return max(width, height), width * height

    possible = [columns] if columns else [group] if group <= ONE_ROW else range(2, group + 1)
    return min(((each, across) for each in possible for across in range(1, groups + 1)), key=longest_side)


def _apart_y(rows: int) -> int:
    """The gap between a group and the one below it; none for groups of a single row, which are distinct anyway."""
    return APART if rows > 1 else 0
