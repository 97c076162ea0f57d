"""A step or a validation that does not fit into memory is computed again in smaller pieces, with the same result."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import regard
from expect import error_of
from regard import console
from regard.data.text_batches import TextBatch
from regard.tasks.synthetic import Synthetic
from regard.training.folder import RunFolder

TINY = ["model.layers=1", "model.width=16", "model.heads=2", "model.feedforward=16", "model.dropout=0.1"]
TINY += ["synthetic.length=8", "synthetic.vocabulary=4", "synthetic.test_sequences=10", "training.tokens_per_batch=128"]
TINY += ["system.device=cpu"]  # on a GPU a captured loss is not called again
TINY += ["training.steps=6", "training.validate_every=3", "training.log_every=1"]  # 16 rows a step
FORESEEN = 3  # losses of a few rows, from which the memory of all is predicted


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    warnings: list[str] = []
    monkeypatch.setattr(console, "warn", warnings.append)
    return warnings


@pytest.fixture
def memory_for(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """From now on a loss of more rows than these fails as a GPU does, from a call on; how many rows each had."""

    def limit(rows: int, from_call: int = 0) -> list[int]:
        calls: list[int] = []
        loss = Synthetic.loss

        def limited(self: Synthetic, batch: TextBatch) -> torch.Tensor:
            calls.append(len(batch.labels))
            if len(batch.labels) > rows and len(calls) > from_call:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return loss(self, batch)

        monkeypatch.setattr(Synthetic, "loss", limited)
        return calls

    return limit


def pieces(run: Path) -> int:
    return tomllib.loads((run / "config.toml").read_text())["training"]["micro_batches"]


def test_a_step_that_does_not_fit_is_computed_in_pieces(tmp_path, monkeypatch, said, memory_for):
    split = regard.train("reverse", *TINY, "training.micro_batches=4", out=tmp_path / "split")
    calls = memory_for(rows=4)
    retried = regard.train("reverse", *TINY, out=tmp_path / "retried")
    assert calls[FORESEEN:] == [16, 8, *[4] * 24]  # 16 and 8 rows did not fit
    assert [f"micro_batches = {n}" in text for n, text in zip((2, 4), said, strict=True)] == [True, True]
    assert pieces(retried) == 4
    assert (retried / "model.safetensors").read_bytes() == (split / "model.safetensors").read_bytes()


def test_memory_may_run_out_at_any_step_and_in_any_piece(tmp_path, said, memory_for):
    settings = [*TINY, "model.dropout=0.0", "training.micro_batches=2"]
    whole = regard.train("reverse", *settings, out=tmp_path / "whole")
    memory_for(rows=4, from_call=FORESEEN + 5)  # in the second piece of the third step
    retried = regard.train("reverse", *settings, out=tmp_path / "retried")
    assert len(said) == 1 and "Step 3" in said[0] and pieces(retried) == 4
    courses = [RunFolder(run).read_metrics() for run in (whole, retried)]
    steps = [{each["step"]: each for each in course if "loss" in each} for course in courses]
    for measured in ("loss", "gradient_norm"):  # nothing of the piece that did fit is counted twice
        torch.testing.assert_close(*(torch.tensor(records[3][measured]) for records in steps))
    assert steps[0][2]["loss"] == steps[1][2]["loss"]


def test_a_resumed_run_remembers_its_pieces(tmp_path, monkeypatch, said, memory_for):
    whole = regard.train("reverse", *TINY, "training.micro_batches=4", out=tmp_path / "whole")
    calls = memory_for(rows=4)
    run = regard.train("reverse", *TINY, "training.steps=3", out=tmp_path / "run")
    del calls[:]
    regard.train("reverse", *TINY, out=run, resume=True)
    assert calls[FORESEEN:] == [4] * 12  # nothing was tried in vain
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    regard.train(str(run), "training.micro_batches=8", "training.steps=9", resume=True)
    assert pieces(run) == 8  # as asked


def test_one_row_that_does_not_fit_is_an_error(tmp_path, said, memory_for):
    calls = memory_for(rows=0)
    error = error_of(regard.train, "reverse", *TINY, out=tmp_path / "run")
    assert calls == [*[1] * FORESEEN, 16, 8, 4, 2, 1]
    assert "Out of memory" in error.what and "2.00 GiB" in error.why and "synthetic.length" in error.fix
    assert not (tmp_path / "run").exists()


def test_another_error_is_not_tried_again(tmp_path, monkeypatch, said):
    def broken(self: Synthetic, batch: TextBatch) -> torch.Tensor:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(Synthetic, "loss", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        regard.train("reverse", *TINY, out=tmp_path / "run")
    assert not said


def test_weights_that_have_moved_are_not_moved_again(tmp_path, monkeypatch):
    """Adam has updated its share when the other optimizer runs out of memory: the step cannot be repeated."""
    from regard.training.optimizer import UncompiledMuon

    def full(self: UncompiledMuon) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(UncompiledMuon, "step", full)
    error = error_of(regard.train, "reverse", *TINY, "training.optimizer=muon", out=tmp_path / "run")
    assert "Out of memory" in error.what
