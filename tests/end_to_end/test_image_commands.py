"""The verbs for images: train, evaluate, classify, explain."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from command import regard
from tiny import TINY_IMAGES, stripes


def test_a_user_trains_a_classifier_of_their_own_folder(pictures: Path, tmp_path: Path) -> None:
    command = ["train", "digits", *TINY_IMAGES, f"data.images={pictures}", "--out", "run"]
    shown = regard(*command, cwd=tmp_path, curves=True)
    assert "accuracy 100" in shown.stdout and "regard classify run" in shown.stdout
    assert "an epoch is" in shown.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["task"] == "classify-image" and summary["metrics"].keys() == {"loss", "accuracy"}
    assert (tmp_path / "run" / "plots" / "curves.png").stat().st_size > 5000
    examples = tmp_path / "run" / "samples"
    assert sorted(path.name for path in examples.iterdir()) == ["across.png", "down.png", "slanted.png"]
    assert "regard explain run run/samples/across.png" in shown.stdout
    lines = regard("classify", tmp_path / "run", examples, "--top", "1").stdout.splitlines()
    assert all(Path(name).stem == label for name, label, _ in (line.split("\t") for line in lines)) and len(lines) == 3


def test_classify_prints_a_line_for_each_image_and_searches_folders(image_classifier, pictures: Path) -> None:
    shown = regard("classify", image_classifier.folder.path, pictures / "test")
    lines = [line.split("\t") for line in shown.stdout.splitlines()]
    assert len(lines) == 60
    assert all(Path(name).parent.name == label and len(rest) == 5 for name, label, *rest in lines)
    found = regard("classify", image_classifier.folder.path, pictures / "test", "--json", "--top", "2")
    first = json.loads(found.stdout.splitlines()[0])
    assert first["label"] == "across" and len(first["classes"]) == 2


def test_classify_goes_on_after_a_bad_image_and_exits_with_1(image_classifier, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_text("no image")
    good = pictures / "test" / "down" / "200.png"
    shown = regard("classify", image_classifier.folder.path, tmp_path / "bad.png", good, "--top", "1", code=1)
    bad, fine = shown.stdout.splitlines()
    assert bad == str(tmp_path / "bad.png") and fine.split("\t")[1] == "down"
    assert "1 of 2 images could not be read" in shown.stderr


@pytest.mark.parametrize("arguments", [[], ["missing.png"]])
def test_classify_without_a_readable_image_says_what_to_do(image_classifier, arguments, tmp_path: Path) -> None:
    shown = regard("classify", image_classifier.folder.path, *arguments, cwd=tmp_path, code=1 if arguments else 2)
    assert len(shown.error) == 3


def test_evaluate_prints_scores_and_writes_labels(image_classifier, tmp_path: Path) -> None:
    shown = regard("evaluate", image_classifier.folder.path, "-o", tmp_path / "labels.txt")
    assert "accuracy" in shown.stdout and "support vectors" in shown.stdout and "mistakes.png" in shown.stdout
    labels = [line.split("\t") for line in (tmp_path / "labels.txt").read_text().splitlines()]
    assert len(labels) == 60 and all(label in name for name, label in labels)  # test/down/200.png → down
    quick = json.loads(regard("evaluate", image_classifier.folder.path, "--no-baselines", "--json").stdout)
    assert {score["name"] for score in quick["scores"]} == quick["metrics"].keys()
    assert quick["images"] == 60 and "baselines" not in quick


def test_explain_draws_a_map_and_gives_its_numbers(image_classifier, tmp_path: Path) -> None:
    Image.fromarray(stripes("slanted", 220, 1, side=40)).save(tmp_path / "big.png")
    shown = regard("explain", image_classifier.folder.path, "big.png", "-o", "map.png", "--json", cwd=tmp_path)
    found = json.loads(shown.stdout)
    rollout = found["arrays"]["rollout"]["values"]
    assert found["label"] and len(rollout) == len(rollout[0]) == 4
    assert abs(sum(map(sum, rollout)) - 1) < 1e-4  # no tokens beside the patches: all is on them
    with Image.open(tmp_path / "map.png") as picture:
        assert min(picture.size) > 200


def test_explain_says_what_it_cannot_draw(image_classifier, pictures: Path, tmp_path: Path) -> None:
    image = pictures / "test" / "down" / "200.png"
    told = {
        "no words to align": [image, "--what", "alignment"],
        "A target has no effect": [image, "--target", "x"],
        "An input has no effect": [image, "--what", "positions"],
        "An image is missing": ["--what", "lens"],
        "There is no layer 9": [image, "--layer", "9"],
    }
    for says, arguments in told.items():
        error = regard("explain", image_classifier.folder.path, *arguments, "-o", tmp_path / "no.png", code=2).error
        assert len(error) == 3 and says in error[0]
    assert not list(tmp_path.iterdir())
    for arguments in (["missing.png"], [pictures]):
        assert len(regard("explain", image_classifier.folder.path, *arguments, code=1, cwd=tmp_path).error) == 3


def test_a_swin_is_explained_and_probed_too(pictures: Path, tmp_path: Path) -> None:
    swin = [
        "model.stages=[1, 1]",
        "model.window=2",
        "model.positions=none",
        "training.steps=2",
        "training.validate_every=2",
    ]
    regard("train", "digits", *TINY_IMAGES, *swin, f"data.images={pictures}", "--out", tmp_path / "swin")
    image = pictures / "test" / "down" / "200.png"
    found = json.loads(regard("explain", "swin", image, "-o", "map.png", "--json", cwd=tmp_path).stdout)
    assert abs(sum(map(sum, found["arrays"]["rollout"]["values"])) - 1) < 1e-4
    with Image.open(tmp_path / "map.png") as picture:
        assert min(picture.size) > 200
    layers = json.loads(regard("probe", "swin", "--json", cwd=tmp_path).stdout)["layers"]
    assert [layer["layer"] for layer in layers] == [0, 1, 2]


def test_names_with_tabs_leave_a_line_in_its_columns(image_classifier, tmp_path: Path) -> None:
    Image.fromarray(stripes("down", 220, 1)).save(tmp_path / "a\tb.png")
    [line] = regard("classify", image_classifier.folder.path, tmp_path / "a\tb.png", "--top", "1").stdout.splitlines()
    assert len(line.split("\t")) == 3


def test_probe_scores_each_layer_of_a_classifier(image_classifier, tmp_path: Path) -> None:
    shown = regard("probe", image_classifier.folder.path, "-o", "probe.png", "--json", cwd=tmp_path)
    layers = json.loads(shown.stdout)["layers"]
    assert [layer["layer"] for layer in layers] == [0, 1] and layers[-1]["accuracy"] == 100
    with Image.open(tmp_path / "probe.png") as picture:
        assert min(picture.size) > 200


def test_doctor_counts_images_of_each_class_and_those_on_two_sides(pictures: Path, tmp_path: Path) -> None:
    for split in ("train", "test"):
        for kind in ("across", "down"):
            place = tmp_path / "data" / split / kind
            place.mkdir(parents=True)
            for shade in range(100, 112):
                Image.fromarray(stripes(kind, shade, 0)).save(place / f"{shade}.png")
    (tmp_path / "data" / "train" / "down" / "broken.png").write_text("no image")
    settings = ['data.sample=""', f"data.images={tmp_path / 'data'}", "data.held_out=0.2"]
    found = json.loads(regard("doctor", "digits", *settings, "--json").stdout)
    data = found["data"]
    assert data["left_out"] == 1 and data["classes"]["across"]["test"] == 12
    assert data["test"]["images_also_in_train"] == data["train"]["images"]
    assert any("broken.png" in line for line in found["advice"])
    assert any("are also in train" in line for line in found["advice"])
    without_recipe = json.loads(regard("doctor", "--data", tmp_path / "data", "--json").stdout)
    assert without_recipe["data"]["classes"].keys() == data["classes"].keys()


def test_mixers_are_compared_on_images(pictures: Path, tmp_path: Path) -> None:
    settings = [*TINY_IMAGES, f"data.images={pictures}", "--vary", "model.mixer=attention,gru", "--seeds", "1,"]
    shown = regard("compare", "digits", *settings, "--out", tmp_path / "both", "--json")
    variants = json.loads(shown.stdout)["variants"]
    assert len(variants) == 2 and all(variant["metrics"]["accuracy"]["mean"] > 90 for variant in variants), variants


def test_a_run_that_starts_from_another_says_what_it_takes_over(
    image_classifier, pictures: Path, tmp_path: Path
) -> None:
    settings = [setting for setting in TINY_IMAGES if not setting.startswith("model.")]
    settings += [f"data.images={pictures}", "training.steps=2", "training.validate_every=2", "--out", tmp_path / "run"]
    shown = regard("train", "digits", *settings, "--from", image_classifier.folder.path)
    assert "not as in the recipe: model.layers = 1, model.width = 32" in " ".join(shown.stderr.split())
    refused = regard("train", "digits", *settings, "images.colour=true", "--from", image_classifier.folder.path, code=2)
    assert "images.colour = false" in refused.stderr


def test_a_run_is_scored_and_probed_where_its_data_has_moved_to(pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(pictures, tmp_path / "here" / "pictures")
    settings = [*TINY_IMAGES, "data.images=pictures", "--data", tmp_path / "here", "--out", tmp_path / "run"]
    regard("train", "digits", *settings, "training.steps=50")
    (tmp_path / "here").rename(tmp_path / "there")
    missing = regard("evaluate", tmp_path / "run", "--no-baselines", code=1)
    assert "--data DIR" in missing.stderr
    found = regard("evaluate", tmp_path / "run", "--no-baselines", "--data", tmp_path / "there", "--json")
    assert json.loads(found.stdout)["images"] == 60
    assert "--data DIR" in regard("probe", tmp_path / "run", code=1).stderr
    found = regard("probe", tmp_path / "run", "--data", tmp_path / "there", "--json")
    assert json.loads(found.stdout)["test_images"] == 60
