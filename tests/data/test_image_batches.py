"""Batches of images: their labels, their keys, and what is mixed in."""

from __future__ import annotations

from itertools import islice

import torch

from corpora import numbered_images
from regard.data.batch import DataState
from regard.data.image_batches import ImageBatch, ImageStream


def some(stream: ImageStream, count: int, state: DataState | None = None) -> list[tuple[ImageBatch, DataState]]:
    return list(islice(stream.batches(state or DataState()), count))


def test_pixels_are_those_of_the_labels() -> None:
    batch, _ = some(ImageStream(numbered_images(10), 8, seed=1, mixed=True), 1)[0]
    assert torch.equal(batch.pixels_BHWC[:, 1, 1, 0].long(), batch.labels[:, 0])
    assert torch.equal(batch.others_BHWC[:, 1, 1, 0].long(), batch.other_labels_B)


def test_images_and_keys_do_not_depend_on_the_size_of_a_batch() -> None:
    def keys(per_batch: int, count: int) -> list[tuple[int, int, int, int]]:
        batches = [batch for batch, _ in some(ImageStream(numbered_images(7), per_batch, seed=3, mixed=True), count)]
        columns = [torch.cat(part) for part in zip(*(batch.tensors() for batch in batches), strict=True)]
        labels, _, own, others, _, other_keys = columns
        return list(zip(labels[:, 0].tolist(), own.tolist(), others.tolist(), other_keys.tolist(), strict=True))

    assert keys(2, 12) == keys(12, 2) == keys(24, 1)


def test_an_image_is_mixed_with_the_next_of_its_epoch_under_that_ones_key() -> None:
    batch, _ = some(ImageStream(numbered_images(6), 6, seed=2, mixed=True), 1)[0]
    assert torch.equal(batch.other_labels_B, batch.labels[:, 0].roll(-1))
    assert torch.equal(batch.other_keys_B, batch.keys_B.roll(-1))


def test_a_key_is_another_in_every_epoch_and_with_every_seed() -> None:
    stream = ImageStream(numbered_images(5), 5, seed=1, mixed=False)
    first, second = (dict(zip(b.labels[:, 0].tolist(), b.keys_B.tolist(), strict=True)) for b, _ in some(stream, 2))
    assert all(first[n] != second[n] for n in range(5))
    other = some(ImageStream(numbered_images(5), 5, seed=2, mixed=False), 1)[0][0]
    assert not set(first.values()) & set(other.keys_B.tolist())


def test_without_mixing_nothing_else_is_carried_and_a_split_keeps_the_rows() -> None:
    batch, _ = some(ImageStream(numbered_images(10), 5, seed=1, mixed=False), 1)[0]
    assert batch.others_BHWC.numel() == 0 and batch.targets == 5
    assert [len(part.labels) for part in batch.split(2)] == [3, 2]
