"""Masks as pictures: with a palette, over their image, and beside the ground truth.

Shapes: N images · H × W pixels · C channels · V possible values of a mask (256)
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

COVERED = 0.5  # opacity of a mask over an image


def palette() -> NDArray[np.uint8]:
    """A colour for every value: [V, 3]. 0 is black."""
    return np.array([(0, 0, 0), *(colour_of(number) for number in range(255))], np.uint8)


def overlaid(pixels_HWC: NDArray[np.uint8], mask_HW: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """An image with a coloured mask over it: [H, W, 3]. Where the mask is 0, the image is unchanged."""
    image_HW3 = np.broadcast_to(pixels_HWC, (*pixels_HWC.shape[:2], 3))
    colour_HW3 = palette()[mask_HW]
    opacity_HW1 = np.where(mask_HW == 0, 0.0, COVERED)[..., None]
    return np.rint((1 - opacity_HW1) * image_HW3 + opacity_HW1 * colour_HW3).astype(np.uint8)


def shrunk(mask_HW: NDArray[np.uint8], most: int) -> NDArray[np.uint8]:
    """The mask with sides of at most `most` pixels, by nearest neighbour."""
    height, width = mask_HW.shape
    scale = max(height, width) / most
    if scale <= 1:
        return mask_HW
    size = max(1, round(width / scale)), max(1, round(height / scale))
    return np.asarray(Image.fromarray(mask_HW).resize(size, Image.Resampling.NEAREST))


def save_mask(mask_HW: NDArray[np.uint8], path: Path) -> None:
    """Write a PNG with a palette, whose pixels are the values of the mask, atomically."""
    image = Image.fromarray(mask_HW)
    image.putpalette(palette().tobytes())
    content = io.BytesIO()
    image.save(content, "PNG")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())


def save_comparison(
    pixels_NHWC: NDArray[np.uint8], true_NHW: NDArray[np.uint8], predicted_NHW: NDArray[np.uint8], path: Path
) -> None:
    """Each image, with its true mask over it, and with the predicted one."""
    images = [
        image_HW3
        for pixels_HWC, true_HW, predicted_HW in zip(pixels_NHWC, true_NHW, predicted_NHW, strict=True)
        for image_HW3 in (
            np.broadcast_to(pixels_HWC, (*pixels_HWC.shape[:2], 3)),
            overlaid(pixels_HWC, true_HW),
            overlaid(pixels_HWC, predicted_HW),
        )
    ]
    save_grid(np.stack(images), path, labels=["image", "mask", "predicted"] * len(pixels_NHWC), group=3)
