"""The figure of the worst mistakes: each with its classes and the name of its file."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from regard.explain.figures import shortened
from regard.explain.mistakes import Mistake, draw_mistakes


def mistake(name: str, shape: tuple[int, int] = (8, 8), true: str = "cat", guessed: str = "dog") -> Mistake:
    return Mistake(name, true, guessed, 0.62, np.zeros((*shape, 3), np.uint8))


@pytest.fixture
def drawn(tmp_path: Path, saved_figures: list[Figure]):
    """Draws mistakes, and returns the figure."""

    def draw(*mistakes: Mistake) -> Figure:
        draw_mistakes(mistakes, tmp_path / "mistakes.png")
        return saved_figures[-1]

    return draw


def test_the_file_name_is_below_each_image(drawn):
    figure = drawn(mistake("photos/cat/7.jpg"), mistake("digits #12"), mistake(""))
    assert [axis.get_xlabel() for axis in figure.axes] == ["7.jpg", "digits #12", ""]
    assert figure.axes[0].get_title() == "cat\ntaken for dog, 62%"


def test_a_name_is_seen_in_the_picture(drawn, tmp_path):
    pictures = []
    for name in ("", "a.png"):
        drawn(mistake(name))
        pictures.append(np.array(Image.open(tmp_path / "mistakes.png")))
    assert pictures[0].shape == pictures[1].shape and (pictures[0] != pictures[1]).any()


def test_a_long_name_keeps_its_start_and_its_end():
    assert shortened("a" * 32, 32) == "a" * 32
    name = shortened("train-images-of-a-long-holiday-idx3-ubyte.gz #59999", 32)
    assert len(name) == 32
    assert name.startswith("train-images") and "…" in name and name.endswith("ubyte.gz #59999")


def test_long_names_do_not_run_into_each_other(drawn):
    figure = drawn(*[mistake("of/" + "long_name_" * 9, (16, 4), "Long Class " * 9, "Other Class " * 9)] * 3)
    for words in ([axis.title for axis in figure.axes], [axis.xaxis.label for axis in figure.axes]):
        boxes = [text.get_window_extent(dpi=150) for text in words]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_a_dollar_sign_starts_no_formula(drawn):
    figure = drawn(mistake("cat/$\\frac{1$.png", true="$x_{$"))
    assert figure.axes[0].get_xlabel() == "$\\frac{1$.png" and figure.axes[0].get_title().startswith("$x_{$")


@pytest.mark.parametrize("shape", [(8, 8), (8, 16), (16, 8)])
def test_the_picture_follows_the_shape_of_the_images(drawn, tmp_path, shape):
    drawn(*[mistake(f"{n}.png", shape) for n in range(12)])
    picture = np.array(Image.open(tmp_path / "mistakes.png").convert("L"))
    assert (picture == 255).mean() < 0.5


def test_the_title_says_that_there_are_no_mistakes(drawn):
    assert drawn().get_suptitle() == "No mistakes"
