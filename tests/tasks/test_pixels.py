"""The pixel task: a tiny model learns the built-in digits for real; its palette; what its layers know of classes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import regard
from regard.cli.app import app
from regard.data.palette import Palette
from regard.errors import RegardError, UsageError
from regard.hardware import Hardware, seed_everything
from regard.recipes import resolve
from regard.recipes.writing import to_toml
from regard.tasks import pixels as pixels_module
from regard.training.folder import RunFolder

TINY = ["model.layers=1", "model.width=16", "model.heads=2", "model.feedforward=16", "training.images_per_batch=8"]


def bits_by_position(train: np.ndarray, test: np.ndarray, colours: int) -> float:
    """What a pixel costs to one who knows how often each colour stands at each position, and nothing of the others."""
    counts = np.stack([np.bincount(column, minlength=colours) + 0.1 for column in train.T])
    shares = counts / counts.sum(1, keepdims=True)
    return float(-np.log2(shares[np.arange(test.shape[1]), test]).mean())


# ---------------------------------------------------------------- what it learns


def test_it_learns_more_than_how_often_each_colour_stands_at_each_position(pixels):
    splits, metrics = pixels.splits(), pixels.folder.read_json("summary.json")["metrics"]
    codes = [pixels.palette.codes(images.pixels_NHWC) for images in (splits.train, splits.test)]
    known = bits_by_position(*codes, colours=17)
    assert 2.3 < known < 2.6  # of log2(17) = 4.1; one frequency for all positions: 3.0
    assert metrics["bits_per_pixel"] < known - 0.15
    assert metrics["bits_per_pixel"] == pytest.approx(metrics["loss"] / math.log(2))


def test_an_untrained_model_knows_nothing_of_the_colours(tmp_path):
    settings = resolve("digits-pixels", [*TINY, "model.initialisation=gpt2", "model.tie_embeddings=none"])
    folder = RunFolder.create(tmp_path / "run", to_toml(settings))
    task = pixels_module.Pixels(settings, folder, Hardware.choose(settings.system))
    task.prepare()
    seed_everything(1)
    task.model = task.build()
    assert task.test()["loss"] == pytest.approx(math.log(18), rel=0.05)  # 17 greys, and the start


def test_the_loss_is_the_mean_over_all_pixels_of_all_images(pixels):
    codes = torch.from_numpy(pixels.palette.codes(pixels.splits().test.pixels_NHWC))
    with torch.inference_mode():
        logits = pixels.model(torch.cat([torch.full((len(codes), 1), 17), codes[:, :-1]], dim=1))
    log_p = logits.log_softmax(-1).gather(-1, codes[..., None])
    assert pixels.evaluate().metrics["loss"] == pytest.approx(-log_p.mean().item(), rel=1e-5)


def test_validation_is_told_from_test(pixels):
    test, valid = pixels.evaluate(), pixels.evaluate(split="valid")
    assert (test.count, test.unit) == (len(pixels.splits().test), "images")
    best = min(record["valid_loss"] for record in pixels.folder.read_metrics() if "valid_loss" in record)
    assert valid.metrics["loss"] == pytest.approx(best, rel=1e-5)
    assert valid.metrics["loss"] != test.metrics["loss"]


def test_other_images_can_be_scored_and_noise_is_less_likely_than_digits(pixels, tmp_path):
    test = pixels.splits().test.pixels_NHWC[:20, ..., 0]
    noise = np.random.default_rng(1).permuted(test.reshape(20, -1), axis=1).reshape(test.shape)
    for name, images in {"digits": test, "noise": noise}.items():
        (tmp_path / name / "of no known class").mkdir(parents=True)
        for number, image in enumerate(images):
            Image.fromarray(image).save(tmp_path / name / "of no known class" / f"{number}.png")
    digits, shuffled = (pixels.evaluate([str(tmp_path / name)]) for name in ("digits", "noise"))
    assert digits.count == shuffled.count == 20
    assert shuffled.metrics["bits_per_pixel"] > digits.metrics["bits_per_pixel"] + 2


# ---------------------------------------------------------------- its palette


def test_config_json_and_palette_say_what_the_weights_need(pixels):
    config = pixels.folder.read_json("config.json")
    assert (config["architecture"], config["vocabulary"], config["start_id"]) == ("causal", 18, 17)
    assert len(pixels.model.to_logits.weight) == 18
    palette = Palette.from_json(pixels.folder.read_json("palette.json"), 1, "palette.json")
    assert palette.colours_KC.tolist() == config["palette"] == Palette.grey(17).colours_KC.tolist()


COLOUR = ["data.sample=", "data.images=.", "data.held_out=0.2", "images.colour=true", "images.size=6"]
COLOUR += ["pixels.palette=k-means", "training.steps=2", "training.validate_every=2"]


def photographs(folder: Path, count: int = 40) -> Path:
    """Images without labels: of blues, and of reds and greens."""
    generator = np.random.default_rng(1)
    folder.mkdir()
    for number in range(count):
        base = np.array([10, 20, 220] if number % 2 else [[200, 30, 10], [20, 180, 30]][number // 2 % 2])
        pixels = (base + generator.integers(-10, 11, (6, 6, 3))).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def coloured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of photographs in 12 colours."""
    folder = tmp_path_factory.mktemp("coloured")
    images = photographs(folder / "images")
    return regard.train("digits-pixels", *TINY, *COLOUR, "pixels.colours=12", out=folder / "run", data=images)


def test_a_resumed_run_keeps_its_palette_and_draws_in_its_colours(coloured):
    before = (coloured / "palette.json").read_bytes()
    regard.train(str(coloured), "training.steps=4", resume=True)
    assert (coloured / "palette.json").read_bytes() == before
    colours = json.loads(before)["colours"]
    assert len(colours) == 12
    assert all(pixel in colours for pixel in regard.load(coloured).sample(3).reshape(-1, 3).tolist())


def test_images_of_fewer_colours_than_asked_get_a_smaller_palette_and_it_is_said(tmp_path, capsys):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(36):
        pixels = np.zeros((6, 6, 3), np.uint8)
        pixels[number // 6, number % 6] = (255, 0, 0)
        pixels[number % 6, :2] = (0, 0, 9)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    run = regard.train("digits-pixels", *TINY, *COLOUR, "pixels.colours=64", out=tmp_path / "run", data=folder)
    assert len(regard.load(run).palette) == 3
    assert "pixels.colours = 64" in capsys.readouterr().err


def test_settings_of_classifiers_are_refused():
    with pytest.raises(UsageError, match="has no effect on the task 'pixels'"):
        resolve("digits-pixels", ["augmentation.mixup=0.2"])


# ---------------------------------------------------------------- what its layers know


def test_the_features_are_the_means_over_all_positions_of_every_layer(pixels, monkeypatch):
    images = pixels.splits().test.pixels_NHWC[:5]
    features = pixels._layer_features(images)
    assert [each.shape for each in features] == [(5, 48)] * 3
    codes = torch.from_numpy(pixels.palette.codes(images))
    tokens = torch.cat([torch.full((5, 1), 17), codes[:, :-1]], dim=1)
    with torch.inference_mode():
        embedded = pixels.model.trunk.embedding(tokens, torch.arange(64)[None])
    np.testing.assert_allclose(features[0], embedded.mean(1).numpy(), atol=1e-5)
    monkeypatch.setattr(pixels_module, "PIXELS_AT_ONCE", 2 * 64)
    np.testing.assert_allclose(pixels._layer_features(images), features, atol=1e-5)


def probe(run: Path, *options: str | Path | int):
    return CliRunner().invoke(app, ["probe", str(run), *map(str, options)])


def test_digits_are_read_better_from_a_layer_that_saw_their_shape_than_from_the_embedding(pixels, tmp_path):
    options = ["--train", 600, "-o", tmp_path / "probe.png", "--json"]
    result = json.loads(probe(pixels.folder.path, *options).stdout)
    accuracies = [each["accuracy"] for each in result["layers"]]
    assert len(accuracies) == 3
    assert (result["train_images"], result["test_images"]) == (600, len(pixels.splits().test))
    assert result["commonest_class"] < 20
    assert max(accuracies[1:]) > accuracies[0] + 10
    assert max(accuracies) > 70
    assert (tmp_path / "probe.png").read_bytes().startswith(b"\x89PNG")


def test_without_labels_there_is_nothing_to_probe(coloured):
    failed = probe(coloured).exception
    assert isinstance(failed, RegardError)
    assert "no classes" in failed.what and "None of them" in failed.why


def test_a_language_model_cannot_be_probed(tiny_run):
    failed = probe(tiny_run("language")).exception
    assert isinstance(failed, UsageError)
    assert "a model of pixels" in failed.why
