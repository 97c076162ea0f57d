"""A picture of many small images side by side.

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
VISIBLE = 84  # a smaller image is enlarged to this side, at least
WIDEST = 4096  # where enlarging stops
LINE = 16  # pixels for a label
BACKGROUND = (255, 255, 255)


def save_grid(
    images_NHWC: NDArray[np.uint8],
    path: Path,
    columns: int | None = None,
    scale: int | None = None,
    labels: Sequence[str] | None = None,
) -> None:
    """Write a PNG, whole or not at all; without columns, about square. A label stands above its image."""
    count, height, width, _ = images_NHWC.shape
    columns = columns or math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    scale = scale or _enlarged(max(columns * width, rows * height), min(height, width))
    line = LINE if labels else 0
    step_x, step_y = width * scale + GAP, height * scale + GAP + line
    picture = Image.new("RGB", (columns * step_x + GAP, rows * step_y + GAP), BACKGROUND)
    writing = ImageDraw.Draw(picture)
    for number, image_HWC in enumerate(images_NHWC):
        x, y = GAP + number % columns * step_x, GAP + number // columns * step_y
        if labels:
            writing.text((x, y), labels[number], fill="black")
        # Every pixel a square of its own, never blurred.
        large_HWC = image_HWC.repeat(scale, axis=0).repeat(scale, axis=1)
        picture.paste(_picture(large_HWC), (x, y + line))
    _save(picture, path)


def save_image(image_HWC: NDArray[np.uint8], path: Path) -> None:
    """Write one image as it is, as a PNG, whole or not at all."""
    _save(_picture(image_HWC), path)


def _picture(image_HWC: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(image_HWC[..., 0] if image_HWC.shape[-1] == 1 else image_HWC)


def _save(picture: Image.Image, path: Path) -> None:
    content = io.BytesIO()
    picture.save(content, "PNG")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())


def _enlarged(longest: int, side: int) -> int:
    """How many times: until an image is visible, unless the whole would be too large."""
    return max(1, min(math.ceil(VISIBLE / side), WIDEST // longest))
