"""Batches of images with the class of every pixel.

Shapes: B images · H × W pixels · C channels
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regard.data.batch import Batch
from regard.data.image_batches import BatchIndices, ShuffledImages
from regard.data.keys import sample_keys
from regard.data.mask_cache import NOTHING, MaskedImages


@dataclass(frozen=True)
class MaskBatch(Batch):
    """Labels are [B, H, W], one byte each."""

    nothing: ClassVar[int] = NOTHING
    unit: ClassVar[str] = "pixels"

    pixels_BHWC: Tensor
    keys_B: Tensor


class MaskStream(ShuffledImages[MaskBatch]):
    images: MaskedImages

    def batch(self, indices: BatchIndices) -> MaskBatch:
        samples_B = indices.samples_B
        return MaskBatch(
            torch.from_numpy(self.images.classes(samples_B)),
            torch.from_numpy(self.images.pixels_NHWC[samples_B]),
            torch.from_numpy(sample_keys(self.seed, indices.epochs_B, samples_B)),
        )
