"""Batches of images.

Every image comes with a key, from which all random changes to it follow, and, where images are mixed, with another:
the one that comes after it in its epoch.

Shapes: B images · H × W pixels · C channels
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import Batch
from regard.data.image_cache import Images
from regard.data.keys import sample_keys
from regard.data.stream import AnyBatch, Part, Stream

Order = NDArray[np.int64]


@dataclass(frozen=True)
class ImageBatch(Batch):
    """Images with one label each, [B, 1]; of those to be mixed in, none where nothing is mixed: [B, 0]."""

    nothing: ClassVar[int] = -1
    unit: ClassVar[str] = "images"

    pixels_BHWC: Tensor
    keys_B: Tensor
    other_labels_B: Tensor
    others_BHWC: Tensor
    other_keys_B: Tensor


@dataclass(frozen=True)
class BatchIndices:
    """The images of a batch: the epoch that each is of, its number, and that of the one after it in that epoch."""

    epochs_B: NDArray[np.int64]
    samples_B: NDArray[np.int64]
    others_B: NDArray[np.int64]


class ShuffledImages(Stream[Order, AnyBatch]):
    """An epoch is one permutation of the images."""

    def __init__(self, images: Images, per_batch: int, seed: int):
        self.images, self.rows, self.seed = images, per_batch, seed

    def open(self, epoch: int, window: int) -> Order:
        return np.random.default_rng([self.seed, epoch]).permutation(len(self.images))

    def collate(self, parts: list[Part[Order]]) -> AnyBatch:
        epochs = [np.full(len(part.rows), part.epoch) for part in parts]
        samples = [part.window[part.slice] for part in parts]
        others = [part.window[(np.array(part.rows) + 1) % len(part.window)] for part in parts]
        return self.batch(BatchIndices(*(np.concatenate(numbers) for numbers in (epochs, samples, others))))

    @abstractmethod
    def batch(self, indices: BatchIndices) -> AnyBatch: ...


class ImageStream(ShuffledImages[ImageBatch]):
    """With `mixed`, each image brings another."""

    def __init__(self, images: Images, per_batch: int, seed: int, mixed: bool):
        super().__init__(images, per_batch, seed)
        self.mixed = mixed

    def batch(self, indices: BatchIndices) -> ImageBatch:
        rows = len(indices.samples_B)
        others_B = indices.others_B if self.mixed else indices.others_B[:0]
        images, others = self.images.take(indices.samples_B), self.images.take(others_B)

        def of_others(values: NDArray[Any]) -> Tensor:
            # Every tensor of a batch has as many rows; those of no use are empty.
            return torch.from_numpy(values) if self.mixed else torch.zeros(rows, 0)

        return ImageBatch(
            torch.from_numpy(images.labels_N)[:, None],
            torch.from_numpy(images.pixels_NHWC),
            torch.from_numpy(sample_keys(self.seed, indices.epochs_B, indices.samples_B)),
            of_others(others.labels_N),
            of_others(others.pixels_NHWC),
            of_others(sample_keys(self.seed, indices.epochs_B[: len(others_B)], others_B)),
        )


def made_up_images(height: int, width: int, channels: int, count: int = 32) -> ImageBatch:
    """Black images of the first class, each with another to be mixed in."""
    pixels_BHWC, keys_B = torch.zeros(count, height, width, channels, dtype=torch.uint8), torch.arange(count)
    labels_B = torch.zeros_like(keys_B)
    return ImageBatch(labels_B[:, None], pixels_BHWC, keys_B, labels_B, pixels_BHWC, keys_B)
