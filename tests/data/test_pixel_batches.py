"""Batches of pixels: each guessed from those before it, in an order that can be taken up anywhere."""

from itertools import islice

import numpy as np
import pytest
import torch

from regard.settings import AugmentationSettings
from regard.data.batch import DataState
from regard.data.image_cache import Images
from regard.data.palette import Palette
from regard.data.pixel_batches import PixelBatch, PixelStream, changed_image, pixel_batch

LEVELS = 256
COUNT = 23


def images(height: int = 4, width: int = 5) -> Images:
    """Every image is full of its own number, but for its first pixel; so it can be told wherever it comes."""
    pixels = np.broadcast_to(np.arange(1, COUNT + 1, dtype=np.uint8)[:, None, None, None], (COUNT, height, width, 1))
    pixels = pixels.copy()
    pixels[:, 0, 0] = 200
    return Images(pixels, np.full(COUNT, -1), [str(number) for number in range(COUNT)])


def stream(seed: int = 1, **changes) -> PixelStream:
    return PixelStream(images(), Palette.grey(LEVELS), 4, seed, AugmentationSettings(**changes))


def few(found: PixelStream, count: int, state: DataState | None = None) -> list[tuple[PixelBatch, DataState]]:
    return list(islice(found.batches(state or DataState()), count))


def test_each_pixel_is_the_label_of_the_one_before_and_the_first_that_of_the_start():
    codes = np.array([[3, 1, 0, 2], [0, 0, 1, 1]])
    batch = pixel_batch(codes, start=4)
    assert batch.tokens_BT.tolist() == [[4, 3, 1, 0], [4, 0, 0, 1]]
    assert batch.labels_BT.tolist() == codes.tolist()


def test_the_colour_0_counts_as_a_target():
    batch = pixel_batch(np.zeros((2, 6), np.int64), start=4)
    assert batch.targets == 12
    assert all(part.targets == 6 for part in batch.split(2))


def test_every_image_comes_once_in_an_epoch_and_each_epoch_in_another_order():
    numbers = [int(row[-1]) for batch, _ in few(stream(), COUNT) for row in batch.labels_BT]
    epochs = [numbers[start : start + COUNT] for start in range(0, 4 * COUNT, COUNT)]
    assert all(sorted(epoch) == list(range(1, COUNT + 1)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert numbers != [int(row[-1]) for batch, _ in few(stream(seed=2), COUNT) for row in batch.labels_BT]


@pytest.mark.parametrize("changes", [{}, {"crop": 2, "flip": 0.5}])
def test_the_stream_goes_on_from_any_state_as_if_it_had_never_stopped(changes):
    whole = few(stream(**changes), 15)
    for after, (_, state) in enumerate(whole[:-1]):
        batch, next_state = few(stream(**changes), 1, state)[0]
        assert torch.equal(batch.labels_BT, whole[after + 1][0].labels_BT)
        assert torch.equal(batch.tokens_BT, whole[after + 1][0].tokens_BT)
        assert next_state == whole[after + 1][1]


def test_an_image_is_changed_anew_in_each_epoch_and_not_at_all_if_nothing_is_asked():
    def first_pixels(**changes) -> dict[int, set[tuple[int, ...]]]:
        found: dict[int, set[tuple[int, ...]]] = {}
        for batch, _ in few(stream(**changes), 4 * COUNT):
            for row in batch.labels_BT.tolist():
                found.setdefault(max(set(row), key=row.count), set()).add(tuple(row))
        return found

    assert all(len(seen) == 1 for seen in first_pixels().values())
    assert sum(len(seen) == 2 for seen in first_pixels(flip=0.5).values()) > COUNT * 0.9
    assert max(len(seen) for seen in first_pixels(crop=1).values()) > 5


def test_a_shift_brings_in_black_and_a_flip_turns_rows_round():
    image = np.arange(1, 13, dtype=np.uint8).reshape(3, 4, 1)
    flipped = changed_image(image, AugmentationSettings(flip=1.0), np.random.default_rng(1))
    assert (flipped[:, :, 0] == image[:, ::-1, 0]).all()
    padded = np.pad(image[..., 0], 1)
    shifts = [padded[down : down + 3, right : right + 4].tolist() for down in range(3) for right in range(3)]
    generators = map(np.random.default_rng, range(200))
    found = [changed_image(image, AugmentationSettings(crop=1), each)[..., 0].tolist() for each in generators]
    assert all(pixels in shifts for pixels in found)
    assert all(pixels in found for pixels in shifts)
