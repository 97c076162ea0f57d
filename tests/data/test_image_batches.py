"""Batches of images: every image once an epoch, the same from any state on, whatever the size of a batch."""

from __future__ import annotations

from itertools import islice

import numpy as np
import torch

from regard.data.batch import DataState
from regard.data.image_batches import ImageBatch, ImageStream
from regard.data.image_cache import Images


def images(count: int) -> Images:
    """Image n has the label n, and every pixel is n."""
    labels = np.arange(count)
    pixels = np.broadcast_to(labels[:, None, None, None], (count, 2, 3, 1)).astype(np.uint8)
    return Images(pixels, labels, [str(n) for n in labels])


def some(stream: ImageStream, count: int, state: DataState | None = None) -> list[tuple[ImageBatch, DataState]]:
    return list(islice(stream.batches(state or DataState()), count))


def labels_of(batches: list[tuple[ImageBatch, DataState]]) -> list[int]:
    return [label for batch, _ in batches for label in batch.labels_BT[:, 0].tolist()]


def test_every_image_comes_once_in_an_epoch_and_batches_run_on_into_the_next() -> None:
    found = labels_of(some(ImageStream(images(10), 4, seed=1, mixed=False), 5))
    assert sorted(found[:10]) == sorted(found[10:]) == list(range(10))
    assert found[:10] != found[10:]


def test_pixels_are_those_of_the_labels() -> None:
    batch, _ = some(ImageStream(images(10), 8, seed=1, mixed=True), 1)[0]
    assert torch.equal(batch.pixels_BHWC[:, 0, 0, 0].long(), batch.labels_BT[:, 0])
    assert torch.equal(batch.others_BHWC[:, 0, 0, 0].long(), batch.other_labels_B)


def test_a_stream_goes_on_from_any_state() -> None:
    stream = ImageStream(images(10), 4, seed=1, mixed=True)
    whole = some(stream, 8)
    for place in range(7):
        again = some(ImageStream(images(10), 4, seed=1, mixed=True), 1, whole[place][1])
        assert all(torch.equal(a, b) for a, b in zip(again[0][0].tensors(), whole[place + 1][0].tensors(), strict=True))


def test_images_and_keys_do_not_depend_on_the_size_of_a_batch() -> None:
    def keys(per_batch: int, count: int) -> list[tuple[int, int, int, int]]:
        batches = [batch for batch, _ in some(ImageStream(images(7), per_batch, seed=3, mixed=True), count)]
        columns = [torch.cat(part) for part in zip(*(batch.tensors() for batch in batches), strict=True)]
        labels, _, own, others, _, other_keys = columns
        return list(zip(labels[:, 0].tolist(), own.tolist(), others.tolist(), other_keys.tolist(), strict=True))

    assert keys(2, 12) == keys(12, 2) == keys(24, 1)


def test_an_image_is_mixed_with_the_next_of_its_epoch_under_that_ones_key() -> None:
    batch, _ = some(ImageStream(images(6), 6, seed=2, mixed=True), 1)[0]
    assert torch.equal(batch.other_labels_B, batch.labels_BT[:, 0].roll(-1))
    assert torch.equal(batch.other_keys_B, batch.keys_B.roll(-1))


def test_a_key_is_another_in_every_epoch_and_with_every_seed() -> None:
    stream = ImageStream(images(5), 5, seed=1, mixed=False)
    first, second = (dict(zip(b.labels_BT[:, 0].tolist(), b.keys_B.tolist(), strict=True)) for b, _ in some(stream, 2))
    assert all(first[n] != second[n] for n in range(5))
    other = some(ImageStream(images(5), 5, seed=2, mixed=False), 1)[0][0]
    assert not set(first.values()) & set(other.keys_B.tolist())


def test_a_batch_may_hold_more_images_than_there_are() -> None:
    found = labels_of(some(ImageStream(images(3), 8, seed=1, mixed=True), 3))
    assert sorted(found) == sorted(list(range(3)) * 8)


def test_without_mixing_nothing_else_is_carried_and_a_split_keeps_the_rows() -> None:
    batch, _ = some(ImageStream(images(10), 5, seed=1, mixed=False), 1)[0]
    assert batch.others_BHWC.numel() == 0 and batch.targets == 5
    assert [len(part.labels_BT) for part in batch.split(2)] == [3, 2]
