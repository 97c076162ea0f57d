"""Batches of images as sequences of pixels, row by row from the top left; each is guessed from those before it.

    tokens   <start>  p₁  p₂ …  p_{T−1}
    labels      p₁    p₂  p₃ …  p_T

A pixel is the code of its colour in a palette of K; <start> is token K. The order of the images, and how each is
shifted or flipped, are pure functions of (seed, epoch, position).

Shapes: B images · H × W pixels · C channels · T = H·W pixels of an image
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from regard.settings import AugmentationSettings
from regard.data.batch import DataState
from regard.data.image_batches import in_epochs
from regard.data.image_cache import Images
from regard.data.palette import Palette
from regard.data.text_batches import TextBatch


@dataclass(frozen=True)
class PixelBatch(TextBatch):
    """The label of each pixel is the one after it. Code 0 is a colour, so `nothing` is another number."""

    nothing: ClassVar[int] = -1
    unit: ClassVar[str] = "pixels"


class PixelStream:
    """The endless stream of training batches, from any state on."""

    def __init__(self, images: Images, palette: Palette, per_batch: int, seed: int, changes: AugmentationSettings):
        self.images, self.palette, self.per_batch, self.seed, self.changes = images, palette, per_batch, seed, changes

    def batches(self, state: DataState) -> Iterator[tuple[PixelBatch, DataState]]:
        """Each batch with the state after it; `row` is the place in the epoch."""
        for chosen, after in in_epochs(len(self.images), self.per_batch, self.seed, state):
            pixels_BHWC = self.images.take(chosen.samples_B).pixels_NHWC
            if self.changes.crop or self.changes.flip:
                seeds = zip(chosen.epochs_B.tolist(), chosen.samples_B.tolist(), strict=True)
                changed = [
                    changed_image(image_HWC, self.changes, np.random.default_rng([self.seed, *numbers]))
                    for image_HWC, numbers in zip(pixels_BHWC, seeds, strict=True)
                ]
                pixels_BHWC = np.stack(changed)
            yield pixel_batch(self.palette.codes(pixels_BHWC), start=len(self.palette)), after


def changed_image(
    image_HWC: NDArray[np.uint8], changes: AugmentationSettings, generator: np.random.Generator
) -> NDArray[np.uint8]:
    """Shifted by up to `crop` pixels each way, with black behind it; and perhaps flipped. Sizes stay."""
    height, width, _ = image_HWC.shape
    down, right = generator.integers(2 * changes.crop + 1, size=2).tolist()
    flipped = generator.random() < changes.flip
    edge = ((changes.crop, changes.crop), (changes.crop, changes.crop), (0, 0))
    image_HWC = np.pad(image_HWC, edge)[down : down + height, right : right + width]
    return image_HWC[:, ::-1] if flipped else image_HWC


def pixel_batch(codes_BT: NDArray[np.int64], start: int) -> PixelBatch:
    """Rows that begin with <start>, and for each position the pixel that comes next."""
    labels_BT = torch.from_numpy(codes_BT)
    tokens_BT = torch.cat([torch.full((len(labels_BT), 1), start), labels_BT[:, :-1]], dim=1)
    return PixelBatch(labels_BT=labels_BT, tokens_BT=tokens_BT)
