"""Batches of images with their boxes, padded to the number that the image with most has.

Shapes: B images · H × W pixels · C channels · M boxes of an image, padded · 4: x0, y0, x1, y1
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import Batch
from regard.data.boxes import BoxedImages
from regard.data.image_batches import BatchIndices, ShuffledImages
from regard.data.keys import sample_keys


@dataclass(frozen=True)
class BoxBatch(Batch):
    """The labels are the classes of the boxes, [B, M]."""

    nothing: ClassVar[int] = -1
    unit: ClassVar[str] = "objects"

    pixels_BHWC: Tensor
    keys_B: Tensor
    boxes_BM4: Tensor

    @cached_property
    def targets(self) -> int:
        """How many objects there are; one at least, since images without any are learned from too."""
        return max(1, int((self.labels != self.nothing).sum()))


def box_batch(boxed: BoxedImages, samples_B: np.ndarray, keys_B: np.ndarray, most: int) -> BoxBatch:
    labels_BM = np.full((len(samples_B), most), BoxBatch.nothing, np.int64)
    boxes_BM4 = np.zeros((len(samples_B), most, 4), np.float32)
    for row, sample in enumerate(samples_B.tolist()):
        corners_M4, classes_M = boxed.seen.of(sample)
        labels_BM[row, : len(classes_M)], boxes_BM4[row, : len(classes_M)] = classes_M, corners_M4
    pixels_BHWC = boxed.images.pixels_NHWC[samples_B]
    return BoxBatch(*(torch.from_numpy(values) for values in (labels_BM, pixels_BHWC, keys_B, boxes_BM4)))


class BoxStream(ShuffledImages[BoxBatch]):
    def __init__(self, boxed: BoxedImages, per_batch: int, seed: int):
        super().__init__(boxed.images, per_batch, seed)
        self.boxed, self.most = boxed, max(1, boxed.seen.most)

    def batch(self, indices: BatchIndices) -> BoxBatch:
        keys_B = sample_keys(self.seed, indices.epochs_B, indices.samples_B)
        return box_batch(self.boxed, indices.samples_B, keys_B, self.most)
