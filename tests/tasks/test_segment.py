"""Segmentation: it learns with every head, and gives masks back in the size of the image."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from command import regard as command
from regard.data.batch import DataState
from regard.data.mask_cache import NOTHING, mask_splits
from regard.data.samples import scenes
from regard.errors import UsageError
from regard.hardware import Hardware
from regard.run import open_run, read_recipe

SHAPES = ['data.sample=""', "data.images=.", "data.ignore=9", 'data.classes=["ground", "block", "bar"]']
SHAPES += ["data.held_out=0.1", "images.size=16", "images.colour=false", "augmentation.crop=1", "augmentation.flip=0.5"]
SHAPES += ["model.layers=2", "model.width=32", "model.heads=2", "model.feedforward=64", "model.patch=2"]
SHAPES += ["training.steps=100", "training.validate_every=100", "training.warmup=5", "training.images_per_batch=16"]
SHAPES += ["training.ema=0.8", "model.query_key_norm=true"]
HEADS = {
    "class-tokens": ["model.head=class-tokens", "model.head_layers=1"],
    "swin": ["model.stages=[2, 2]", "model.window=4", "model.positions=none", "model.width=16"],
}


@pytest.fixture(scope="module")
def run(shapes, train_once):
    return train_once("segment", "scenes-segment", *SHAPES, data=shapes)


@pytest.mark.parametrize("head", ["class-tokens", "swin"])
def test_other_heads_learn_too(head, shapes, tmp_path):
    out = regard.train("scenes-segment", *SHAPES, *HEADS[head], out=tmp_path / "run", data=shapes)
    metrics = json.loads((out / "summary.json").read_text())["metrics"]
    assert metrics["miou"] > 60


def test_it_learns_and_beats_the_mean_mask(run):
    result = run.evaluate()
    assert result.metrics["miou"] > 85 and result.metrics["accuracy"] > 95
    [baseline] = result.details["baselines"]
    assert baseline["miou"] < 50 < result.metrics["miou"]
    assert [each["label"] for each in result.details["classes"]] == ["ground", "block", "bar"]
    with Image.open(result.details["masks_picture"]) as drawn:
        assert drawn.size[0] > 300
    assert result.count == 12


def test_the_mask_of_an_image_has_its_size_and_the_numbers_of_the_files(run, shapes):
    image, mask = (np.array(Image.open(shapes / "test" / kind / "3.png")) for kind in ("images", "masks"))
    large, large_mask = (np.kron(each, np.ones((3, 2), np.uint8)) for each in (image, mask))
    [own], [enlarged] = run.segment([image]), run.segment([large])
    assert own.mask_hw.shape == mask.shape and enlarged.mask_hw.shape == large.shape
    assert (own.mask_hw == mask)[mask != 9].mean() > 0.9
    assert (enlarged.mask_hw == large_mask)[large_mask != 9].mean() > 0.9
    assert sum(own.shares.values()) == pytest.approx(1)
    assert own.shares["bar"] == pytest.approx((own.mask_hw == 2).mean())
    assert run.segment([shapes / "nowhere.png"]) == ["It is missing."]


def test_the_command_writes_masks_and_overlays(run, shapes, tmp_path):
    image = shapes / "test" / "images" / "3.png"
    (tmp_path / "bad.png").write_bytes(b"no image")
    result = command("segment", run.folder.path, image, "-o", tmp_path / "out", "--json")
    told = json.loads(result.stdout)
    assert told["image"] == str(image) and told["shares"]["ground"] > 0.3
    with Image.open(told["mask"]) as written:
        assert written.mode == "P"
        np.testing.assert_array_equal(np.array(written), run.segment([image])[0].mask_hw)
    overlay = np.array(Image.open(tmp_path / "out" / "3-overlay.png"))
    original, mask = np.array(Image.open(image)), np.array(Image.open(told["mask"]))
    assert (overlay[mask == 0] == original[mask == 0][:, None]).all()
    assert (overlay[mask == 1] != original[mask == 1][:, None]).any(-1).all()

    several = command("segment", run.folder.path, tmp_path / "bad.png", image, "-o", tmp_path / "more", code=1)
    assert "bad.png" in several.stderr and "1 of 2 images" in several.stderr
    assert (tmp_path / "more" / "3.png").is_file()
    assert "No image is named" in command("segment", run.folder.path, code=2).stderr


def test_an_image_of_many_pixels_has_a_whole_mask_and_a_smaller_overlay(run, tmp_path):
    Image.fromarray(np.zeros((40, 5000), np.uint8)).save(tmp_path / "wide.png")
    command("segment", run.folder.path, tmp_path / "wide.png", "-o", tmp_path / "out")
    with (
        Image.open(tmp_path / "out" / "wide.png") as mask,
        Image.open(tmp_path / "out" / "wide-overlay.png") as overlay,
    ):
        assert mask.size == (5000, 40) and overlay.size == (4096, 33)


def test_the_loss_is_over_known_pixels_alone_after_they_have_moved(run, shapes):
    task = open_run(run.folder.path, shapes)
    task.hardware = Hardware.choose(task.settings.system)
    task.settings = task.settings.with_section("augmentation", crop=3, flip=1.0)
    task.prepare()
    task.model = task.build().eval()
    batch, _ = next(task.stream.batches(DataState()))
    assert batch.labels.dtype == torch.uint8 and batch.targets == int((batch.labels != NOTHING).sum())
    # With all classes alike, each known pixel costs log 3; what moved out, or was unknown, costs nothing.
    known = round(task.loss(batch).item() / np.log(3))
    assert 0.5 * batch.targets < known < batch.targets
    nothing = type(batch)(torch.full_like(batch.labels, NOTHING), batch.pixels_BHWC, batch.keys_B)
    assert task.loss(nothing).item() == 0


def test_a_classifier_of_images_can_be_started_from(image_classifier, shapes, tmp_path):
    own = [setting for setting in SHAPES if not setting.startswith("model.")]
    source = image_classifier.folder.path
    out = regard.train("scenes-segment", *own, "training.steps=2", "training.validate_every=2", "training.warmup=0",
                       out=tmp_path / "run", data=shapes, start_from=source)  # fmt: skip
    assert open_run(out).settings.model.width == 32
    assert (out / "scale.json").read_bytes() == (source / "scale.json").read_bytes()


def test_scenes_are_read_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(scenes, "COUNTS", {"train": 20, "valid": 2, "test": 3})
    settings = read_recipe("scenes-segment", [f"data.cache={tmp_path}", "images.colour=true"])
    splits = mask_splits(settings.data, settings.images)
    assert splits.classes == scenes.CLASSES
    for side, images in (("train", splits.train), ("valid", splits.valid), ("test", splits.test)):
        assert len(images) == scenes.COUNTS[side]
        made = {f"{side} scene #{number}": scenes.scene(side, number) for number in range(len(images))}
        for number, name in enumerate(images.names):
            np.testing.assert_array_equal(images.pixels_NHWC[number], made[name].pixels_HWC)
            np.testing.assert_array_equal(images.classes(slice(None))[number], made[name].mask_HW)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["data.values=[1, 1]"], "twice"),
        (["data.values=[1, 255]"], "both name 255"),
        (["data.values=[1, 2]", 'data.classes=["a"]'], "1 classes"),
        (["model.head=class-tokens", "model.mixer=gru"], "class-tokens"),
        (["model.patch=5"], "cannot be cut into patches"),
    ],
)
def test_settings_that_do_not_agree(changes, says):
    with pytest.raises(UsageError) as caught:
        read_recipe("scenes-segment", changes)
    assert says in caught.value.what + caught.value.why
