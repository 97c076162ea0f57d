"""The trainer: exact gradients, exact resume, averaging, stopping."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from regard.experiment import read_recipe
from safetensors.torch import load_file

import regard
from regard.data.batch import DataState
from regard.errors import RegardError
from regard.hardware import Hardware, seed_everything
from regard.settings import Config
from regard.tasks.translate import TranslationTask
from regard.training.checkpoint import weights_of
from regard.training.folder import RunFolder
from regard.training.loop import Interrupted, Trainer


def trainer(recipe: Path, place: Path, *overrides: str) -> Trainer:
    config: Config = read_recipe(str(recipe), overrides)
    folder = RunFolder.create(place, config)
    hardware = Hardware.choose(config.system)
    task = TranslationTask(config, folder, hardware)
    seed_everything(config.seed)
    return Trainer(config, task.build(), task, folder, hardware)


def digest(run: Path) -> str:
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("pieces", [2, 3, 8])
def test_any_split_into_micro_batches_gives_the_same_gradient(tiny_recipe, tmp_path, pieces):
    gradients = []
    for count in (1, pieces):
        one = trainer(tiny_recipe, tmp_path / str(count), "model.dropout=0.0")
        batch, _ = next(one.task.batches(DataState()))
        for piece in batch.split(count):
            one.backward(piece, batch.targets)
        gradients.append({name: parameter.grad for name, parameter in one.model.named_parameters()})
    for name, whole in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], whole, atol=1e-6, rtol=0)


def test_the_gradient_is_of_the_mean_loss_over_real_targets(tiny_recipe, tmp_path):
    one = trainer(tiny_recipe, tmp_path / "run", "model.dropout=0.0")
    batch, _ = next(one.task.batches(DataState()))
    loss = one.backward(batch, batch.targets)
    assert loss.item() == pytest.approx(one.task.loss(one.model, batch).item() / batch.targets, rel=1e-5)
    assert batch.targets == int((batch.target_segments_BT > 0).sum())


def test_training_learns(tiny_recipe, tmp_path):
    run = regard.train(str(tiny_recipe), "training.steps=60", out=tmp_path / "run")
    losses = [record["loss"] for record in map(json.loads, (run / "metrics.jsonl").open()) if "loss" in record]
    assert losses[-1] < losses[0] - 1.0


SETTINGS = {
    "plain": [],
    "averaged": ["training.average_checkpoints=3", "training.micro_batches=2"],
    "ema": ["training.ema=0.9", "model.dropout=0.2"],
    "bpe dropout and r-drop": ["tokenizer.dropout=0.2", "training.consistency=2.0"],
    "clipped adamw": ["training.optimizer=adamw", "training.weight_decay=0.1", "training.clip_norm=0.5"],
}


@pytest.mark.parametrize("overrides", SETTINGS.values(), ids=SETTINGS.keys())
def test_a_stopped_and_resumed_run_gives_the_same_bytes(tiny_recipe, tmp_path, overrides, monkeypatch):
    whole = regard.train(str(tiny_recipe), *overrides, out=tmp_path / "whole")
    original = Trainer._update

    def stop_at_seven(self, step, batch):
        self.stop_asked = step == 7  # between two regular checkpoints
        return original(self, step, batch)

    monkeypatch.setattr(Trainer, "_update", stop_at_seven)
    with pytest.raises(Interrupted):
        regard.train(str(tiny_recipe), *overrides, out=tmp_path / "stopped")
    monkeypatch.undo()
    resumed = regard.train(str(tiny_recipe), *overrides, out=tmp_path / "stopped", resume=True)
    assert digest(resumed) == digest(whole)
    steps = [json.loads(line)["step"] for line in (resumed / "metrics.jsonl").open()]
    assert steps == [json.loads(line)["step"] for line in (whole / "metrics.jsonl").open()]


def test_the_seed_decides_everything(tiny_recipe, tmp_path):
    runs = [
        regard.train(str(tiny_recipe), f"seed={seed}", out=tmp_path / name)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert digest(runs[0]) == digest(runs[1]) != digest(runs[2])


def test_a_loss_that_is_not_finite_stops_before_the_weights_change(tiny_recipe, tmp_path):
    one = trainer(tiny_recipe, tmp_path / "run")
    batch, _ = next(one.task.batches(DataState()))
    with torch.no_grad():
        one.model.encoder_norm.weight.fill_(float("inf"))
    before = {name: tensor.clone() for name, tensor in weights_of(one.model).items()}
    with pytest.raises(RegardError, match="weights were not touched"):
        one._update(1, batch)
    for name, tensor in weights_of(one.model).items():
        assert torch.equal(tensor, before[name])


def test_clipping_limits_the_gradient(tiny_recipe, tmp_path):
    one = trainer(tiny_recipe, tmp_path / "run", "training.clip_norm=0.01")
    batch, _ = next(one.task.batches(DataState()))
    one.backward(batch, batch.targets)
    before = one.optimizer.gradient_norm()
    after = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in one.model.parameters()]))
    assert before > 0.01
    assert after.item() == pytest.approx(0.01, rel=1e-3)


def test_early_stopping_stops_when_nothing_gets_better(tiny_recipe, tmp_path):
    run = regard.train(
        str(tiny_recipe),
        "training.learning_rate=1e-12",
        "training.steps=200",
        "training.patience=2",
        "training.validate_every=5",
        out=tmp_path / "run",
    )
    # The rate is too small to change a single weight in float32, so no validation beats the first.
    assert json.loads((run / "summary.json").read_text())["steps"] == 15


def test_the_best_checkpoint_becomes_the_model(tiny_recipe, tmp_path):
    run = regard.train(str(tiny_recipe), "training.steps=40", "training.learning_rate=0.3", out=tmp_path / "run")
    records = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    losses = {record["step"]: record["valid_loss"] for record in records if "valid_loss" in record}
    best = min(losses, key=losses.get)
    assert (run / "checkpoints" / "best").resolve().name == f"step-{best}"
    assert (run / "model.safetensors").read_bytes() == (run / "checkpoints/best/model.safetensors").read_bytes()


def test_the_moving_average_is_the_formula(tiny_recipe, tmp_path):
    one = trainer(tiny_recipe, tmp_path / "run", "training.ema=0.5")
    name, parameter = next(iter(one.model.named_parameters()))
    expected = parameter.detach().clone()
    batches = one.task.batches(DataState())
    for step in range(1, 6):
        batch, _ = next(batches)
        one._update(step, batch)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * parameter.detach()
    torch.testing.assert_close(one.average.weights[name], expected)
    assert not torch.equal(one.average.weights[name], parameter)


def test_the_last_step_is_averaged_in_even_between_two_regular_checkpoints(tiny_recipe, tmp_path):
    run = regard.train(str(tiny_recipe), "training.steps=13", "training.average_checkpoints=2", out=tmp_path / "run")
    weights = [load_file(run / "checkpoints" / f"step-{step}" / "model.safetensors") for step in (10, 13)]
    model = load_file(run / "model.safetensors")
    for name, tensor in model.items():
        torch.testing.assert_close(tensor, (weights[0][name] + weights[1][name]) / 2)


def test_a_run_cannot_be_resumed_to_fewer_steps_than_it_has(tiny_recipe, tmp_path):
    run = regard.train(str(tiny_recipe), out=tmp_path / "run")
    before = (run / "config.toml").read_text()
    with pytest.raises(RegardError, match="already at step 20"):
        regard.train(str(tiny_recipe), "training.steps=10", out=run, resume=True)
    assert (run / "config.toml").read_text() == before
