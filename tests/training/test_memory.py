"""The memory of a training is predicted from a few rows, and nothing is changed by that."""

from __future__ import annotations

import gc
import json
import tomllib
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import regard
from imports import count_frozen
from regard import console, registry
from regard.data.batch import DataState
from regard.hardware import Hardware, free_memory, only_new_garbage, seed_everything
from regard.recipes import resolve
from regard.recipes.writing import to_toml
from regard.training import loop, memory
from regard.training.folder import RunFolder
from regard.training.loop import Trainer

TINY = ["model.layers=1", "model.width=16", "model.heads=2", "model.feedforward=16", "model.dropout=0.1"]
TINY += ["synthetic.length=8", "synthetic.vocabulary=4", "synthetic.test_sequences=10", "training.tokens_per_batch=128"]
TINY += ["training.steps=4", "training.validate_every=2"]

SYNTHETIC = ["synthetic.length=64", "synthetic.vocabulary=16", "training.tokens_per_batch=2048"]
LARGER = ["model.layers=2", "model.width=64", "model.heads=4", "model.feedforward=256", "model.dropout=0.1"]
KINDS = {
    "attention": ["reverse", *SYNTHETIC, *LARGER],
    "hyena": ["reverse", *SYNTHETIC, *LARGER, "model.mixer=hyena"],
    "gru": ["reverse", *SYNTHETIC, *LARGER, "model.mixer=gru"],
    "more weights": ["reverse", *SYNTHETIC, *LARGER, "model.feedforward=8192", "training.tokens_per_batch=256"],
    "muon": ["reverse", *SYNTHETIC, *LARGER, "training.optimizer=muon"],
    "in pieces, with an average": ["reverse", *SYNTHETIC, *LARGER, "training.micro_batches=2", "training.ema=0.9"],
    "images": ["digits", *LARGER, "training.images_per_batch=256"],
}


class Alive(TorchDispatchMode):
    """Counts the bytes of all tensors that are made within it, for as long as they are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.counted: set[int] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        given = {tensor.untyped_storage()._cdata for tensor in tree_leaves((args, kwargs)) if torch.is_tensor(tensor)}
        for tensor in filter(torch.is_tensor, tree_leaves(result)):
            storage = tensor.untyped_storage()
            if storage._cdata not in given | self.counted:  # else it is a view
                self.counted.add(storage._cdata)
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self.gone, storage._cdata, storage.nbytes())
        return result

    def gone(self, storage: int, size: int) -> None:
        self.counted.discard(storage)
        self.now -= size


def counted(run: Callable[[], object], gaps: bool = True) -> int:
    """What a GPU would tell; this process as a whole also has gaps between tensors, no two times the same."""
    with Alive() as alive:
        run()
    return alive.peak


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_what_is_predicted_is_what_is_taken(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "growth_during", counted)
    monkeypatch.setattr(memory, "GAPS", 1.0)
    settings = resolve(kind[0], kind[1:])
    folder = RunFolder.create(tmp_path / "run", to_toml(settings))
    task = registry.load("tasks", settings.task)(settings, folder, Hardware.choose(settings.system))
    task.prepare()
    seed_everything(1)
    task.model = task.build()
    trainer = Trainer(task)
    batch, _ = next(task.stream.batches(DataState()))
    rows = -(-len(batch.labels) // settings.training.pieces)
    still = trainer.optimizer.still_to_remember()
    found = memory.predict(task.model, task.loss, task.hardware, batch, rows, still, gradients_stay=True)

    def steps() -> None:
        for step in (1, 2):
            trainer._update(step, batch)

    measured = counted(steps)
    assert measured > 5e6
    assert found.growth(rows) == pytest.approx(measured, rel=0.15)
    assert trainer.optimizer.still_to_remember() == 0


def trained(out: Path) -> bytes:
    return (regard.train("reverse", *TINY, out=out) / "model.safetensors").read_bytes()


def test_predicting_changes_nothing(tmp_path, monkeypatch):
    with_it = trained(tmp_path / "with")
    monkeypatch.setattr(loop, "predict", lambda *arguments, **options: None)
    assert trained(tmp_path / "without") == with_it


def test_it_is_said_and_noted(tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(console, "say", said.append)
    run = regard.train("reverse", *TINY, out=tmp_path / "run")
    summary = json.loads((run / "summary.json").read_text())
    assert 0 < summary["memory_before_bytes"] < summary["predicted_memory_bytes"]
    assert summary["steps_memory_bytes"] > 0
    about = memory.shown(summary["predicted_memory_bytes"])
    assert any(line.startswith(f"About {about} of memory will be used, of ") for line in said)


def test_a_step_that_will_not_fit_is_split_before_it_is_tried(tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(console, "warn", said.append)
    split = regard.train("reverse", *TINY, "training.micro_batches=4", out=tmp_path / "split")
    found = memory.Prediction(present=100, lasting=10, gradients=5, beside=5, base=15, row=10)
    monkeypatch.setattr(loop, "predict", lambda *arguments, **options: found)
    monkeypatch.setattr(loop, "available", lambda device: 10 + 5 + 15 + 4 * 10)  # for four of sixteen rows
    run = regard.train("reverse", *TINY, out=tmp_path / "run")
    assert tomllib.loads((run / "config.toml").read_text())["training"]["micro_batches"] == 4
    assert len(said) == 2 and "does not fit" in said[0] and "micro_batches = 4" in said[1]
    assert (run / "model.safetensors").read_bytes() == (split / "model.safetensors").read_bytes()
    assert json.loads((run / "summary.json").read_text())["predicted_memory_bytes"] == 100 + 70


def test_the_part_that_is_measured_may_itself_be_too_large(monkeypatch):
    batch = next(_stream().batches(DataState()))[0]
    weight = torch.nn.Parameter(torch.ones(1))
    model = torch.nn.ParameterList([weight])
    asked: list[int] = []

    def loss(rows):
        asked.append(len(rows.labels))
        if len(rows.labels) > 1:
            raise torch.OutOfMemoryError("out of memory")
        return (weight * torch.ones(1)).sum()

    hardware = Hardware(torch.device("cpu"), torch.float32, compile=False)
    assert memory.predict(model, loss, hardware, batch, 16, 0, gradients_stay=True) is not None
    assert asked == [1, 4, 1, 2, 1, 1]
    assert memory.predict(model, _full, hardware, batch, 16, 0, gradients_stay=True) is None


def _full(rows):
    raise torch.OutOfMemoryError("out of memory")


def _stream():
    from regard.data.synthetic import SyntheticStream

    settings = resolve("reverse", TINY)
    return SyntheticStream(settings.synthetic, 16, 1)


class Circle:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def nothing_is_frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gc, "get_freeze_count", count_frozen)
    gc.unfreeze()
    yield
    gc.freeze()  # as the tests have it


def test_to_free_memory_again_looks_only_at_what_is_new(nothing_is_frozen):
    cpu = torch.device("cpu")
    older, kept = weakref.ref(Circle()), Circle()
    with only_new_garbage():
        assert older() is None and gc.get_freeze_count() > 0
        present, newer = weakref.ref(kept), weakref.ref(Circle())
        del kept
        free_memory(cpu)
        assert newer() is None and present() is not None
        with only_new_garbage():
            pass
        assert gc.get_freeze_count() > 0  # whoever began it ends it
    free_memory(cpu)
    assert present() is None and gc.get_freeze_count() == 0
