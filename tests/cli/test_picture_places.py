"""Where pictures of images go: none over another, and none over an image that is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.cli.images import picture_places


def names(images: list[str], endings: tuple[str, ...] = ("",), folder: str = "out") -> list[str]:
    return [str(path) for path in picture_places([Path(image) for image in images], Path(folder), endings)]


def test_images_of_the_same_name_get_a_number():
    assert names(["x/a.jpg", "y/a.png", "A.gif", "b.png"]) == ["out/a.png", "out/a-2.png", "out/A-3.png", "out/b.png"]
    assert names(["x/a.jpg", "x/a.jpg"]) == ["out/a.png", "out/a-2.png"]


@pytest.mark.parametrize("images", [["a.jpg", "a-overlay.jpg"], ["a-overlay.jpg", "a.jpg"]])
def test_no_picture_has_the_name_of_an_overlay(images):
    places = names(images, ("", "-overlay"))
    written = [*places, *(place.replace(".png", "-overlay.png") for place in places)]
    assert len(set(written)) == 4


def test_no_image_that_is_read_is_written_over():
    assert names(["in/a.png", "other/a.jpg"], folder="in") == ["in/a-2.png", "in/a-3.png"]
    assert names(["in/a.jpg", "in/a-overlay.png"], ("", "-overlay"), "in") == ["in/a-2.png", "in/a-overlay-2.png"]
    assert names(["in/a.jpg", "in/a-overlay.png"], ("",), "in") == ["in/a.png", "in/a-overlay-2.png"]
