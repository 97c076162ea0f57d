"""Sizes are checked before anything is built."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from expect import error_of
from regard import registry
from regard.recipes import resolve
from regard.run import load, open_run, train
from regard.tasks import room
from regard.training.folder import RunFolder

TINY = ["model.layers=2", "model.width=16", "model.heads=2", "model.feedforward=16", "training.tokens_per_batch=320"]
TINY += ["synthetic.length=10", "synthetic.vocabulary=8", "training.steps=2", "training.validate_every=2"]


def task(*settings: str):
    made = resolve("reverse", [*TINY, *settings])
    hardware = dataclasses.make_dataclass("Hardware", ["device"])(torch.device("cpu"))
    return registry.load("tasks", made.task)(made, RunFolder("nowhere"), hardware)


@pytest.mark.parametrize("mixer", registry.names("mixers"))
def test_a_model_laid_out_has_the_weights_of_the_model(mixer):
    laid_out, real = room._laid_out(task(f"model.mixer={mixer}")), task(f"model.mixer={mixer}").build()
    assert all(parameter.is_meta for parameter in laid_out.parameters())
    shapes = [[(name, parameter.shape) for name, parameter in model.named_parameters()] for model in (laid_out, real)]
    assert shapes[0] == shapes[1]


def test_laying_out_a_model_draws_no_random_numbers():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    room.check_room_to_train(task("model.mixer=hyena"))
    assert torch.equal(torch.rand(3), expected)


def test_a_model_beyond_the_memory_is_refused_before_it_is_built(monkeypatch):
    large = task("model.width=65536", "model.layers=100", "model.feedforward=262144")
    error = error_of(room.check_room_to_train, large)
    assert "weights" in error.what and "memory" in error.why and "model.width" in error.fix


def test_what_is_needed_follows_from_optimizer_and_average(monkeypatch):
    weights = sum(parameter.numel() for parameter in room._laid_out(task()).parameters())
    for settings, numbers in (((), 4), (("training.ema=0.9",), 5), (("training.optimizer=muon",), 3)):
        monkeypatch.setattr(room, "_free", lambda device, n=numbers: 4 * n * weights - 1)
        assert f"{weights:,} weights" in error_of(room.check_room_to_train, task(*settings)).what
        monkeypatch.setattr(room, "_free", lambda device, n=numbers: 4 * n * weights + 10**6)
        room.check_room_to_train(task(*settings))


def test_a_batch_beyond_the_memory_names_its_setting():
    error = error_of(room.check_room_to_train, task("training.tokens_per_batch=4000000000", "model.width=4096"))
    assert "training.tokens_per_batch = 4,000,000,000" in error.what and "micro_batches" in error.fix


def test_a_run_whose_weights_are_of_another_size_builds_nothing(tmp_path, monkeypatch):
    folder, _ = train("reverse", TINY, out=tmp_path / "run")
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("width = 16", "width = 65536"))
    (folder / "manifest.json").unlink()  # so that something else must notice
    built = type(open_run(folder)).build
    devices = []

    def watched(self):
        model = built(self)
        devices.append(next(model.parameters()).device.type)
        return model

    monkeypatch.setattr(type(open_run(folder)), "build", watched)
    assert "do not fit" in error_of(load, folder, "cpu").what
    assert devices == ["meta"]
