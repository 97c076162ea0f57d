"""The pixel task: a tiny model learns the built-in digits for real, and its run can be used."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from regard.experiment import train
from typer.testing import CliRunner

import regard
from regard.cli.app import app
from regard.data.image_cache import image_splits
from regard.data.palette import Palette
from regard.errors import RegardError, UsageError
from regard.hardware import Hardware
from regard.recipes import resolve
from regard.tasks.pixels import PixelTask, measure
from regard.training.folder import RunFolder
from regard.training.loop import Interrupted, Trainer

TINY = ["model.layers=2", "model.width=48", "model.heads=2", "model.feedforward=96", "model.dropout=0.0"]
TINY += ["training.images_per_batch=16", "training.warmup=10", "training.log_every=20", "training.validate_every=60"]
TINY += ["model.positions=learned"]  # which are quicker at the start


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 steps, which are little more than one look at each digit."""
    return regard.train("digits-pixels", *TINY, "training.steps=120", out=tmp_path_factory.mktemp("runs") / "digits")


def summary(run: Path) -> dict:
    return json.loads((run / "summary.json").read_text())


def bits_by_place(train: np.ndarray, test: np.ndarray, colours: int) -> float:
    """What a pixel costs to one who knows how often each colour stands at each place, and nothing of the others."""
    counts = np.stack([np.bincount(column, minlength=colours) + 0.1 for column in train.T])
    shares = counts / counts.sum(1, keepdims=True)
    return float(-np.log2(shares[np.arange(test.shape[1]), test]).mean())


def test_a_tiny_model_learns_more_than_how_often_each_colour_stands_at_each_place(run):
    loaded = regard.load(run)
    splits = loaded.splits()
    codes = [loaded.palette.codes(images.pixels_NHWC) for images in (splits.train, splits.test)]
    known = bits_by_place(*codes, colours=17)
    assert 2.3 < known < 2.6  # of log2(17) = 4.1; one frequency for all places: 3.0
    assert summary(run)["metrics"]["bits_per_pixel"] < known - 0.15


def test_bits_are_nats_in_another_unit(run):
    found = summary(run)["metrics"]
    assert found["bits_per_pixel"] == pytest.approx(found["loss"] / math.log(2))


def test_an_untrained_model_knows_nothing_of_the_colours(tmp_path):
    config = resolve("digits-pixels", [*TINY, "model.initialisation=gpt2", "model.tie_embeddings=none"])
    hardware = Hardware.choose(config.system)
    task = PixelTask(config, RunFolder.create(tmp_path / "run", config), hardware)
    torch.manual_seed(1)
    found = measure(task.build(), task.data.test.pixels_NHWC, task.palette, config, hardware)
    assert found["loss"] == pytest.approx(math.log(18), rel=0.05)  # 17 greys, and the start


def test_the_loss_is_the_mean_over_all_pixels_of_all_images(run):
    loaded = regard.load(run)
    codes = torch.from_numpy(loaded.palette.codes(loaded.splits().test.pixels_NHWC))
    with torch.inference_mode():
        logits = loaded.model(torch.cat([torch.full((len(codes), 1), 17), codes[:, :-1]], dim=1))
    log_p = logits.log_softmax(-1).gather(-1, codes[..., None])
    assert loaded.evaluate().metrics["loss"] == pytest.approx(-log_p.mean().item(), rel=1e-5)


def test_the_run_scores_what_its_summary_says_and_tells_validation_from_test(run):
    loaded = regard.load(run)
    found = loaded.evaluate()
    assert found.metrics == summary(run)["metrics"]
    assert (found.count, found.counted) == (len(loaded.splits().test), "images")
    records = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    best = min(record["valid_loss"] for record in records if "valid_loss" in record)
    assert loaded.evaluate(split="valid").metrics["loss"] == pytest.approx(best, rel=1e-5)


def test_config_json_and_palette_say_what_the_weights_need(run):
    found = json.loads((run / "config.json").read_text())
    assert (found["architecture"], found["vocabulary"], found["start_id"]) == ("causal", 18, 17)
    assert len(regard.load(run).model.to_logits.weight) == 18
    palette = Palette.from_json(json.loads((run / "palette.json").read_text()))
    assert palette.colours_KC.tolist() == found["palette"] == Palette.grey(17).colours_KC.tolist()


def test_a_stopped_and_resumed_training_gives_the_same_weights(tmp_path, monkeypatch):
    few = [*TINY, "training.steps=12", "training.validate_every=6", "augmentation.crop=1", "augmentation.flip=0.5"]
    whole = regard.train("digits-pixels", *few, out=tmp_path / "whole")
    original = Trainer._update

    def stop_at_8(self, step, batch):
        self.stop_asked = step == 8
        return original(self, step, batch)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Trainer, "_update", stop_at_8)
        regard.train("digits-pixels", *few, out=tmp_path / "stopped")
    resumed, found = train("digits-pixels", few, out=tmp_path / "stopped", resume=True)
    assert (resumed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert found["metrics"] == summary(whole)["metrics"]


def photographs(folder: Path, count: int = 40) -> Path:
    """Images of two classes: of blues, and of reds and greens."""
    generator = np.random.default_rng(1)
    for number in range(count):
        kind = "sea" if number % 2 else "field"
        base = np.array([10, 20, 220] if number % 2 else [[200, 30, 10], [20, 180, 30]][number // 2 % 2])
        pixels = (base + generator.integers(-10, 11, (6, 6, 3))).clip(0, 255).astype(np.uint8)
        (folder / kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / kind / f"{number}.png")
    return folder


COLOUR = ["data.sample=", "data.images=.", "data.held_out=0.2", "images.colour=true", "images.size=6"]
COLOUR += ["pixels.palette=k-means", "training.steps=4", "training.validate_every=2"]


def test_a_resumed_run_keeps_its_palette(tmp_path):
    folder = photographs(tmp_path / "images")
    run = regard.train("digits-pixels", *TINY, *COLOUR, "pixels.colours=12", out=tmp_path / "run", data=folder)
    before = (run / "palette.json").read_bytes()
    regard.train(str(run), "training.steps=6", resume=True)
    assert (run / "palette.json").read_bytes() == before
    drawn = regard.load(run).sample(3)
    colours = json.loads(before)["colours"]
    assert len(colours) == 12
    assert all(pixel in colours for pixel in drawn.reshape(-1, 3).tolist())


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


def test_a_run_cannot_be_resumed_with_another_palette(run):
    with pytest.raises(UsageError, match=r"pixels\.colours"):
        train("digits-pixels", [*TINY, "training.steps=120", "pixels.colours=9"], out=run, resume=True)


def test_settings_of_classifiers_are_refused():
    with pytest.raises(UsageError, match="has no effect on the task 'pixels'"):
        resolve("digits-pixels", ["augmentation.mixup=0.2"])


# --- The command line ------------------------------------------------------------------------------------


def command(*arguments: str | Path):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def digit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A test image in a file."""
    settings = resolve("digits-pixels")
    pixels = image_splits(settings.data, settings.images).test.pixels_NHWC[0, ..., 0]
    path = tmp_path_factory.mktemp("digit") / "digit.png"
    Image.fromarray(pixels).save(path)
    return path


def test_generate_draws_a_picture_that_is_the_same_every_time(run, tmp_path):
    first, again, other = (tmp_path / name for name in ("1.png", "2.png", "3.png"))
    shown = command("generate", run, "--samples", 4, "-o", first)
    assert shown.exit_code == 0 and shown.stdout.strip() == str(first)
    found = json.loads(command("generate", run, "--samples", 4, "-o", again, "--json").stdout)
    assert found == {"picture": str(again), "samples": 4, "seed": 1}
    command("generate", run, "--samples", 4, "--seed", 2, "-o", other)
    assert first.read_bytes() == again.read_bytes() != other.read_bytes()


def test_generate_completes_images(run, digit, tmp_path):
    picture = tmp_path / "completed.png"
    options = ["--complete", digit, "--complete", digit, "--keep", 0.25, "--samples", 3, "-o", picture, "--json"]
    found = json.loads(command("generate", run, *options).stdout)
    assert (found["samples"], found["kept_rows"], found["completed"]) == (3, 2, [str(digit)] * 2)
    width, height = Image.open(picture).size
    assert width / height == pytest.approx(5 / 2, rel=0.2)  # given, kept and three samples, of two images


def test_completions_of_many_images_make_no_strip(run, digit, tmp_path):
    picture = tmp_path / "completed.png"
    command("generate", run, *["--complete", digit] * 12, "--samples", 1, "-o", picture)
    width, height = Image.open(picture).size
    assert width / height == pytest.approx(6 / 6, rel=0.2)  # two groups of three side by side, six rows


def test_many_completions_of_one_image_make_no_strip(run, digit, tmp_path):
    picture = tmp_path / "completed.png"
    command("generate", run, "--complete", digit, "--samples", 62, "-o", picture)
    width, height = Image.open(picture).size
    assert width / height == pytest.approx(1, rel=0.2)  # 64 images with what was given and kept


TEXT_ONLY = ["--prompt a", "--stop a", "--top 3", "--modes 4", "--max-tokens 9", "--min-p 0.1"]
TEXT_ONLY += ["--repetition-penalty 2"]


@pytest.mark.parametrize("options", TEXT_ONLY)
def test_options_about_texts_are_refused(run, options):
    failed = command("generate", run, *options.split()).exception
    assert isinstance(failed, UsageError)
    assert options.split()[0] in failed.what and "texts" in failed.why


@pytest.mark.parametrize("options", ["--complete a.png", "--keep 0.5", "-o a.png"])
def test_options_about_images_are_refused_with_a_language_model(language, options):
    failed = command("generate", language.folder.path, *options.split()).exception
    assert isinstance(failed, UsageError)
    assert options.split()[0] in failed.what and "images" in failed.why


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--samples 0", "0 images"),
        ("--seed -1", "seed"),
        ("--keep 0.5", "--keep has no effect"),
        ("-o a.jpg", "not a PNG"),
        ("--temperature 0 --top-k 3", "--top-k has no effect"),
        ("--complete {digit} --keep 1", "1 of an image"),
        ("--complete {digit} --keep 0", "0 of an image"),
        ("--top-p 2", "top_p"),
    ],
)
def test_options_that_cannot_be_met_are_refused(run, digit, options, says):
    failed = command("generate", run, *options.format(digit=digit).split()).exception
    assert isinstance(failed, UsageError)
    assert says in str(failed)


@pytest.mark.parametrize(("content", "says"), [(None, "missing"), (b"", "empty"), (b"no image", "no image")])
def test_an_image_that_cannot_be_read_is_told(run, tmp_path, content, says):
    path = tmp_path / "bad.png"
    if content is not None:
        path.write_bytes(content)
    failed = command("generate", run, "--complete", path).exception
    assert isinstance(failed, RegardError)
    assert str(path) in failed.what and says in failed.why


def test_probe_reads_digits_better_from_a_layer_that_saw_their_shape_than_from_the_embedding(run, tmp_path):
    options = ["--train", 600, "-o", tmp_path / "probe.png", "--json"]
    found = json.loads(command("probe", run, *options).stdout)
    accuracies = [each["accuracy"] for each in found["layers"]]
    assert len(accuracies) == 3
    assert (found["train_images"], found["test_images"]) == (600, len(regard.load(run).splits().test))
    assert found["commonest_class"] < 20
    assert max(accuracies[1:]) > accuracies[0] + 10
    assert max(accuracies) > 70
    assert (tmp_path / "probe.png").read_bytes().startswith(b"\x89PNG")


def test_probe_without_labels_says_so(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for path in photographs(tmp_path / "labelled").rglob("*.png"):
        path.rename(folder / path.name)
    run = regard.train("digits-pixels", *TINY, *COLOUR, out=tmp_path / "run", data=folder)
    failed = command("probe", run).exception
    assert isinstance(failed, RegardError)
    assert "no classes" in failed.what and "None of them" in failed.why


def test_probe_refuses_a_language_model(language):
    failed = command("probe", language.folder.path).exception
    assert isinstance(failed, UsageError)
    assert "a model of pixels" in failed.why
