"""The scale of images: what a model sees has mean 0 and deviation 1, channel by channel."""

import numpy as np
import pytest
import torch

from expect import error_of
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


GOOD = {"mean": [0.1, 0.2, 0.3], "deviation": [0.4, 0.5, 0.6]}
BAD = {
    "a list": [],
    "nothing": {},
    "one channel": {"mean": [0.1], "deviation": [0.1]},
    "no deviation": {"mean": [0.1, 0.2, 0.3]},
    "a deviation of zero": GOOD | {"deviation": [0.4, 0.0, 0.6]},
    "a negative one": GOOD | {"deviation": [0.4, -1.0, 0.6]},
    "not a number": GOOD | {"mean": [0.1, float("nan"), 0.3]},
    "infinite": GOOD | {"deviation": [0.1, float("inf"), 0.3]},
    "texts": GOOD | {"mean": ["0.1", "0.2", "0.3"]},
    "more": GOOD | {"extra": 1},
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_what_is_no_scale_is_an_error(content):
    assert "run/scale.json" in error_of(Scale.from_json, content, 3, "run/scale.json").what


def test_a_scale_is_read_as_it_was_written():
    assert Scale.from_json(GOOD, 3, "scale.json") == Scale(GOOD["mean"], GOOD["deviation"])
