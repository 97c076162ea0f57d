"""A trained image classifier: its scores, its pictures, what it makes of odd files, and what can start from it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.errors import RegardError, UsageError
from regard.layers.positions import resample
from regard.recipes import resolve
from regard.tasks.classify_image import ClassifyImage
from regard.training.folder import RunFolder
from tiny import TINY_IMAGES, stripes


def test_it_has_learned_what_it_was_shown(image_classifier: ClassifyImage) -> None:
    evaluation = image_classifier.evaluate(baselines=False)
    assert evaluation.count == 60 and evaluation.metrics["accuracy"] == 100
    assert image_classifier.folder.read_json("summary.json")["metrics"]["accuracy"] == 100
    assert image_classifier.classes == ["across", "down", "slanted"]


def test_support_vectors_are_trained_on_the_same_images(image_classifier: ClassifyImage) -> None:
    evaluation = image_classifier.evaluate()
    [baseline] = evaluation.details["baselines"]
    assert baseline["features"] == 64 and baseline["accuracy"] > 60
    assert any(baseline["name"] in line for line in evaluation.notes)


def test_the_pictures_of_an_evaluation_are_there(image_classifier: ClassifyImage) -> None:
    details = image_classifier.evaluate(baselines=False).details
    for name in ("confusion_picture", "mistakes_picture"):
        with Image.open(details[name]) as picture:
            assert min(picture.size) > 200
    assert details["mistakes"] == []


def test_other_files_are_scored_in_the_same_forms(
    image_classifier: ClassifyImage, pictures: Path, tmp_path: Path
) -> None:
    evaluation = image_classifier.evaluate([str(pictures / "train")], baselines=False)
    assert evaluation.count == 270
    wrong = tmp_path / "wrong" / "down"
    wrong.mkdir(parents=True)
    Image.fromarray(stripes("across", 200, 0)).save(wrong / "a.png")
    evaluation = image_classifier.evaluate([str(tmp_path / "wrong")], baselines=False)
    assert evaluation.metrics["accuracy"] == 0
    assert (
        evaluation.details["mistakes"][0]["true"] == "down" and evaluation.details["mistakes"][0]["guessed"] == "across"
    )
    assert Path(evaluation.details["mistakes_picture"]).name == "mistakes-wrong.png"


def test_images_of_any_size_and_mode_are_classified(image_classifier: ClassifyImage, tmp_path: Path) -> None:
    large = Image.fromarray(stripes("down", 220, 0)).resize((64, 64), Image.Resampling.NEAREST)
    large.convert("RGB").save(tmp_path / "a.jpg")
    large.convert("RGBA").save(tmp_path / "b.png")
    large.convert("P").save(tmp_path / "c.gif")
    Image.fromarray(np.array(large, np.uint16) * 257).save(tmp_path / "d.png")
    guesses = image_classifier.classify(sorted(tmp_path.iterdir()))
    assert [guess.label for guess in guesses] == ["down"] * 4
    assert all(abs(sum(p for _, p in guess.all) - 1) < 1e-5 for guess in guesses)


def test_a_file_that_is_not_an_image_gets_a_reason_and_the_others_their_class(
    image_classifier: ClassifyImage, pictures: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.png").write_text("no image")
    good = pictures / "test" / "across" / "200.png"
    first, second, third = image_classifier.classify([good, tmp_path / "bad.png", good])
    assert first.label == third.label == "across"
    assert isinstance(second, str) and second


def test_a_corrupt_image_is_left_out_of_training_counted_and_named(pictures: Path, tmp_path: Path) -> None:
    for kind in ("across", "down"):
        folder = tmp_path / "data" / kind
        folder.mkdir(parents=True)
        for shade in range(100, 130):
            Image.fromarray(stripes(kind, shade, 0)).save(folder / f"{shade}.png")
    broken = tmp_path / "data" / "down" / "broken.png"
    broken.write_bytes((tmp_path / "data" / "down" / "100.png").read_bytes()[:40])
    settings = [
        *TINY_IMAGES,
        f"data.images={tmp_path / 'data'}",
        "data.held_out=0.2",
        "training.steps=20",
        "training.validate_every=20",
    ]
    out = regard.train("digits", *settings, out=tmp_path / "run")
    skipped = (out / "skipped_images.txt").read_text()
    assert "broken.png" in skipped and len(skipped.splitlines()) == 1


def test_a_class_that_training_has_no_image_of_is_named_before_training(pictures: Path, tmp_path: Path) -> None:
    folder = tmp_path / "test" / "zebra"
    folder.mkdir(parents=True)
    Image.fromarray(stripes("down", 100, 0)).save(folder / "1.png")
    settings = [*TINY_IMAGES, f'data.train=["{pictures / "train"}"]', f'data.test=["{tmp_path / "test"}"]']
    with pytest.raises(RegardError, match="zebra"):
        regard.train("digits", *settings, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_images_without_labels_cannot_be_scored(image_classifier: ClassifyImage, tmp_path: Path) -> None:
    for shade in (200, 210):
        Image.fromarray(stripes("down", shade, 0)).save(tmp_path / f"{shade}.png")
    with pytest.raises(RegardError, match="2 images have no label"):
        image_classifier.evaluate([str(tmp_path)], baselines=False)


def test_the_pictures_of_the_test_survive_an_evaluation_of_the_validation(image_classifier, pictures) -> None:
    own = Path(image_classifier.evaluate(baselines=False).details["confusion_picture"])
    before = own.stat().st_mtime_ns
    other = image_classifier.evaluate(split="valid", baselines=False).details["confusion_picture"]
    assert other.endswith("confusion-valid.png") and own.stat().st_mtime_ns == before


def test_one_file_is_classified_as_a_list_of_one_is(image_classifier, pictures: Path) -> None:
    path = pictures / "test" / "down" / "200.png"
    [guess] = image_classifier.classify(path)
    assert guess == image_classifier.classify([str(path)])[0]
    assert regard.classify(image_classifier.folder.path, [str(path)]) == ["down"]
    with pytest.raises(RegardError, match="cannot be read"):
        regard.classify(image_classifier.folder.path, ["missing.png"])


def test_others_may_read_the_weights(image_classifier: ClassifyImage) -> None:
    config, model = (image_classifier.folder.path / name for name in ("config.json", "model.safetensors"))
    assert model.stat().st_mode == config.stat().st_mode


# ---------------------------------------------------------------- starting from another run


def test_a_run_starts_from_another_at_another_resolution_with_other_classes(
    image_classifier: ClassifyImage, pictures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "two"
    for kind in ("down", "slanted"):
        (folder / kind).mkdir(parents=True)
        for shade in range(100, 160):
            Image.fromarray(stripes(kind, shade, shade % 4, side=16)).save(folder / kind / f"{shade}.png")
    own = [setting for setting in TINY_IMAGES if not setting.startswith("model.")]
    settings = [*own, f"data.images={folder}", "images.size=[16, 8]", "data.held_out=0.2", "training.steps=1"]
    settings += ["training.learning_rate=1e-9", "training.validate_every=1", "training.warmup=0"]
    out = regard.train("digits", *settings, out=tmp_path / "run", start_from=image_classifier.folder.path)
    tuned = regard.load(out)
    assert tuned.classes == ["down", "slanted"]
    assert tuned.scale == image_classifier.scale
    before, after = image_classifier.model, tuned.model
    assert after.patches.grid == (8, 4)
    expected = resample(before.patches.positions_RSD, (8, 4))
    assert torch.allclose(after.patches.positions_RSD, expected, atol=1e-6)
    assert torch.allclose(
        after.trunk.blocks[0].mixer.to_out.weight, before.trunk.blocks[0].mixer.to_out.weight, atol=1e-6
    )


def test_what_fits_is_judged_by_the_patches_of_the_run_that_is_started_from(tmp_path: Path) -> None:
    few = ["training.steps=1", "training.validate_every=1", "training.warmup=0", "training.images_per_batch=8"]
    small = [setting for setting in TINY_IMAGES if setting.startswith("model.")]
    thirds = regard.train("digits", *small, *few, "model.patch=3", "images.size=9", out=tmp_path / "thirds")
    tuned = regard.train("digits", *few, "images.size=15", start_from=thirds, out=tmp_path / "tuned")
    assert regard.load(tuned).model.patches.grid == (5, 5)
    assert regard.load(tuned).settings.training.start_from == str(thirds)
    with pytest.raises(UsageError, match="do not fit together") as caught:
        regard.train("digits", *few, "images.size=16", start_from=thirds, out=tmp_path / "other")
    assert "3 x 3" in caught.value.why


def test_only_an_image_classifier_can_be_started_from(image_classifier, classifier, pictures, tmp_path) -> None:
    with pytest.raises(UsageError, match="cannot be started from"):
        regard.train("digits", start_from=classifier.folder.path, out=tmp_path / "run")
    with pytest.raises(UsageError, match=r"model.width cannot be chosen"):
        regard.train("digits", "model.width=64", start_from=image_classifier.folder.path, out=tmp_path / "run")


# ---------------------------------------------------------------- from Python


def test_pixels_can_be_classified_as_well_as_files(image_classifier: ClassifyImage, pictures: Path) -> None:
    path = pictures / "test" / "down" / "200.png"
    pixels = np.asarray(Image.open(path))
    [from_file], [from_pixels] = image_classifier.classify(str(path)), image_classifier.classify([pixels])
    assert from_file == from_pixels


def test_examples_have_the_names_of_their_classes(tmp_path: Path) -> None:
    for number, name in enumerate(("red car", "red-car", "ß", "…")):
        (tmp_path / "data" / name).mkdir(parents=True)
        for shade in range(12):
            Image.fromarray(stripes("down", 10 * shade + number, 0)).save(tmp_path / "data" / name / f"{shade}.png")
    few = ["training.steps=1", "training.validate_every=1", "data.held_out_test=0.4"]
    run = regard.train("digits", *TINY_IMAGES, *few, f"data.images={tmp_path / 'data'}", out=tmp_path / "run")
    names = {path.name for path in (run / "samples").iterdir()}
    assert names == {"red-car.png", "class-2.png", "ß.png", "class-4.png"}


# ---------------------------------------------------------------- inside


def test_features_of_every_layer_are_means_of_its_tokens(image_classifier: ClassifyImage) -> None:
    pixels = image_classifier.splits().test.pixels_NHWC[:5]
    features = image_classifier._layer_features(pixels)
    assert [each.shape for each in features] == [(5, 32)] * 2
    scaled = image_classifier.scale.on(torch.device("cpu")).pixels(torch.from_numpy(np.array(pixels)))
    embedded = image_classifier.model.patches(scaled).mean(1)
    assert np.allclose(features[0], embedded.detach().numpy(), atol=1e-5)


def test_the_recipes_have_the_number_of_parameters_that_they_promise() -> None:
    for recipe, most in (("cifar10", 4_000_000), ("cifar10-swin", 4_000_000), ("mnist", 2_500_000)):
        task = ClassifyImage(resolve(recipe), RunFolder("nowhere"))
        task.classes = [str(digit) for digit in range(10)]
        count = sum(parameter.numel() for parameter in task.build().parameters())
        assert most / 2 < count <= most, (recipe, count)


def test_images_of_other_classes_are_not_scored_as_if_they_were_the_old_ones(tiny_run, pictures, tmp_path) -> None:
    shutil.copytree(pictures, tmp_path / "data")
    for split in ("train", "test"):
        (tmp_path / "data" / split / "across").rename(tmp_path / "data" / split / "sideways")
    with pytest.raises(RegardError, match="classes of the images are not those of"):
        regard.load(tiny_run("classify-image"), data=tmp_path / "data").evaluate(baselines=False)
