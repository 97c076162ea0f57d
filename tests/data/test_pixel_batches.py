"""Batches of pixels: each guessed from those before it, of images moved and flipped by their keys."""

from itertools import islice

import numpy as np

from corpora import numbered_images
from regard.data.augmentation import Augmentation
from regard.data.batch import DataState
from regard.data.image_batches import ImageStream
from regard.data.palette import Palette
from regard.data.pixel_batches import PixelBatch, PixelStream, pixel_batch
from regard.settings import AugmentationSettings, CropSettings

LEVELS = 256
COUNT = 23


def stream(seed: int = 1, **changes) -> PixelStream:
    return PixelStream(numbered_images(COUNT, 4, 5), Palette.grey(LEVELS), 4, seed, CropSettings(**changes))


def few(found: PixelStream, count: int, state: DataState | None = None) -> list[tuple[PixelBatch, DataState]]:
    return list(islice(found.batches(state or DataState()), count))


def test_each_pixel_is_the_label_of_the_one_before_and_the_first_that_of_the_start():
    codes = np.array([[3, 1, 0, 2], [0, 0, 1, 1]])
    batch = pixel_batch(codes, start=4)
    assert batch.tokens_BT.tolist() == [[4, 3, 1, 0], [4, 0, 0, 1]]
    assert batch.labels.tolist() == codes.tolist()


def test_the_colour_0_counts_as_a_target():
    batch = pixel_batch(np.zeros((2, 6), np.int64), start=4)
    assert batch.targets == 12
    assert all(part.targets == 6 for part in batch.split(2))


def test_an_image_is_changed_in_each_epoch_and_not_at_all_if_nothing_is_asked():
    def first_pixels(**changes) -> dict[int, set[tuple[int, ...]]]:
        found: dict[int, set[tuple[int, ...]]] = {}
        for batch, _ in few(stream(**changes), 4 * COUNT):
            for row in batch.labels.tolist():
                found.setdefault(max(set(row), key=row.count), set()).add(tuple(row))
        return found

    assert all(len(seen) == 1 for seen in first_pixels().values())
    assert sum(len(seen) == 2 for seen in first_pixels(flip=0.5).values()) > COUNT * 0.9
    assert max(len(seen) for seen in first_pixels(crop=1).values()) > 5


def test_images_are_moved_and_flipped_as_for_a_classifier():
    """Crop and flip exist once: a stream of pixels sees what the augmentation of the same keys gives."""
    changes = {"crop": 1, "flip": 0.5}
    images = numbered_images(COUNT, 4, 5)
    batch, _ = few(stream(**changes), 1)[0]
    classified = ImageStream(images, 4, seed=1, mixed=False)
    given, _ = next(classified.batches(DataState()))
    changed_BCHW, _ = Augmentation(AugmentationSettings(**changes), 4, 5)(given.pixels_BHWC, given.keys_B)
    assert batch.labels.tolist() == (changed_BCHW * 255).flatten(1).round().long().tolist()
