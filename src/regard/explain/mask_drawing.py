"""Masks as pictures: with a palette, laid over their image, and beside what they should be.

Shapes: N images · H × W pixels · C channels · V numbers that a mask may have (256)
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from regard.explain.class_colours import colour_of
from regard.explain.image_grid import save_grid
from regard.files import write_atomically

COVERED = 0.5  # how much of an image its mask covers


def palette() -> NDArray[np.uint8]:
    """A colour for every number: [V, 3]. That of 0 is black."""
    return np.array([(0, 0, 0), *(colour_of(number) for number in range(255))], np.uint8)


def overlaid(pixels_HWC: NDArray[np.uint8], mask_HW: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """An image with a mask of numbers over it, in colour: [H, W, 3]. Where the number is 0, the image is as it was."""
    image_HW3 = np.broadcast_to(pixels_HWC, (*pixels_HWC.shape[:2], 3))
    colour_HW3 = palette()[mask_HW]
    part_HW1 = np.where(mask_HW == 0, 0.0, COVERED)[..., None]
    return np.rint((1 - part_HW1) * image_HW3 + part_HW1 * colour_HW3).astype(np.uint8)


def shrunk(mask_HW: NDArray[np.uint8], most: int) -> NDArray[np.uint8]:
    """The mask with sides of at most so many pixels; the number of each is that of the nearest pixel."""
    height, width = mask_HW.shape
    scale = max(height, width) / most
    if scale <= 1:
        return mask_HW
    size = max(1, round(width / scale)), max(1, round(height / scale))
    return np.asarray(Image.fromarray(mask_HW).resize(size, Image.Resampling.NEAREST))


def save_mask(mask_HW: NDArray[np.uint8], path: Path) -> None:
    """A PNG whose pixels are the numbers, and which shows them in colour; whole or not at all."""
    image = Image.fromarray(mask_HW)
    image.putpalette(palette().tobytes())
    content = io.BytesIO()
    image.save(content, "PNG")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())


def save_comparison(
    pixels_NHWC: NDArray[np.uint8], true_NHW: NDArray[np.uint8], guessed_NHW: NDArray[np.uint8], path: Path
) -> None:
    """Each image, with the mask that it should have over it, and with the one that was guessed."""
    triples = [
        triple
        for pixels_HWC, true_HW, guessed_HW in zip(pixels_NHWC, true_NHW, guessed_NHW, strict=True)
        for triple in (
            np.broadcast_to(pixels_HWC, (*pixels_HWC.shape[:2], 3)),
            overlaid(pixels_HWC, true_HW),
            overlaid(pixels_HWC, guessed_HW),
        )
    ]
    save_grid(np.stack(triples), path, labels=["image", "mask", "guessed"] * len(pixels_NHWC), group=3)
