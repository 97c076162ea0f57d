"""Batches of images with captions: each image comes with one of its captions, in a row of its own.

Over the epochs an image goes through its captions in turn; which is the first is drawn for it. So the caption is a pure
function of (seed, epoch, image), and all are read equally often.

Shapes: B images · H × W pixels · C channels · T places of a caption · N images that there are
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import Batch
from regard.data.image_batches import BatchIndices, ShuffledImages
from regard.data.image_cache import Images
from regard.data.keys import sample_keys, shift_right
from regard.data.packed import Placement
from regard.data.ragged import Ragged
from regard.data.side import Side
from regard.data.tokenizers import TextTokenizer

FIRST = np.array(-1)  # in place of an epoch: what the first caption of an image is drawn with


@dataclass(frozen=True)
class CaptionBatch(Batch):
    """The labels [B, T] are the caption and <end>; behind that there is nothing."""

    caption_BT: Tensor  # <start> and the caption
    pixels_BHWC: Tensor
    keys_B: Tensor


@dataclass(frozen=True)
class Captions:
    """All captions of some images: those of image n are numbered from first_N[n] up to first_N[n + 1]."""

    tokens: Ragged
    first_N: NDArray[np.int64]

    @classmethod
    def encoded(cls, captions: Sequence[Sequence[str]], tokenizer: TextTokenizer) -> Captions:
        tokens = Ragged.from_lists(tokenizer.encode([text for of_image in captions for text in of_image]))
        return cls(tokens, np.cumsum([0, *map(len, captions)]))

    def fitted(self, length: int) -> Captions:
        """Cut to so many places."""
        return Captions(self.tokens.fitted(length), self.first_N)

    @property
    def longest(self) -> int:
        """In places, with <end>."""
        return int(self.tokens.lengths.max(initial=0)) + 1

    def one_of_each(self, seed: int, epochs_B: NDArray[np.int64], images_B: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the caption that each of these images comes with in its epoch: [B]."""
        first_B, count_B = self.first_N[images_B], np.diff(self.first_N)[images_B]
        start_B = shift_right(sample_keys(seed, FIRST, images_B), 1)
        return first_B + (start_B % count_B + epochs_B) % count_B


class CaptionStream(ShuffledImages[CaptionBatch]):
    def __init__(self, images: Images, captions: Captions, length: int, per_batch: int, seed: int):
        """`captions` fit into `length` places."""
        super().__init__(images, per_batch, seed)
        self.captions, self.length = captions, length

    def batch(self, indices: BatchIndices) -> CaptionBatch:
        epochs_B, samples_B = indices.epochs_B, indices.samples_B
        which_B = self.captions.one_of_each(self.seed, epochs_B, samples_B)
        keys_B = sample_keys(self.seed, epochs_B, samples_B)
        return make_batch(self.images, samples_B, keys_B, self.captions.tokens.take(which_B), self.length)


def in_order(images: Images, captions: Captions, length: int, rows: int) -> Iterator[CaptionBatch]:
    """Every caption once, with its image: for validation."""
    image_of = np.repeat(np.arange(len(images)), np.diff(captions.first_N))
    for start in range(0, len(image_of), rows):
        samples_B = image_of[start : start + rows]
        some = captions.tokens.take(np.arange(start, start + len(samples_B)))
        yield make_batch(images, samples_B, np.zeros_like(samples_B), some, length)


def make_batch(
    images: Images, samples_B: NDArray[np.int64], keys_B: NDArray[np.int64], captions: Ragged, length: int
) -> CaptionBatch:
    """These images, each with its caption in a row of `length` places."""
    rows = len(samples_B)
    side = Side(rows, length)
    side.write(captions, Placement(np.arange(rows), np.ones(rows, np.int64)))
    arrays = side.with_end, side.with_start, images.pixels_NHWC[samples_B], keys_B
    return CaptionBatch(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))
