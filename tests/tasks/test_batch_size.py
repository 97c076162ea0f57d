"""A batch size of "auto" is found once: what fits, and a number from then on."""

from __future__ import annotations

import tomllib

import pytest
import torch

import regard
from expect import error_of
from regard import console, registry
from regard.hardware import Hardware
from regard.recipes import resolve
from regard.recipes.writing import to_toml
from regard.settings import Auto
from regard.tasks import batch_size
from regard.tasks.batch_size import largest, round_number, sized
from regard.training import memory
from regard.training.folder import RunFolder
from regard.training.memory import Prediction

TINY = ["model.layers=1", "model.width=16", "model.heads=2", "model.feedforward=16", "model.dropout=0.1"]
TINY += ["synthetic.length=8", "synthetic.vocabulary=4", "synthetic.test_sequences=10"]
TINY += ["training.steps=4", "training.validate_every=2", "training.micro_batches=2"]


@pytest.fixture
def few_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a tiny training: 64 tokens in place of thousands."""
    monkeypatch.setattr(batch_size, "_rows_for_now", lambda settings: 8)


def config(run) -> int:
    return tomllib.loads((run / "config.toml").read_text())["training"]["tokens_per_batch"]


def test_on_a_cpu_it_is_a_usual_number_and_that_of_the_run_from_then_on(tmp_path, monkeypatch, few_for_now):
    said: list[str] = []
    monkeypatch.setattr(console, "say", said.append)
    named = regard.train("reverse", *TINY, "training.tokens_per_batch=64", out=tmp_path / "named")
    found = regard.train("reverse", *TINY, "training.tokens_per_batch=auto", out=tmp_path / "found")
    assert config(found) == 64 and any("training.tokens_per_batch = 64" in line for line in said)
    assert (found / "model.safetensors").read_bytes() == (named / "model.safetensors").read_bytes()


def test_a_resumed_run_keeps_its_number(tmp_path, monkeypatch, few_for_now):
    whole = regard.train("reverse", *TINY, "training.tokens_per_batch=64", out=tmp_path / "whole")
    auto = [*TINY, "training.tokens_per_batch=auto"]
    run = regard.train("reverse", *auto, "training.steps=2", out=tmp_path / "run")
    monkeypatch.setattr(batch_size, "_rows_for_now", lambda settings: 32)  # the machine has changed
    regard.train("reverse", *auto, out=run, resume=True)
    assert config(run) == 64
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    error = error_of(regard.train, "reverse", *TINY, "training.tokens_per_batch=128", out=run, resume=True)
    assert "training.tokens_per_batch = 128" in error.what


def task(path, recipe: str, *settings: str):
    made = resolve(recipe, settings)
    folder = RunFolder.create(path, to_toml(made))
    return registry.load("tasks", made.task)(made, folder, Hardware(torch.device("cpu"), torch.float32, compile=False))


@pytest.mark.parametrize(
    ("recipe", "settings", "row", "pieces"),
    [
        ("reverse", TINY, 8, 2),
        ("digits", [*TINY[:4], "training.optimizer=adamw", "training.ema=0.9"], 1, 1),
    ],
)
def test_the_largest_batch_is_what_there_is_room_for(recipe, settings, row, pieces, tmp_path, monkeypatch):
    found = Prediction(present=0, lasting=1000, gradients=50, beside=40, base=10, row=3)
    asked = {}

    def predict(model, loss, hardware, batch, rows, lasting, stay):
        asked.update(rows=rows, lasting=lasting, model=model)
        return found

    monkeypatch.setattr(memory, "predict", predict)
    trial = sized(task(tmp_path / "run", recipe, *settings), 16)
    size = largest(trial, room=1050 + 3 * 100).settings.batch_size  # for a hundred rows at a time
    assert asked["rows"] == 16 // pieces
    weights = sum(weight.nbytes for weight in asked["model"].parameters())
    assert asked["lasting"] == (3 if "training.ema=0.9" in settings else 2) * weights
    rows = size // row
    assert rows == (192 if pieces == 2 else 96) and found.growth(rows // pieces) <= 1350
    assert largest(trial, room=10**15).settings.batch_size <= max(batch_size.MOST.values())
    assert largest(trial, room=1000).settings.batch_size == pieces * row  # one row at a time: then it is retried
    monkeypatch.setattr(memory, "predict", lambda *arguments: None)
    assert largest(trial, room=10**15).settings.batch_size == pieces * row


def test_numbers_are_round():
    rounded = {rows: round_number(rows) for rows in (0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 100, 1000)}
    assert rounded == {0: 1, 1: 1, 2: 2, 3: 3, 4: 4, 5: 4, 6: 6, 7: 6, 8: 8, 11: 8, 12: 12, 100: 96, 1000: 768}


def test_auto_is_a_number_that_is_written_as_it_was_given():
    settings = resolve("reverse", ["training.tokens_per_batch=auto"])
    assert isinstance(settings.training.tokens_per_batch, Auto)
    assert 'tokens_per_batch = "auto"' in to_toml(settings)
    error = error_of(resolve, "reverse", ["training.tokens_per_batch=most"])
    assert "'training.tokens_per_batch' cannot be 'most'" in error.what


def test_a_budget_of_tokens_needs_a_number(tmp_path):
    from regard.cli.variants import Request, steps_of

    settings = resolve("reverse", ["training.tokens_per_batch=auto"])
    request = Request.__new__(Request)
    object.__setattr__(request, "budget", ("tokens", 10_000))
    assert "auto" in error_of(steps_of, request, settings).why
