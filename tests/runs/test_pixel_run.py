"""A trained model of pixels: what it draws and completes, and what its layers make of images."""

import numpy as np
import pytest
import torch
from PIL import Image
from regard.runs.pixels import PixelRun

import regard
from regard.errors import RegardError, UsageError
from regard.explain.image_grid import save_image

SETTINGS = ["model.layers=2", "model.width=48", "model.heads=2", "model.feedforward=96", "model.dropout=0.0"]
SETTINGS += ["training.images_per_batch=16", "training.warmup=10", "training.validate_every=120", "training.steps=120"]
SETTINGS += ["model.positions=learned"]  # which are quicker at the start


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> PixelRun:
    return regard.load(regard.train("digits-pixels", *SETTINGS, out=tmp_path_factory.mktemp("runs") / "digits"))


def test_samples_are_images_of_the_palettes_colours(run):
    found = run.sample(6)
    assert found.shape == (6, 8, 8, 1) and found.dtype == np.uint8
    assert set(np.unique(found)) <= set(run.palette.colours_KC[:, 0])


def test_a_sample_depends_on_the_seed_and_its_number_alone(run, monkeypatch):
    many = run.sample(7, seed=3)
    assert (run.sample(2, seed=3) == many[:2]).all()
    monkeypatch.setattr(run, "at_once", 3)
    assert (run.sample(7, seed=3) == many).all()
    assert (run.sample(7, seed=4) != many).any()
    assert len({image.tobytes() for image in many}) == 7


def test_samples_look_like_digits_in_where_they_are_bright(run):
    """The mean of many samples lies near that of the images; an even grey would not."""
    drawn, real = (images.astype(float).mean(0) for images in (run.sample(200), run.splits().train.pixels_NHWC))
    even = np.full_like(real, real.mean())
    assert np.abs(drawn - real).mean() < 0.35 * np.abs(even - real).mean()


def test_at_temperature_0_all_samples_are_the_same(run):
    found = run.sample(3, temperature=0.0)
    assert (found == found[0]).all()


@pytest.mark.parametrize(("keep", "rows"), [(0.01, 1), (0.5, 4), (0.25, 2), (0.99, 7)])
def test_a_completion_keeps_the_rows_that_it_was_given_and_draws_the_rest(run, keep, rows):
    images = list(run.splits().test.pixels_NHWC[:3])
    found = run.complete(images, keep=keep, samples=4)
    assert found.shape == (3, 4, 8, 8, 1)
    assert run.kept_rows(keep) == rows
    for image, samples in zip(images, found, strict=True):
        assert (samples[:, :rows] == image[:rows]).all()  # 17 greys are all that digits have
    if rows < 7:  # a last row may well come out the same
        assert all(len({sample.tobytes() for sample in samples}) > 1 for samples in found)


def test_one_file_alone_can_be_completed(run, tmp_path):
    image = run.splits().test.pixels_NHWC[0]
    save_image(np.array(image), tmp_path / "one.png")
    assert (run.complete(str(tmp_path / "one.png"), samples=2) == run.complete([image], samples=2)).all()


def test_a_completion_follows_from_what_was_kept(run):
    """What is drawn lies nearer to the rest of the image that was given than to that of another one."""
    images = run.splits().test.pixels_NHWC
    drawn = run.complete(list(images), keep=0.75, samples=2, temperature=0.5)[:, :, 6:].astype(float)
    rest = images[:, None, 6:].astype(float)
    own, others = (np.abs(drawn - each).mean() for each in (rest, np.roll(rest, 1, axis=0)))
    assert own < 0.88 * others


def test_the_features_are_the_means_over_all_positions_of_every_layer(run, monkeypatch):
    pixels = run.splits().test.pixels_NHWC[:5]
    found = run.layer_features(pixels)
    assert [each.shape for each in found] == [(5, 48)] * 3
    codes = torch.from_numpy(run.palette.codes(pixels))
    tokens = torch.cat([torch.full((5, 1), 17), codes[:, :-1]], dim=1)
    with torch.inference_mode():
        embedded = run.model.trunk.embedding(tokens, torch.arange(64)[None])
        first = run.model.trunk.blocks[0](embedded, run.model.trunk._context(tokens, None, None))
    np.testing.assert_allclose(found[0], embedded.mean(1).numpy(), atol=1e-5)
    np.testing.assert_allclose(found[1], first.mean(1).numpy(), atol=1e-5)
    monkeypatch.setattr(run, "at_once", 2)
    np.testing.assert_allclose(run.layer_features(pixels), found, atol=1e-5)


def test_other_images_can_be_scored_and_noise_is_less_likely_than_digits(run, tmp_path):
    test = run.splits().test.pixels_NHWC[:20, ..., 0]
    noise = np.random.default_rng(1).permuted(test.reshape(20, -1), axis=1).reshape(test.shape)
    for name, images in {"digits": test, "noise": noise}.items():
        (tmp_path / name / "of no known class").mkdir(parents=True)
        for number, image in enumerate(images):
            Image.fromarray(image).save(tmp_path / name / "of no known class" / f"{number}.png")
    digits, shuffled = (run.evaluate([str(tmp_path / name)]) for name in ("digits", "noise"))
    assert digits.count == shuffled.count == 20
    assert shuffled.metrics["bits_per_pixel"] > digits.metrics["bits_per_pixel"] + 2


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
def test_bad_options_are_refused(run, options, says):
    with pytest.raises(UsageError) as caught:
        run.sample(**options)
    assert says in str(caught.value)


def test_an_image_to_complete_may_be_a_file(run, tmp_path):
    pixels = run.splits().test.pixels_NHWC[0]
    Image.fromarray(pixels[..., 0]).save(tmp_path / "a.png")
    assert (run.complete([tmp_path / "a.png"], samples=2) == run.complete([np.array(pixels)], samples=2)).all()
    with pytest.raises(RegardError, match="cannot be read"):
        run.complete([tmp_path / "missing.png"])


def test_nothing_to_complete_is_refused(run):
    with pytest.raises(UsageError, match="no image"):
        run.complete([])
