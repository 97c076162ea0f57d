"""A detector that is trained for real, on rectangles."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import regard
from command import regard as command
from regard.cli.app import app
from regard.data.batch import DataState
from regard.errors import RegardError, UsageError
from regard.hardware import Hardware
from regard.run import open_run, read_recipe

SETTINGS = [
    "data.sample=",
    "data.train=train.jsonl",
    "data.test=test.jsonl",
    "data.held_out=0.1",
    "images.size=24",
    "images.fit=pad",
    "augmentation.crop=2",
    "augmentation.flip=0.5",
    "model.layers=2",
    "model.width=32",
    "model.heads=2",
    "model.feedforward=64",
    "model.patch=4",
    "training.images_per_batch=16",
    "training.warmup=10",
    "training.learning_rate=0.005",
    "training.ema=0.9",
]


@pytest.fixture(scope="session")
def detector(boxed: Path, train_once: Callable[..., Any]) -> Any:
    steps = ["training.steps=240", "training.validate_every=240"]
    return train_once("detector", "scenes-detect", *SETTINGS, *steps, data=boxed)


def test_it_learns_to_find_rectangles(detector):
    metrics = detector.evaluate().metrics
    assert metrics["ap50"] > 40  # untrained: 1 or 2
    picture = detector.folder.plots / "boxes.png"
    assert Image.open(picture).width > 1000


def test_boxes_are_in_pixels_of_the_image_whatever_its_size(detector, boxed, tmp_path):
    with (boxed / "test.jsonl").open() as file:
        records = [json.loads(line) for line in file]
    record = next(record for record in records if len(record["boxes"]) == 1)
    small = Image.open(boxed / record["image"])
    large = small.resize((small.width * 10, small.height * 10), Image.Resampling.NEAREST)
    large.save(tmp_path / "large.png")
    found, tenfold = detector.detect([boxed / record["image"], np.array(large)], threshold=0.2)
    assert [box.label for box in found] == [box.label for box in tenfold]
    for one, ten in zip(found, tenfold, strict=True):
        np.testing.assert_allclose(np.array(one.box) * 10, ten.box, atol=8)
    true = np.array(record["boxes"][0])
    assert found[0].label == record["labels"][0]
    np.testing.assert_allclose(found[0].box, true, atol=2.5)


def test_the_command_draws_boxes_and_writes_them(detector, boxed, tmp_path):
    names = [boxed / "images" / f"test-{number}.png" for number in (1, 2)]
    result = CliRunner().invoke(app, ["detect", str(detector.folder.path), *map(str, names), "-o", str(tmp_path / "o")])
    assert result.exit_code == 0, result.output
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert rows and all(len(row) == 7 and re.fullmatch(r"0\.\d{3}|1\.000", row[2]) for row in rows)
    written = json.loads((tmp_path / "o" / "found.json").read_text())
    assert [entry["image"] for entry in written] == [str(name) for name in names]
    listed = [[box["label"], round(box["score"], 3)] for entry in written for box in entry["found"]]
    assert listed == [[row[1], float(row[2])] for row in rows]
    for name, entry in zip(names, written, strict=True):
        drawn, plain = Image.open(entry["picture"]).convert("RGB"), Image.open(name).convert("RGB")
        times = drawn.width // plain.width
        assert times > 1 and drawn.size == (plain.width * times, plain.height * times)
        assert entry["found"] and (np.array(drawn).std(-1) > 30).any()  # boxes are in colour, the image is grey
    as_json = CliRunner().invoke(
        app, ["detect", str(detector.folder.path), str(names[0]), "--json", "--threshold", "0"]
    )
    [shown] = map(json.loads, as_json.stdout.splitlines())
    assert len(shown["found"]) > len(written[0]["found"])


def test_bad_images_and_options_are_named(detector, boxed, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no image")
    good = boxed / "images" / "test-1.png"
    result = CliRunner().invoke(app, ["detect", str(detector.folder.path), str(tmp_path / "bad.png"), str(good)])
    assert isinstance(result.exception, RegardError) and "1 of 2 images" in result.exception.what
    assert str(good) in result.stdout
    with pytest.raises(UsageError, match="threshold"):
        detector.detect(good, threshold=1.5)
    result = CliRunner().invoke(app, ["detect", str(detector.folder.path), str(good), "--threshold", "7"])
    assert isinstance(result.exception, UsageError)


def test_it_is_scored_on_other_files(detector, boxed, tmp_path):
    whole = detector.evaluate([str(boxed / "test.jsonl")]).metrics
    assert whole["ap50"] == pytest.approx(detector.evaluate().metrics["ap50"])
    named = detector.evaluate([str(boxed / "images"), str(boxed / "test.jsonl")]).metrics
    assert named["ap50"] == pytest.approx(whole["ap50"])


def test_wrong_boxes_are_counted_named_and_left_out(boxed, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "images").symlink_to(boxed / "images")
    lines = (boxed / "train.jsonl").read_text().splitlines()
    record = json.loads(lines[1])
    record["boxes"] += [[3, 3, 3, 9], [90, 90, 99, 99]]
    record["labels"] += ["wide", "high"]
    (folder / "train.jsonl").write_text("\n".join([lines[0], json.dumps(record), *lines[2:]]) + "\n")
    (folder / "test.jsonl").write_text((boxed / "test.jsonl").read_text())
    steps = ["training.steps=1", "training.validate_every=1"]
    out = command(
        "train", "scenes-detect", *SETTINGS, *steps, "--data", folder, "--out", tmp_path / "run", cwd=tmp_path
    )
    assert "Left out: 2 boxes" in " ".join(out.stderr.split())
    skipped = (tmp_path / "run" / "skipped_boxes.txt").read_text().splitlines()
    assert [line.partition(": ")[2] for line in skipped] == ["box 3 has no size", "box 4 lies outside of the image"]


def test_a_set_head_learns_and_is_not_captured(boxed, tmp_path):
    steps = ["model.head=set", "model.queries=6", "training.steps=60", "training.validate_every=60"]
    steps += ["training.log_every=10"]
    run = regard.load(regard.train("scenes-detect", *SETTINGS, *steps, out=tmp_path / "run", data=boxed))
    assert not run.captured and regard.load(run.folder.path).detect(boxed / "images" / "test-1.png", 0.0)[0]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < 0.8 * losses[0]
    assert len(run.detect([boxed / "images" / "test-1.png"], 0.0)[0]) <= 100


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["model.stages=[1, 1]", "model.positions=none", "model.window=4"], "one grid of patches"),
        (["model.patch=5"], "cannot be cut into patches"),
        (["data.boxes=a.jsonl"], "has its own boxes"),
        (["training.select=accuracy"], "is not measured"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, says):
    with pytest.raises(UsageError) as caught:
        read_recipe("scenes-detect", settings)
    assert says in " ".join([caught.value.what, caught.value.why, caught.value.fix])


def test_boxes_move_with_the_pixels(detector, boxed):
    """Rectangles are bright: after augmentation, every box that is left is still around bright pixels alone."""
    from regard.data.geometry import move_boxes

    task = open_run(detector.folder.path)
    task.hardware = Hardware.choose(task.settings.system)
    task.prepare()
    batch, _ = next(task.stream.batches(DataState()))
    images_BCHW, _ = task.augment(batch.pixels_BHWC, batch.keys_B)
    moved_BM4, there_BM = move_boxes(batch.boxes_BM4, batch.labels >= 0, task.augment.motion(batch.keys_B), 24, 24)
    assert not moved_BM4.equal(batch.boxes_BM4) and there_BM.sum() > 5
    for image, number in there_BM.nonzero().tolist():
        x0, y0, x1, y1 = moved_BM4[image, number].round().long().tolist()
        inside = images_BCHW[image, 0, y0:y1, x0:x1]
        assert torch.quantile(inside, 0.2) > 0.5


def test_any_box_that_is_found_can_be_explained(detector, boxed):
    """Their number, order, classes and scores are those of `detect`."""
    paths = sorted((boxed / "images").glob("test-*.png"))[:8]
    counts = []
    for path, found in zip(paths, detector.detect(paths), strict=True):
        counts.append(len(found))
        for number, box in enumerate(found, 1):
            traced = detector.trace(path, box=number)
            which = f"box {number} of {len(found)}" if len(found) > 1 else "the surest box"
            assert traced.output_text == f"{box.label}, {which}, {box.score:.2f}"
            assert (len(traced.subject.boxes), traced.subject.box) == (max(1, len(found)), number - 1)
            assert float(traced.p_AW[0, traced.subject.answers[0].token]) == pytest.approx(box.score, abs=1e-4)
            assert traced.contributions().notes["error"] < 1e-4
    assert max(counts) > 1
    path, count = paths[int(np.argmax(counts))], max(counts)
    for wrong in (0, count + 1, -1, "2", 1.5):
        with pytest.raises(
            UsageError, match=rf"There is no box {wrong}\.\n{count} can be explained.*\nUse 1 to {count}"
        ):
            detector.trace(path, box=wrong)
    assert torch.equal(detector.trace(path).logits_AW, detector.trace(path, box=1).logits_AW)


def test_where_no_box_is_sure_the_surest_is_explained(detector, boxed, monkeypatch):
    monkeypatch.setattr("regard.tasks.detect.SURE", 0.999)
    path = boxed / "images" / "test-1.png"
    assert detector.detect(path, threshold=0.999) == [[]]
    traced = detector.trace(path)
    [[surest, *_]] = detector.detect(path, threshold=0.0)
    assert traced.output_text == f"{surest.label}, the surest box, {surest.score:.2f}"
    assert len(traced.subject.boxes) == 1


def test_the_command_explains_a_box(detector, boxed, tmp_path):
    counts = {path: len(detector.detect(path)[0]) for path in (boxed / "images").glob("test-*.png")}
    path = max(counts, key=lambda each: counts[each])
    told = [
        CliRunner().invoke(app, ["explain", str(detector.folder.path), str(path), "-o", str(tmp_path / name), *box])
        for name, box in (
            ("one.json", []),
            ("two.json", ["--box", "2"]),
            ("none.json", ["--box", str(counts[path] + 1)]),
        )
    ]
    assert [each.exit_code for each in told[:2]] == [0, 0] and told[2].exit_code
    texts = [json.loads((tmp_path / name).read_text())["output"] for name in ("one.json", "two.json")]
    assert texts == [detector.trace(path, box=box).output_text for box in (1, 2)]


@pytest.mark.parametrize("cells", [1, 2])
def test_a_box_is_explained_from_the_patch_it_is_read_from(detector, boxed, tmp_path, cells):
    shown = detector.explain(str(boxed / "images" / "test-1.png"))
    shown.save(tmp_path / "map.png")
    [[surest, *_]] = detector.detect([boxed / "images" / "test-1.png"], threshold=0.0)
    count = len(detector.detect([boxed / "images" / "test-1.png"])[0])
    which = f"box 1 of {count}" if count > 1 else "the surest box"
    assert shown.output_text == f"{surest.label}, {which}, {surest.score:.2f}"
    rollout = shown.arrays[-1]
    assert rollout.values.shape == (6, 6) and rollout.values.sum() == pytest.approx(1, abs=1e-4)
    assert Image.open(tmp_path / "map.png").width > 300
    from regard.models.detector import make_detector

    settings = detector.settings.model.model_copy(update={"cells": cells})
    model = make_detector(settings, 24, 24, 3, 2).eval()
    torch.nn.init.normal_(model.to_cells.weight, std=0.1)
    one, other = torch.rand(2, 1, 3, 24, 24)
    for row, column in ((0, 0), (2, 3), (5, 5)):  # the cells of a patch are those that its token decides
        token = model.patches.before + row * 6 + column
        x_BTD = torch.randn(1, model.patches.before + 36, 32)
        model.tokens = lambda images, x=x_BTD: x
        before = model(one)[0]
        x_BTD[:, token] += 1
        after = model(other)[0]
        changed = (before != after).any(-1)[0].nonzero()[:, 0].tolist()
        assert len(changed) == cells**2 and {model.token_of(cell) for cell in changed} == {token}
        centres = model.centres_L2[changed]
        assert ((centres // 4) == torch.tensor([column, row])).all()
