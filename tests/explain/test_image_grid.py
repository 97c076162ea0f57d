"""Many images in one: each in its cell, without interpolation."""

import numpy as np
import pytest
from PIL import Image

from regard.explain.completions import save_completions
from regard.explain.image_grid import APART, GAP, LINE, VISIBLE, save_grid


def random_images(count: int, height: int, width: int, channels: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, height, width, channels), np.uint8)


def read(path) -> np.ndarray:
    return np.array(Image.open(path).convert("RGB"))


@pytest.mark.parametrize("channels", [1, 3])
def test_every_image_is_in_its_cell_and_every_pixel_is_a_square(tmp_path, channels):
    images = random_images(5, 3, 4, channels)
    save_grid(images, tmp_path / "grid.png", columns=2, scale=6)
    picture = read(tmp_path / "grid.png")
    assert picture.shape == (3 * (18 + GAP) + GAP, 2 * (24 + GAP) + GAP, 3)
    for number, image in enumerate(images):
        y, x = GAP + number // 2 * (18 + GAP), GAP + number % 2 * (24 + GAP)
        cell = picture[y : y + 18, x : x + 24].reshape(3, 6, 4, 6, 3)
        assert (cell == np.broadcast_to(image, (3, 4, 3))[:, None, :, None]).all()
    assert (picture[:GAP] == 255).all() and (picture[:, :GAP] == 255).all()


def test_small_images_are_enlarged_until_they_can_be_seen_and_large_ones_kept(tmp_path):
    save_grid(random_images(1, 8, 8, 1), tmp_path / "small.png")
    save_grid(random_images(1, 200, 200, 3), tmp_path / "large.png")
    assert read(tmp_path / "small.png").shape[0] >= VISIBLE + 2 * GAP
    assert read(tmp_path / "large.png").shape == (200 + 2 * GAP, 200 + 2 * GAP, 3)


def test_without_columns_the_picture_is_about_square_and_many_images_do_not_grow_it_without_end(tmp_path):
    save_grid(random_images(25, 8, 8, 1), tmp_path / "some.png")
    height, width, _ = read(tmp_path / "some.png").shape
    assert height == width
    save_grid(random_images(10_000, 8, 8, 1), tmp_path / "many.png")
    assert max(read(tmp_path / "many.png").shape) < 5000


def test_labels_are_above_their_images_and_cover_no_pixel(tmp_path):
    images = random_images(2, 20, 20, 1)
    save_grid(images, tmp_path / "grid.png", columns=2, scale=2, labels=["given", "kept"])
    picture = read(tmp_path / "grid.png")
    assert (picture[GAP : GAP + LINE] < 128).any()
    assert (picture[GAP + LINE : GAP + LINE + 40 : 2, GAP : GAP + 40 : 2, 0] == images[0, ..., 0]).all()


def find(picture: np.ndarray, image: np.ndarray) -> tuple[int, int]:
    """Where in a grey picture the image stands, each pixel as it is."""
    height, width = image.shape[:2]
    windows = np.lib.stride_tricks.sliding_window_view(picture[..., 0], (height, width))
    [(y, x)] = np.argwhere((windows == image[..., 0]).all((2, 3))).tolist()
    return x, y


def test_groups_form_separate_blocks(tmp_path):
    assert APART > 2 * GAP
    images = random_images(8 * 3, 20, 20, 1)
    step = 20 + GAP
    for columns, across, block in [(3, 2, [3 * step + APART, step]), (2, 3, [2 * step + APART, 2 * step + APART])]:
        save_grid(images, tmp_path / "grid.png", columns, scale=1, group=3)
        picture = read(tmp_path / "grid.png")
        places = np.array([find(picture, image) for image in images]).reshape(8, 3, 2)
        assert (places - places[:, :1] == [[n % columns * step, n // columns * step] for n in range(3)]).all()
        assert (places[:, 0] == [[GAP + n % across * block[0], GAP + n // across * block[1]] for n in range(8)]).all()


@pytest.mark.parametrize(("groups", "group"), [(1, 102), (3, 32), (10, 25), (40, 4), (2, 60), (7, 1)])
def test_many_or_large_groups_do_not_form_a_strip(tmp_path, groups, group):
    labels = [str(number) for number in range(group)] * groups
    save_grid(random_images(groups * group, 8, 8, 1), tmp_path / "grid.png", labels=labels, group=group)
    height, width, _ = read(tmp_path / "grid.png").shape
    assert 1 / 2 < width / height < 2


def test_a_small_group_stays_in_one_row(tmp_path):
    save_grid(random_images(7, 20, 20, 1), tmp_path / "grid.png", scale=1, group=7)
    assert read(tmp_path / "grid.png").shape[:2] == (20 + 2 * GAP, 7 * (20 + GAP) + GAP)


def test_a_picture_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "grid.png").mkdir()
    with pytest.raises(OSError):
        save_grid(random_images(1, 8, 8, 1), tmp_path / "grid.png")
    assert [path.name for path in tmp_path.iterdir()] == ["grid.png"]


def test_a_completed_image_is_beside_the_original_and_the_given_part(tmp_path):
    given, completed = random_images(2, 100, 100, 1), 255 - random_images(6, 100, 100, 1).reshape(2, 3, 100, 100, 1)
    save_completions(list(given), completed, kept_rows=40, path=tmp_path / "grid.png")
    picture = read(tmp_path / "grid.png")[..., :1]
    for row in range(2):
        kept = np.concatenate([completed[row, 0, :40], np.full((60, 100, 1), 128)])
        for column, image in enumerate([given[row], kept, *completed[row]]):
            x, y = GAP + column * (100 + GAP), GAP + LINE + row * (100 + GAP + LINE)
            assert (picture[y : y + 100, x : x + 100] == image).all()
