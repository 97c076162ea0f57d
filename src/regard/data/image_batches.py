"""Batches of images, in an order that is a pure function of (seed, epoch, position).

An epoch is one permutation of the images; batches run on from one epoch into the next, so that all have the same
size. Every image comes with a key, from which all random changes to it follow, and, where images are mixed, with
another: the one that comes after it in its epoch.

Shapes: B images · H × W pixels · C channels
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import Batch, DataState
from regard.data.image_cache import Images
from regard.data.keys import sample_keys


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
class Chosen:
    """The images of a batch: the epoch that each is of, its number, and that of the one after it in that epoch."""

    epochs_B: NDArray[np.int64]
    samples_B: NDArray[np.int64]
    others_B: NDArray[np.int64]


def in_epochs(count: int, per_batch: int, seed: int, state: DataState) -> Iterator[tuple[Chosen, DataState]]:
    """Which of so many images make up each batch, with the state after it; `row` is the place in the epoch."""

    def order_of(epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng([seed, epoch]).permutation(count)

    epoch, place = state.epoch, state.row
    order = order_of(epoch)
    while True:
        epochs, samples, others = [], [], []
        missing = per_batch
        while missing:
            places = np.arange(place, min(place + missing, count))
            epochs.append(np.full(len(places), epoch))
            samples.append(order[places])
            others.append(order[(places + 1) % count])
            missing -= len(places)
            place += len(places)
            if place == count:
                epoch, place = epoch + 1, 0
                order = order_of(epoch)
        yield Chosen(*(np.concatenate(parts) for parts in (epochs, samples, others))), DataState(epoch, row=place)


class ImageStream:
    """The endless stream of training batches; `mixed`: each image brings another."""

    def __init__(self, images: Images, per_batch: int, seed: int, mixed: bool):
        self.images, self.per_batch, self.seed, self.mixed = images, per_batch, seed, mixed

    def batches(self, state: DataState) -> Iterator[tuple[ImageBatch, DataState]]:
        """Each batch with the state after it."""
        for chosen, after in in_epochs(len(self.images), self.per_batch, self.seed, state):
            yield self._batch(chosen.epochs_B, chosen.samples_B, chosen.others_B), after

    def _batch(self, epochs: NDArray[np.int64], samples: NDArray[np.int64], others: NDArray[np.int64]) -> ImageBatch:
        if not self.mixed:
            others = others[:0]
        images, mixed_in = self.images.take(samples), self.images.take(others)
        rows = len(samples)

        def of_others(values: NDArray[Any]) -> Tensor:
            # Every tensor of a batch has as many rows; those of no use are empty.
            return torch.from_numpy(values) if self.mixed else torch.zeros(rows, 0)

        return ImageBatch(
            torch.from_numpy(images.labels_N)[:, None],
            torch.from_numpy(images.pixels_NHWC),
            torch.from_numpy(sample_keys(self.seed, epochs, samples)),
            of_others(mixed_in.labels_N),
            of_others(mixed_in.pixels_NHWC),
            of_others(sample_keys(self.seed, epochs[: len(others)], others)),
        )
