"""A run folder from recipe to finished run: created whole or not at all, continued, opened, loaded."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from expect import error_of
from regard.errors import Interrupted
from regard.run import open_run, read_recipe
from regard.tasks.synthetic import Synthetic
from regard.training.loop import Trainer

TINY = ["model.layers=1", "model.width=16", "model.heads=2", "model.feedforward=16", "synthetic.length=8"]
TINY += ["synthetic.vocabulary=4", "synthetic.test_sequences=10", "training.tokens_per_batch=64"]
TINY += ["training.steps=4", "training.validate_every=2", "training.log_every=1"]


@pytest.fixture
def run(made_once: Callable[..., Path]) -> Path:
    """A finished run of four steps."""
    return made_once("four-steps", lambda out: regard.train("reverse", *TINY, out=out))


def raising(error: BaseException) -> Callable[..., None]:
    def act(*arguments: object) -> None:
        raise error

    return act


# ---------------------------------------------------------------- create


def test_a_run_is_never_overwritten(run):
    before = (run / "model.safetensors").read_bytes()
    assert "already there" in error_of(regard.train, "reverse", *TINY, out=run).what
    assert "is a run" in error_of(regard.train, str(run)).what
    assert (run / "model.safetensors").read_bytes() == before


def test_a_run_is_a_recipe_for_another(run, tmp_path):
    again = regard.train(str(run), out=tmp_path / "again")
    assert (again / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    other = regard.train(str(run), "seed=2", out=tmp_path / "other")
    assert (other / "model.safetensors").read_bytes() != (run / "model.safetensors").read_bytes()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    assert "is a file" in error_of(regard.train, "reverse", *TINY, out=tmp_path / "file").what
    assert "Cannot write" in error_of(regard.train, "reverse", *TINY, out=tmp_path / "file" / "run").what


@pytest.mark.parametrize(
    ("error", "becomes", "says"),
    [(KeyboardInterrupt(), Interrupted, "Nothing was saved yet"), (RuntimeError("a bug"), RuntimeError, "a bug")],
)
def test_what_ends_before_the_first_checkpoint_leaves_nothing(error, becomes, says, tmp_path, monkeypatch):
    monkeypatch.setattr(Synthetic, "prepare", raising(error))
    with pytest.raises(becomes, match=says):
        regard.train("reverse", *TINY, out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_what_ends_after_a_checkpoint_says_how_to_continue(run, tmp_path, monkeypatch):
    update = Trainer._update

    def fail_at_four(self, step, batch):
        if step == 4:
            raise OSError("no room left")
        return update(self, step, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_update", fail_at_four)
        error = error_of(regard.train, "reverse", *TINY, out=tmp_path / "run")
    assert "no room left" in error.why
    assert f"regard train {tmp_path / 'run'} --resume" in error.fix and "Step 2 is saved" in error.fix
    regard.train(str(tmp_path / "run"), resume=True)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


def test_too_little_memory_is_told_with_what_to_lower(tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "_update", raising(torch.OutOfMemoryError("out of memory")))
    error = error_of(regard.train, "reverse", *TINY, "training.micro_batches=2", out=tmp_path / "run")
    assert "training.tokens_per_batch = 64" in str(error)
    assert "training.micro_batches=4" in error.fix


def test_a_recipe_names_files_from_where_it_lies_and_a_ready_made_one_from_here(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.toml").write_text('[data]\nroot = "files"\n')
    monkeypatch.chdir(tmp_path)
    assert read_recipe("mine/mine.toml").data.root == str(tmp_path / "mine" / "files")
    assert read_recipe("starter").data.root == str(tmp_path)
    assert read_recipe("mine/mine.toml", data="there").data.root == str(tmp_path / "there")


# ---------------------------------------------------------------- resume


def test_how_long_and_how_often_may_change_when_a_run_is_resumed(run):
    changes = ["training.steps=6", "training.validate_every=3", "training.log_every=2", "training.keep_checkpoints=5"]
    regard.train(str(run), *changes, "system.threads=1", resume=True)
    settings = tomllib.loads((run / "config.toml").read_text())
    assert (settings["training"]["steps"], settings["training"]["validate_every"]) == (6, 3)
    assert settings["system"]["threads"] == 1
    assert json.loads((run / "summary.json").read_text())["steps"] == 6
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").open()]
    assert steps == [1, 2, 2, 3, 4, 4, 6, 6]


def test_a_run_cannot_be_resumed_to_fewer_steps_than_it_has(run):
    before = (run / "config.toml").read_text()
    error = error_of(regard.train, str(run), "training.steps=2", "training.validate_every=1", resume=True)
    assert "already at step 4" in error.what
    assert (run / "config.toml").read_text() == before


def test_resuming_where_there_is_nothing_starts(run, tmp_path):
    started = regard.train("reverse", *TINY, out=tmp_path / "run", resume=True)
    assert (started / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


# ---------------------------------------------------------------- open and load


def test_opening_reads_the_settings_and_nothing_else(run):
    (run / "model.safetensors").unlink()
    assert open_run(run).settings.training.steps == 4
    error = error_of(regard.load, run)
    assert "no model.safetensors yet" in error.what and f"regard train {run} --resume" in error.fix


@pytest.mark.parametrize(
    ("path", "state"), [("missing", "does not exist"), (".", "has no config.toml"), ("file", "is a file")]
)
def test_what_is_not_a_run_folder_is_told(path, state, tmp_path):
    (tmp_path / "file").write_text("")
    error = error_of(regard.load, tmp_path / path)
    assert "is not a run folder" in error.what and state in error.why


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"[model\n", "config.toml' cannot be read as TOML"), (b"\xff\xfe", "Cannot read"), (b"a = 1", "'a'")],
)
def test_a_damaged_config_is_told(content, says, run):
    (run / "config.toml").write_bytes(content)
    assert says in error_of(regard.load, run).what


def test_weights_that_are_not_of_the_settings_are_refused(run):
    weights = load_file(run / "model.safetensors")
    save_file({name: tensor[..., :8].contiguous() for name, tensor in weights.items()}, run / "model.safetensors")
    assert "do not fit its config.toml" in error_of(regard.load, run).what
    (run / "model.safetensors").write_bytes(b"damaged")
    assert "Cannot read the weights" in error_of(regard.load, run).what
