"""Palettes: the nearest colour, the same one every time, and back again."""

import json

import numpy as np
import pytest

from expect import error_of
from regard.data import palette as palette_module
from regard.data.palette import Palette


def images(count: int, channels: int, seed: int = 0, size: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, size, size + 1, channels), np.uint8)


def nearest_by_hand(palette: Palette, pixels: np.ndarray) -> np.ndarray:
    flat = pixels.reshape(-1, pixels.shape[-1]).astype(int)
    found = [int(((palette.colours_KC.astype(int) - pixel) ** 2).sum(1).argmin()) for pixel in flat]
    return np.array(found).reshape(len(pixels), -1)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("colours", [1, 2, 40])
def test_the_code_is_the_nearest_colour_and_of_equals_the_first(channels, colours):
    generator = np.random.default_rng(colours)
    palette = Palette(generator.integers(0, 256, (colours, channels), np.uint8))
    # A pixel half-way between two colours is there on purpose.
    middle = (palette.colours_KC[:1].astype(int) + palette.colours_KC[-1:]) // 2
    pixels = images(4, channels)
    pixels[0, 0, 0] = middle
    assert (palette.codes(pixels) == nearest_by_hand(palette, pixels)).all()


def test_what_was_looked_up_before_does_not_change_the_codes(monkeypatch):
    monkeypatch.setattr(palette_module, "AT_ONCE", 7)
    palette = Palette(images(3, 3, seed=1).reshape(-1, 3))
    first, second = images(2, 3, seed=2), images(2, 3, seed=3)
    palette.codes(first)
    both = palette.codes(np.concatenate([first, second]))
    assert (both == nearest_by_hand(palette, np.concatenate([first, second]))).all()


@pytest.mark.parametrize("levels", [2, 16, 17, 256])
def test_grey_levels_come_back_as_they_were(levels):
    palette = Palette.grey(levels)
    assert len(palette) == levels
    assert (palette.colours_KC[0, 0], palette.colours_KC[-1, 0]) == (0, 255)
    codes = np.random.default_rng(1).integers(0, levels, (5, 12))
    pixels = palette.pixels(codes, 3, 4)
    assert pixels.shape == (5, 3, 4, 1) and pixels.dtype == np.uint8
    assert (palette.codes(pixels) == codes).all()
    assert palette.error(pixels) == 0


def test_with_256_greys_nothing_is_lost_and_there_are_no_more():
    assert Palette.grey(256).error(images(5, 1)) == 0
    assert len(Palette.grey(300)) == 256


def test_pixels_are_read_row_by_row():
    image = np.arange(6, dtype=np.uint8).reshape(1, 2, 3, 1)
    assert Palette.grey(256).codes(image).tolist() == [[0, 1, 2, 3, 4, 5]]


def clouds() -> tuple[np.ndarray, np.ndarray]:
    """Images whose pixels lie close to five colours."""
    generator = np.random.default_rng(4)
    centres = np.array([[20, 30, 200], [240, 240, 10], [5, 5, 5], [250, 250, 250], [10, 200, 40]])
    chosen = centres[generator.integers(0, 5, (200, 8, 8))]
    return centres, (chosen + generator.integers(-4, 5, chosen.shape)).clip(0, 255).astype(np.uint8)


def test_k_means_finds_the_colours_of_the_images_from_dark_to_bright():
    centres, pixels = clouds()
    palette = Palette.k_means(pixels, 5, seed=1)
    brightness = palette.colours_KC @ np.array([0.299, 0.587, 0.114])
    assert (np.diff(brightness) > 0).all()
    for centre in centres:
        assert np.abs(palette.colours_KC.astype(int) - centre).max(1).min() <= 3
    assert palette.error(pixels) < 10  # the noise itself: about 6.7


def test_more_colours_lose_less():
    pixels = images(30, 3)
    errors = [Palette.k_means(pixels, colours, seed=1).error(pixels) for colours in (2, 8, 64)]
    assert errors[0] > 1.5 * errors[1] > 1.5 * 1.5 * errors[2]


def test_k_means_is_the_same_every_time_also_where_it_sees_only_a_part(monkeypatch):
    monkeypatch.setattr(palette_module, "MOST_SAMPLED", 2000)
    monkeypatch.setattr(palette_module, "IMAGES_SAMPLED", 50)
    _, pixels = clouds()
    first, again = (Palette.k_means(pixels, 12, seed=3) for _ in range(2))
    assert (first.colours_KC == again.colours_KC).all()


def test_images_of_few_colours_get_a_palette_of_just_those():
    pixels = np.array([[0, 0, 0], [255, 0, 0], [9, 9, 9]], np.uint8)[np.random.default_rng(0).integers(0, 3, (4, 5, 5))]
    palette = Palette.k_means(pixels, 16, seed=1)
    assert len(palette) == 3
    assert palette.error(pixels) == 0


def test_a_palette_is_the_same_after_it_was_written_as_json():
    palette = Palette.k_means(clouds()[1], 5, seed=1)
    read = Palette.from_json(json.loads(json.dumps(palette.to_json())), 3, "palette.json")
    assert (read.colours_KC == palette.colours_KC).all()


def test_images_of_other_channels_are_refused():
    with pytest.raises(ValueError, match="3 channels"):
        Palette.grey(4).codes(images(1, 3))


def test_any_seed_has_a_palette_and_small_ones_the_same_as_ever():
    from sklearn.cluster import MiniBatchKMeans

    pixels = images(20, 3)
    palettes = [Palette.k_means(pixels, 4, seed).colours_KC.tolist() for seed in (7, 2**32 - 1, 2**32, 2**70)]
    assert palettes[2] == Palette.k_means(pixels, 4, 2**32).colours_KC.tolist()
    search = MiniBatchKMeans(4, random_state=7, batch_size=16_384, n_init=1, init_size=20_000)
    found = search.fit(palette_module._sample(pixels, 7).astype(np.float32)).cluster_centers_
    assert sorted(palettes[0]) == sorted(found.round().clip(0, 255).astype(int).tolist())


BAD = {
    "a list": [],
    "no colours": {"colours": []},
    "a number": {"colours": 5},
    "other keys": {"color": [[0, 0, 0]]},
    "fewer channels": {"colours": [[0, 0]]},
    "ragged": {"colours": [[0, 0, 0], [1]]},
    "beyond 255": {"colours": [[0, 0, 256]]},
    "fractions": {"colours": [[0, 0, 0.5]]},
    "texts": {"colours": [["0", "0", "0"]]},
    "far too many": {"colours": [[0, 0, 0]] * 5000},
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_what_is_no_palette_is_an_error(content):
    error = error_of(Palette.from_json, content, 3, "run/palette.json")
    assert "run/palette.json" in error.what
