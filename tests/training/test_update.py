"""Updates that nobody waits for: the same numbers, and a step that is not finite touches nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
import torch

import regard
from regard.data.batch import DataState
from regard.errors import Interrupted, RegardError
from regard.hardware import Hardware, seed_everything
from regard.models.causal import Causal
from regard.recipes.writing import to_toml
from regard.run import read_recipe
from regard.settings import CausalModel, SystemSettings, TrainingSettings
from regard.tasks.translate import Translate
from regard.training import loop
from regard.training.averaging import MovingAverage
from regard.training.checkpoint import weights_of
from regard.training.folder import RunFolder
from regard.training.graph import Backward
from regard.training.loop import Trainer
from regard.training.loss import cross_entropy
from regard.training.optimizer import Optimizer
from regard.training.pieces import Division, add_pieces
from regard.training.processes import ALONE
from regard.training.update import Outcome, Update

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
every_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
every_optimizer = pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
in_pieces = pytest.mark.parametrize("pieces", [1, 2])
# Numbers that float32 holds exactly: a rate in memory is one, a rate in Python is not.
EXACT = {"learning_rate": 2**-7, "schedule": "constant", "warmup": 0, "weight_decay": 0.25}


@dataclass
class Rows:
    """Tokens, and what their loss is multiplied by."""

    tokens: torch.Tensor
    factor: torch.Tensor

    def tensors(self) -> list[torch.Tensor]:
        return [self.tokens, self.factor]

    def to(self, device: torch.device) -> Self:
        return type(self)(*(tensor.to(device) for tensor in self.tensors()))


def rows(seed: int, pieces: int, factor: float = 1.0) -> list[Rows]:
    generator = torch.Generator().manual_seed(seed)
    return [Rows(torch.randint(1, 20, (4, 9), generator=generator), torch.tensor(factor)) for _ in range(pieces)]


class Setup:
    """A small model with all that an update changes."""

    def __init__(self, device: str, optimizer: str, guarded: bool = True):
        torch.manual_seed(1)
        hardware = Hardware.choose(SystemSettings(device=device, precision="float32", compile="no"))
        self.model = Causal(CausalModel(layers=2, width=16, heads=2, feedforward=64, dropout=0.1), 20)
        self.model.to(hardware.device)
        own = {"muon": {"learning_rate": 2**-6}} if optimizer == "muon" else {}
        settings = TrainingSettings(optimizer=optimizer, clip_norm=0.5, **EXACT, **own)
        self.optimizer = Optimizer(self.model, settings)
        self.average = MovingAverage(self.model, 0.75)
        self.backward = Backward(self.model, self.loss, hardware)
        self.update = Update(self.backward, self.optimizer, self.average, self.in_pieces) if guarded else None

    def in_pieces(self, pieces: list[Rows], targets: int, seed: Callable[[int], None]) -> torch.Tensor:
        return add_pieces(
            pieces, targets, self.backward, self.optimizer, seed, Division(ALONE, "exact", sharded=False)
        )[0]

    def loss(self, batch: Rows) -> torch.Tensor:
        return cross_entropy(self.model(batch.tokens[:, :-1]), batch.tokens[:, 1:]) * batch.factor

    def step(self, step: int, pieces: list[Rows]) -> tuple[float, float]:
        rate, share = 2.0**-7 / (1 << step), self.average.share(step)
        if self.update:
            return self.update(pieces, 64, rate, share, lambda index: seed_everything(step, index)).read()
        total = 0.0
        for index, piece in enumerate(pieces):
            seed_everything(step, index)
            total += self.backward(piece, 64)
        norm = self.optimizer.gradient_norm()
        self.optimizer.step(rate)
        self.average.update(self.model, share)
        return float(total), float(norm)

    def state(self) -> dict[str, torch.Tensor]:
        named = {
            "weights": weights_of(self.model),
            "optimizer": self.optimizer.tensors(),
            "average": self.average.weights,
        }
        return {f"{kind}/{name}": tensor.clone() for kind, of in named.items() for name, tensor in of.items()}


def must_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys() and len(found) > 60
    assert [name for name, tensor in found.items() if not torch.equal(tensor, expected[name])] == []


@every_optimizer
@in_pieces
def test_an_update_that_is_not_waited_for_gives_the_same_bytes(optimizer, pieces):
    plain, guarded = Setup("cpu", optimizer, guarded=False), Setup("cpu", optimizer)
    for step in range(1, 5):
        assert plain.step(step, rows(step, pieces)) == guarded.step(step, rows(step, pieces))
    must_equal(guarded.state(), plain.state())


@needs_gpu
@every_optimizer
@in_pieces
def test_an_update_captured_as_one_graph_gives_what_ordinary_code_gives(optimizer, pieces):
    plain, guarded = Setup("cuda", optimizer, guarded=False), Setup("cuda", optimizer)
    for step in range(1, 8):
        assert plain.step(step, rows(step, pieces)) == pytest.approx(guarded.step(step, rows(step, pieces)), rel=1e-4)
    found, expected = guarded.state(), plain.state()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-4, rtol=1e-3)


@every_device
@every_optimizer
@in_pieces
@pytest.mark.parametrize("factor", [float("inf"), float("nan"), 1e38])
def test_a_step_that_is_not_finite_and_all_after_it_change_nothing(device, optimizer, pieces, factor):
    setup = Setup(device, optimizer)
    for step in (1, 2):
        setup.step(step, rows(step, pieces))
    before = setup.state()
    outcomes = [setup.step(3, rows(3, pieces, factor)), setup.step(4, rows(4, pieces))]
    assert not torch.tensor(outcomes[0]).isfinite().all()
    must_equal(setup.state(), before)


@needs_gpu
@every_optimizer
def test_another_shape_of_batch_is_captured_without_a_trace(optimizer):
    """Three rows after four: the graph of the second shape is rehearsed with weights that must not move."""
    plain, guarded = Setup("cuda", optimizer, guarded=False), Setup("cuda", optimizer)
    for step in range(1, 7):
        batch = rows(step, 1)[0]
        batch.tokens = batch.tokens[: 4 - step % 2]
        assert plain.step(step, [batch]) == pytest.approx(guarded.step(step, [batch]), rel=1e-4)
    assert len(guarded.update.whole.of_shape) == 2


# ---------------------------------------------------------------- in the loop

QUICK = ["training.validate_bleu=false", "decoding.beam=1", "decoding.max_ratio=0.1"]
QUICK += ["training.learning_rate=0.0078125", "training.schedule=constant", "training.warmup=0"]
QUICK += ["training.log_every=3", "training.save_every=0"]
CLOCK = ("seconds", "tokens_per_second")


@pytest.fixture
def ahead(monkeypatch):
    """The loop as on a GPU: it does not wait for its updates."""
    monkeypatch.setattr(Trainer, "_can_run_ahead", True, raising=False)


def trainer(recipe: Path, path: Path, *overrides: str) -> Trainer:
    settings = read_recipe(str(recipe), overrides)
    task = Translate(settings, RunFolder.create(path, to_toml(settings)), Hardware.choose(settings.system))
    task.prepare()
    seed_everything(settings.seed)
    task.model = task.build()
    return Trainer(task)


def files(run: Path) -> dict[str, Any]:
    """The bytes of a run, and its metrics without what the clock says."""
    kept = {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*.safetensors"))}
    metrics = [{k: v for k, v in line.items() if k not in CLOCK} for line in RunFolder(run).read_metrics()]
    return kept | {"metrics": metrics}


CHANGES = ["training.steps=14", "training.validate_every=8", "training.save_every=4", "model.dropout=0.1"]
MODES = {
    "average": ["training.ema=0.9", "training.clip_norm=0.5"],
    "pieces": ["training.micro_batches=2", "training.average_checkpoints=2"],
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
def test_a_loop_that_does_not_wait_leaves_the_same_files(tiny_recipe, tmp_path, monkeypatch, mode):
    waiting = regard.train(str(tiny_recipe), *QUICK, *CHANGES, *mode, out=tmp_path / "waiting")
    monkeypatch.setattr(Trainer, "_can_run_ahead", True, raising=False)
    update = Trainer._update

    def stop_at_six(self, step, batch):
        self.stop_asked = step == 6
        return update(self, step, batch)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Trainer, "_update", stop_at_six)
        regard.train(str(tiny_recipe), *QUICK, *CHANGES, *mode, out=tmp_path / "ahead")
    resumed = regard.train(str(tiny_recipe), *QUICK, *CHANGES, *mode, out=tmp_path / "ahead", resume=True)
    assert files(resumed) == files(waiting)


def test_the_loss_of_a_step_is_read_when_the_next_ones_have_begun(tiny_recipe, tmp_path, monkeypatch, ahead):
    one = trainer(tiny_recipe, tmp_path / "run", *QUICK, "training.steps=9", "training.validate_every=7")
    events, update, read = [], Trainer._update, Outcome.read

    def begin(self, step, batch):
        events.append(step)
        return update(self, step, batch)

    def noted(self):
        events.append("read")
        return read(self)

    monkeypatch.setattr(Trainer, "_update", begin)
    monkeypatch.setattr(Outcome, "read", noted)
    one.run()
    # Step 7 validates and step 9 is the last: both wait for all that is under way.
    begun = [1, 2, 3, "read", 4, "read", 5, "read", 6, "read", 7, "read", "read", "read", 8, 9, "read", "read"]
    assert events == begun
    assert loop.AHEAD == 2


def test_the_step_that_is_not_finite_is_named_though_others_have_begun(tiny_recipe, tmp_path, ahead):
    here = [*QUICK, "system.device=cpu"]  # on a GPU a captured loss is not called again
    few = [*here, "training.steps=9", "training.validate_every=9"]
    five = trainer(tiny_recipe, tmp_path / "five", *here, "training.steps=5", "training.validate_every=5")
    five.run()
    one = trainer(tiny_recipe, tmp_path / "run", *few)
    loss, calls = one.task.loss, []

    def overflowing(batch):
        calls.append(1)
        return loss(batch) * (float("inf") if len(calls) == 6 else 1.0)

    one.backward.loss = overflowing
    with pytest.raises(RegardError, match="stopped at step 6: the loss is inf"):
        one.run()
    assert len(calls) == 8  # two more had begun
    for name, tensor in weights_of(one.model).items():
        assert torch.equal(tensor, weights_of(five.model)[name])
    assert not one.folder.saved_steps()


@needs_gpu
def test_a_training_on_a_gpu_runs_ahead_and_resumes_to_the_same_bytes(tiny_recipe, tmp_path, monkeypatch):
    changes = [*QUICK, *CHANGES, "training.ema=0.9", "system.device=cuda", "system.deterministic=true"]
    assert trainer(tiny_recipe, tmp_path / "one", *changes).unwaited is not None
    whole = regard.train(str(tiny_recipe), *changes, out=tmp_path / "whole")
    part = regard.train(str(tiny_recipe), *changes, "training.steps=6", out=tmp_path / "part")
    regard.train(str(part), "training.steps=14", resume=True)
    assert (part / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_batch_counts_its_targets_once(tiny_recipe, tmp_path):
    one = trainer(tiny_recipe, tmp_path / "run")
    batch, _ = next(one.task.stream.batches(DataState()))
    assert batch.targets == int((batch.labels != batch.nothing).sum()) > 0
    assert batch.__dict__["targets"] == batch.targets
