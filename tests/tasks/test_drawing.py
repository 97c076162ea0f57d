"""A trained model of pixels: what it draws and completes, from Python and with `regard generate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from regard.cli.app import app
from regard.errors import RegardError, UsageError
from regard.tasks import pixels as pixels_module


def test_samples_are_images_of_the_palettes_colours(pixels):
    drawn = pixels.sample(6)
    assert drawn.shape == (6, 8, 8, 1) and drawn.dtype == np.uint8
    assert set(np.unique(drawn)) <= set(pixels.palette.colours_KC[:, 0])


def test_a_sample_depends_on_the_seed_and_its_number_alone(pixels, monkeypatch):
    many = pixels.sample(7, seed=3)
    assert (pixels.sample(2, seed=3) == many[:2]).all()
    monkeypatch.setattr(pixels_module, "PIXELS_AT_ONCE", 3 * 64)
    assert (pixels.sample(7, seed=3) == many).all()
    assert (pixels.sample(7, seed=4) != many).any()
    assert len({image.tobytes() for image in many}) == 7


def test_samples_look_like_digits_in_where_they_are_bright(pixels):
    """The mean of many samples lies near that of the images; an even grey would not."""
    drawn, real = (images.astype(float).mean(0) for images in (pixels.sample(200), pixels.splits().train.pixels_NHWC))
    even = np.full_like(real, real.mean())
    assert np.abs(drawn - real).mean() < 0.35 * np.abs(even - real).mean()


def test_at_temperature_0_all_samples_are_the_same(pixels):
    drawn = pixels.sample(3, temperature=0.0)
    assert (drawn == drawn[0]).all()


@pytest.mark.parametrize(("keep", "rows"), [(0.01, 1), (0.5, 4), (0.25, 2), (0.99, 7)])
def test_a_completion_keeps_the_rows_that_it_was_given_and_draws_the_rest(pixels, keep, rows):
    images = list(pixels.splits().test.pixels_NHWC[:3])
    drawn = pixels.complete(images, keep=keep, samples=4)
    assert drawn.shape == (3, 4, 8, 8, 1)
    assert pixels.kept_rows(keep) == rows
    for image, samples in zip(images, drawn, strict=True):
        assert (samples[:, :rows] == image[:rows]).all()  # 17 greys are all that digits have
    if rows < 7:  # a last row may well come out the same
        assert all(len({sample.tobytes() for sample in samples}) > 1 for samples in drawn)


def test_a_completion_follows_from_what_was_kept(pixels):
    """What is drawn lies nearer to the rest of the image that was given than to that of another one."""
    images = pixels.splits().test.pixels_NHWC
    drawn = pixels.complete(list(images), keep=0.75, samples=2, temperature=0.5)[:, :, 6:].astype(float)
    rest = images[:, None, 6:].astype(float)
    own, others = (np.abs(drawn - each).mean() for each in (rest, np.roll(rest, 1, axis=0)))
    assert own < 0.88 * others


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"count": 0}, "0 images"),
        ({"count": -3}, "-3 images"),
        ({"count": 20_000}, "20,000 images"),
        ({"seed": -1}, "seed"),
        ({"temperature": -1.0}, "temperature"),
    ],
)
def test_bad_options_are_refused(pixels, options, says):
    with pytest.raises(UsageError) as caught:
        pixels.sample(**options)
    assert says in str(caught.value)


def test_an_image_to_complete_may_be_a_file(pixels, tmp_path):
    image = pixels.splits().test.pixels_NHWC[0]
    Image.fromarray(image[..., 0]).save(tmp_path / "a.png")
    expected = pixels.complete([np.array(image)], samples=2)
    assert (pixels.complete([tmp_path / "a.png"], samples=2) == expected).all()
    assert (pixels.complete(str(tmp_path / "a.png"), samples=2) == expected).all()
    with pytest.raises(RegardError, match="cannot be read"):
        pixels.complete([tmp_path / "missing.png"])


def test_nothing_to_complete_is_refused(pixels):
    with pytest.raises(UsageError, match="no image"):
        pixels.complete([])


# ---------------------------------------------------------------- the command


def generate(run: Any, *options: str | Path | float):
    return CliRunner().invoke(app, ["generate", str(run.folder.path), *map(str, options)])


@pytest.fixture
def digit(pixels: Any, tmp_path: Path) -> Path:
    """A test image in a file."""
    Image.fromarray(pixels.splits().test.pixels_NHWC[0, ..., 0]).save(tmp_path / "digit.png")
    return tmp_path / "digit.png"


def test_generate_draws_a_picture_that_is_the_same_every_time(pixels, tmp_path):
    first, again, other = (tmp_path / name for name in ("1.png", "2.png", "3.png"))
    shown = generate(pixels, "--samples", 4, "-o", first)
    assert shown.exit_code == 0 and shown.stdout.strip() == str(first)
    result = json.loads(generate(pixels, "--samples", 4, "-o", again, "--json").stdout)
    assert result == {"picture": str(again), "samples": 4, "seed": 1}
    generate(pixels, "--samples", 4, "--seed", 2, "-o", other)
    assert first.read_bytes() == again.read_bytes() != other.read_bytes()


def test_generate_completes_images(pixels, digit, tmp_path):
    picture = tmp_path / "completed.png"
    options = ["--complete", digit, "--complete", digit, "--keep", 0.25, "--samples", 3, "-o", picture, "--json"]
    result = json.loads(generate(pixels, *options).stdout)
    assert (result["samples"], result["kept_rows"], result["completed"]) == (3, 2, [str(digit)] * 2)
    width, height = Image.open(picture).size
    assert width / height == pytest.approx(5 / 2, rel=0.2)  # given, kept and three samples, of two images


OF_TEXTS = ["--prompt a", "--stop a", "--top 3", "--modes 4", "--max-tokens 9", "--min-p 0.1", "--repetition-penalty 2"]
OF_IMAGES = ["--complete a.png", "--keep 0.5"]


@pytest.mark.parametrize(
    ("run", "options", "about"),
    [
        *[("pixels", options, "texts") for options in OF_TEXTS],
        *[("language", options, "images") for options in OF_IMAGES],
        ("language", "-o a.txt", "the prompts of a file"),
    ],
)
def test_options_about_something_else_are_refused(run, options, about, request):
    failed = generate(request.getfixturevalue(run), *options.split()).exception
    assert isinstance(failed, UsageError)
    assert options.split()[0] in failed.what and f"It is about {about}" in failed.why


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--samples 0", "--samples cannot be 0"),
        ("--seed -1", "seed"),
        ("--keep 0.5", "--keep has no effect"),
        ("-o a.jpg", "not a PNG"),
        ("--temperature 0 --top-k 3", "--top-k has no effect"),
        ("--complete {digit} --keep 1", "1 of an image"),
        ("--complete {digit} --keep 0", "0 of an image"),
        ("--top-p 2", "top_p"),
    ],
)
def test_options_that_cannot_be_met_are_refused(pixels, digit, options, says):
    failed = generate(pixels, *options.format(digit=digit).split()).exception
    assert isinstance(failed, UsageError)
    assert says in str(failed)


@pytest.mark.parametrize(("content", "says"), [(None, "missing"), (b"", "empty"), (b"no image", "not an image")])
def test_an_image_that_cannot_be_read_is_told(pixels, tmp_path, content, says):
    path = tmp_path / "bad.png"
    if content is not None:
        path.write_bytes(content)
    failed = generate(pixels, "--complete", path).exception
    assert isinstance(failed, RegardError)
    assert str(path) in failed.what and says in failed.why
