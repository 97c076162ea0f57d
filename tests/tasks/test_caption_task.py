"""A captioner, trained for real: it says which way stripes go, and only what it sees."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from command import regard as command
from kinds import TINY
from regard.data.batch import DataState
from regard.errors import RegardError
from tiny import stripes

SETTINGS = [*TINY, "model.width=32", "images.size=8", "images.colour=false", "model.patch=4", "decoding.beam=2"]
SETTINGS += ["data.sample=", "data.images=.", "training.images_per_batch=30", "training.steps=120"]
SETTINGS += ["training.validate_every=60", "training.warmup=10", "training.optimizer=adamw"]
SETTINGS += ["augmentation.crop=0", "training.learning_rate=0.01", "model.initialisation=paper", "training.ema=0.0"]
KINDS = ("across", "down", "slanted")


@pytest.fixture(scope="session")
def captioner(captioned: Path, train_once: Callable[..., Any]) -> Any:
    return train_once("captioner", "scenes-caption", *SETTINGS, data=captioned)


def test_it_says_what_it_sees_and_the_control_shows_it(captioner):
    result = captioner.evaluate()
    assert result.metrics["exact"] == 100
    assert result.metrics["exact_shuffled"] < 70
    assert result.details["shuffled"]["bleu1_shuffled"] < result.metrics["bleu1"]
    constant = result.details["constant"]
    assert constant["exact"] < 50 and constant["caption"] in result.notes[-1]
    assert len(result.outputs) == result.count == 20


def test_from_python_it_takes_files_and_pixels(captioner, tmp_path):
    pixels = [stripes(kind, 180, 1) for kind in KINDS]
    Image.fromarray(pixels[0]).save(tmp_path / "a.png")
    for beam in (1, 3):
        found = captioner.caption(pixels, beam=beam)
        assert all(kind in caption for kind, caption in zip(KINDS, found, strict=True))
    assert captioner.caption(tmp_path / "a.png") == found[:1]
    assert captioner.caption([]) == []
    (tmp_path / "b.png").write_bytes(b"no image")
    with pytest.raises(RegardError, match=r"b\.png' cannot be read"):
        captioner.caption([tmp_path / "b.png"])


def test_a_caption_does_not_depend_on_the_images_beside_it(captioner, captioned):
    pixels = captioner.splits().test.pixels_NHWC
    writer = captioner.writer(beam=3, slots=4)
    together = writer.write(pixels, best=2)
    for number in (0, 7, 19):
        assert writer.write(pixels[number : number + 1], best=2)[0] == together[number]


def test_samples_follow_from_the_seed(captioner, captioned):
    image = captioned / "test" / "200.png"
    drawn = [captioner.caption([image] * 8, temperature=3.0, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) > 1


def test_augmentation_is_for_training_alone(captioner, captioned):
    from regard.hardware import Hardware
    from regard.run import open_run

    task = open_run(captioner.folder.path, captioned)
    task.settings = task.settings.with_section("augmentation", crop=2)
    task.hardware = Hardware.choose(task.settings.system)
    task.prepare()
    task.model = captioner.model
    batch, _ = next(task.stream.batches(DataState()))
    plain = captioner.model.hidden(task.scaled.pixels(batch.pixels_BHWC), batch.caption_BT)
    try:
        task.model.train()
        assert not torch.equal(task.hidden(batch), plain)
        task.model.eval()
        assert torch.equal(task.hidden(batch), plain)
    finally:
        task.model.eval()


def test_where_a_word_looked_is_drawn(captioner, captioned, tmp_path):
    shown = captioner.explain(str(captioned / "test" / "201.png"))
    shown.save(tmp_path / "words.png")
    assert (tmp_path / "words.png").read_bytes().startswith(b"\x89PNG")
    maps = shown.arrays[0]
    words = maps.labels[0]
    assert maps.values.shape == (len(words), 2, 2)
    np.testing.assert_allclose(maps.values.sum((1, 2)), 1, atol=1e-5)  # all of the attention is on patches
    assert " ".join(words[:-1]) == shown.output_text
    with pytest.raises(RegardError, match="cannot be read"):
        captioner.explain(str(tmp_path))


def test_the_winner_of_the_beams_is_the_caption(captioner, captioned):
    image = captioned / "test" / "201.png"
    shown = captioner.explain(str(image), what="beams")
    assert shown.output_text == captioner.caption([image])[0]
    assert shown.arrays[0].values[0] == max(shown.arrays[0].values)


def test_the_command_writes_a_line_for_each_image(captioner, captioned, tmp_path):
    run, images = captioner.folder.path, [captioned / "test" / f"{shade}.png" for shade in (200, 201)]
    result = command("caption", run, *images)
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == [str(image) for image in images]
    assert [line.split("\t")[1] for line in result.stdout.splitlines()] == captioner.caption(images)
    best = [line.split("\t") for line in command("caption", run, images[0], "--best", "3").stdout.splitlines()]
    scores = [float(score) for _, score, _ in best]
    assert len(best) == 3 and scores == sorted(scores, reverse=True)
    [line] = command("caption", run, images[0], "--json", "--beam", "1").stdout.splitlines()
    assert json.loads(line)["captions"][0]["text"] == captioner.caption(images[0])[0]

    (tmp_path / "bad.png").write_bytes(b"no image")
    failed = command("caption", run, tmp_path / "bad.png", images[1], code=1)
    assert failed.stdout.splitlines()[1].split("\t")[1] == captioner.caption(images[1])[0]
    assert "1 of 2 images could not be read" in failed.error[0]


def test_mistakes_in_the_command_are_named(captioner, captioned):
    run, image = captioner.folder.path, captioned / "test" / "200.png"
    assert "No image is named" in command("caption", run, code=2).error[0]
    assert "--best cannot be 0" in command("caption", run, image, "--best", "0", code=2).error[0]
    assert "do not go together" in command("caption", run, image, "--best", "2", "--temperature", "1", code=2).error[0]
    assert "a captioner" in command("translate", run, code=2).error[0]
