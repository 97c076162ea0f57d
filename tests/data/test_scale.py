"""The scale of images: what a model sees has mean 0 and deviation 1, channel by channel."""

import numpy as np
import torch

from regard.data import scale as module
from regard.data.image_cache import Images
from regard.data.scale import Scale


def images(count: int) -> Images:
    pixels = np.random.default_rng(1).integers(0, [100, 200, 256], (count, 4, 5, 3)).astype(np.uint8)
    return Images(pixels, np.zeros(count, np.int64), [""] * count)


def test_scaled_images_have_mean_0_and_deviation_1_in_every_channel(monkeypatch):
    monkeypatch.setattr(module, "AT_ONCE", 7)
    given = images(50)
    scaled_BCHW = Scale.measured(given).on(torch.device("cpu")).pixels(torch.from_numpy(given.pixels_NHWC))
    assert scaled_BCHW.shape == (50, 3, 4, 5)
    torch.testing.assert_close(scaled_BCHW.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled_BCHW.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)


def test_of_many_images_some_are_measured_evenly(monkeypatch):
    monkeypatch.setattr(module, "MEASURED", 3)
    given = images(9)
    assert Scale.measured(given) == Scale.measured(given.take([0, 4, 8]))


def test_images_of_one_colour_are_not_divided_by_zero():
    black = Images(np.zeros((3, 2, 2, 1), np.uint8), np.zeros(3, np.int64), [""] * 3)
    assert Scale.measured(black) == Scale([0.0], [0.01])
