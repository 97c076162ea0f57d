"""The built-in scenes: digits with boxes, masks and captions that agree with each other."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from regard.data.samples import scenes
from regard.data.samples.scenes import CELL, COUNTS, HEIGHT, MOST, SIDES, WIDTH, Scene, caption_of, scene


@pytest.fixture(scope="module")
def many() -> list[Scene]:
    return scenes.scenes("train", 200)


def test_a_scene_follows_from_seed_side_and_number() -> None:
    first, again = scene("valid", 7, seed=3), scenes.scenes("valid", 8, seed=3)[7]
    assert first.caption == again.caption
    for name in ("pixels_HWC", "boxes_N4", "digits_N", "mask_HW"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    others = [scene("valid", 8, seed=3), scene("valid", 7, seed=4), scene("test", 7, seed=3)]
    assert all((first.pixels_HWC != other.pixels_HWC).any() for other in others)


def test_a_box_is_tight_around_the_pixels_of_its_digit(many: list[Scene]) -> None:
    for made in many:
        assert made.pixels_HWC.shape == (HEIGHT, WIDTH, 3) and made.pixels_HWC.dtype == np.uint8
        assert 1 <= len(made.digits_N) == len(made.boxes_N4) <= MOST
        left_over_HW = made.mask_HW.copy()
        for digit, box in zip(made.digits_N, made.boxes_N4.astype(int), strict=True):
            x0, y0, x1, y1 = box
            part = made.mask_HW[y0:y1, x0:x1]
            assert set(np.unique(part)) <= {0, digit + 1}
            assert part[0].any() and part[-1].any() and part[:, 0].any() and part[:, -1].any()
            left_over_HW[y0:y1, x0:x1] = 0
        assert not left_over_HW.any()  # no pixel of a digit lies outside of its box


def test_digits_are_lighter_than_the_ground(many: list[Scene]) -> None:
    lighter = [made.pixels_HWC[made.mask_HW > 0].mean() - made.pixels_HWC[made.mask_HW == 0].mean() for made in many]
    assert min(lighter) > 40


def test_the_caption_tells_the_digits_and_their_places(many: list[Scene]) -> None:
    for made in many:
        rows = [re.findall(r"an? (\d)", row) for row in made.caption.split(" above ")]
        assert [int(digit) for digit in itertools.chain(*rows)] == made.digits_N.tolist()
        lower_N = made.boxes_N4[:, 1] >= CELL
        assert len(rows) == len(set(lower_N))
        assert len(rows[0]) == (~lower_N).sum() or lower_N.all()
        for row in (made.boxes_N4[lower_N], made.boxes_N4[~lower_N]):
            assert (np.diff(row[:, 0]) > 0).all()


def test_the_grammar() -> None:
    assert caption_of([8], [1]) == "an 8"
    assert caption_of([3, 7], [0, 0]) == "a 3 left of a 7"
    assert caption_of([3, 8], [0, 1]) == "a 3 above an 8"
    assert caption_of([3, 7, 0], [0, 1, 1]) == "a 3 above a 7 left of a 0"


def test_sides_share_no_digit() -> None:
    images = load_digits().images
    seen = {side: {images[number].tobytes() for number in scenes._of_side(side)} for side in SIDES}
    for one, other in itertools.combinations(SIDES, 2):
        assert not seen[one] & seen[other]
    assert sum(len(scenes._of_side(side)) for side in SIDES) == len(images)
    assert set(COUNTS) == set(SIDES)


def test_all_digits_occur_about_alike(many: list[Scene]) -> None:
    counts = np.bincount(np.concatenate([made.digits_N for made in many]), minlength=10)
    assert counts.min() > 15 and counts.sum() == sum(len(made.boxes_N4) for made in many)


def test_a_drawn_digit_is_the_one_of_scikit_learn() -> None:
    """Found again by drawing all of them: the mask that fits is of the same digit, and of the same side."""
    made = next(made for made in scenes.scenes("test", 20) if len(made.digits_N) == 1)
    [(x0, y0, x1, y1)] = made.boxes_N4.astype(int)
    mask = made.mask_HW[y0:y1, x0:x1] > 0
    loaded, best, fitting = load_digits(), -1.0, -1
    for number, image in enumerate(loaded.images.astype(np.float32)):
        for size in range(scenes.SMALLEST, scenes.LARGEST + 1):
            resized = Image.fromarray(image / 16).resize((size, size), Image.Resampling.BILINEAR)
            drawn = np.asarray(resized) >= scenes.DRAWN
            rows, columns = np.flatnonzero(drawn.any(1)), np.flatnonzero(drawn.any(0))
            drawn = drawn[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            if drawn.shape == mask.shape and (drawn == mask).mean() > best:
                best, fitting = float((drawn == mask).mean()), number
    assert best == 1.0 and loaded.target[fitting] == made.digits_N[0] and fitting in scenes._of_side("test")
