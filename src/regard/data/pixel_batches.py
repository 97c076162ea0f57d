"""Batches of images as sequences of pixels, row by row from the top left; each is guessed from those before it.

    tokens   <start>  p₁  p₂ …  p_{T−1}
    labels      p₁    p₂  p₃ …  p_T

A pixel is the code of its colour in a palette of K; <start> is token K. How an image is moved or flipped follows from
its key, a pure function of (seed, epoch, sample).

Shapes: B images · H × W pixels · C channels · T = H·W pixels of an image
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.augmentation import crop_and_flip
from regard.data.image_batches import BatchIndices, ShuffledImages
from regard.data.image_cache import Images
from regard.data.keys import sample_keys
from regard.data.palette import Palette
from regard.data.text_batches import TextBatch
from regard.settings import CropSettings


@dataclass(frozen=True)
class PixelBatch(TextBatch):
    """The label of each pixel is the one after it. Code 0 is a colour, so `nothing` is another number."""

    nothing: ClassVar[int] = -1
    unit: ClassVar[str] = "pixels"


class PixelStream(ShuffledImages[PixelBatch]):
    def __init__(self, images: Images, palette: Palette, per_batch: int, seed: int, changes: CropSettings):
        super().__init__(images, per_batch, seed)
        self.palette, self.changes = palette, changes

    def batch(self, indices: BatchIndices) -> PixelBatch:
        pixels_BHWC = self.images.take(indices.samples_B).pixels_NHWC
        if self.changes.crop or self.changes.flip:
            keys_B = sample_keys(self.seed, indices.epochs_B, indices.samples_B)
            changed_BHWC = crop_and_flip(torch.from_numpy(pixels_BHWC), torch.from_numpy(keys_B), self.changes)
            pixels_BHWC = changed_BHWC.numpy()
        return pixel_batch(self.palette.codes(pixels_BHWC), start=len(self.palette))


def pixel_batch(codes_BT: NDArray[np.int64], start: int) -> PixelBatch:
    """Rows that begin with <start>, and for each position the pixel that comes next."""
    labels_BT = torch.from_numpy(codes_BT)
    tokens_BT = torch.cat([torch.full((len(labels_BT), 1), start), labels_BT[:, :-1]], dim=1)
    return PixelBatch(labels=labels_BT, tokens_BT=tokens_BT)
