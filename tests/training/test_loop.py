"""The trainer: exact gradients, exact resume, averaging, stopping."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.data.batch import DataState
from regard.errors import Diverged, Interrupted
from regard.hardware import Hardware, seed_everything
from regard.recipes.writing import to_toml
from regard.run import read_recipe
from regard.tasks.translate import Translate
from regard.training.checkpoint import weights_of
from regard.training.folder import RunFolder
from regard.training.loop import Trainer

# Translations are cut short: those of a model that has learned little would never end.
QUICK = ["training.validate_bleu=false", "decoding.beam=1", "decoding.max_ratio=0.1", "system.deterministic=true"]


def trainer(recipe: Path, path: Path, *overrides: str) -> Trainer:
    settings = read_recipe(str(recipe), overrides)
    task = Translate(settings, RunFolder.create(path, to_toml(settings)), Hardware.choose(settings.system))
    task.prepare()
    seed_everything(settings.seed)
    task.model = task.build()
    return Trainer(task)


def records(run: Path) -> list[dict]:
    return RunFolder(run).read_metrics()


def test_training_learns(tiny_recipe, tmp_path):
    changes = ["training.steps=40", "training.learning_rate=0.01", "training.validate_every=40"]
    run = regard.train(str(tiny_recipe), *QUICK, *changes, out=tmp_path / "run")
    losses = [record["loss"] for record in records(run) if "loss" in record]
    assert losses[-1] < losses[0] - 1.0


# What has a state or random numbers of its own that a resumed run must find again; a plain one: test_every_task.py.
SETTINGS = {
    "averaged, in pieces": ["training.average_checkpoints=3", "training.micro_batches=2"],
    "a moving average": ["training.ema=0.9", "model.dropout=0.2", "training.optimizer=muon", "training.clip_norm=0.5"],
    "bpe dropout and r-drop": ["tokenizer.dropout=0.2", "training.consistency=2.0"],
}


@pytest.mark.parametrize("overrides", SETTINGS.values(), ids=SETTINGS.keys())
def test_a_stopped_and_resumed_run_gives_the_same_bytes(tiny_recipe, tmp_path, overrides, monkeypatch):
    overrides = [*overrides, *QUICK, "training.steps=12", "training.validate_every=4", "training.save_every=4"]
    whole = regard.train(str(tiny_recipe), *overrides, out=tmp_path / "whole")
    update = Trainer._update

    def stop_at_seven(self, step, batch):
        self.stop_asked = step == 7  # between two regular checkpoints
        return update(self, step, batch)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Trainer, "_update", stop_at_seven)
        regard.train(str(tiny_recipe), *overrides, out=tmp_path / "stopped")
    overrides.append("data.workers=1")  # which is free to change, and has no part in the result
    resumed = regard.train(str(tiny_recipe), *overrides, out=tmp_path / "stopped", resume=True)
    assert (resumed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert [record["step"] for record in records(resumed)] == [record["step"] for record in records(whole)]


def test_the_log_of_a_resumed_run_is_that_of_one_left_alone(tiny_recipe, tmp_path):
    """Lines of the log fall between checkpoints: each is the mean of the same steps."""
    changes = [*QUICK, "training.save_every=4", "training.validate_every=4", "training.log_every=3"]
    whole = regard.train(str(tiny_recipe), *changes, "training.steps=8", out=tmp_path / "whole")
    run = regard.train(str(tiny_recipe), *changes, "training.steps=4", out=tmp_path / "run")
    regard.train(str(run), "training.steps=8", resume=True)
    logged = [
        [(r["step"], r["loss"], r["gradient_norm"]) for r in records(each) if "loss" in r] for each in (whole, run)
    ]
    assert logged[0] == logged[1]
    assert [step for step, _, _ in logged[0]] == [3, 6]


def test_a_loss_that_is_not_finite_stops_before_the_weights_change(tiny_recipe, tmp_path):
    one = trainer(tiny_recipe, tmp_path / "run", "system.device=cpu")  # on a GPU it is read later: see test_update
    batch, _ = next(one.task.stream.batches(DataState()))
    with torch.no_grad():
        one.model.encoder_norm.weight.fill_(float("inf"))
    before = {name: tensor.clone() for name, tensor in weights_of(one.model).items()}
    with pytest.raises(Diverged, match="weights were not touched"):
        one._update(1, batch)
    for name, tensor in weights_of(one.model).items():
        assert torch.equal(tensor, before[name])


def test_clipping_limits_the_gradient(tiny_recipe, tmp_path):
    one = trainer(tiny_recipe, tmp_path / "run", "training.clip_norm=0.01")
    batch, _ = next(one.task.stream.batches(DataState()))
    one.backward(batch, batch.targets)
    before = one.optimizer.gradient_norm()
    after = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in one.model.parameters()]))
    assert before > 0.01
    assert after.item() == pytest.approx(0.01, rel=1e-3)


def test_early_stopping_stops_when_nothing_gets_better(tiny_recipe, tmp_path):
    run = regard.train(
        str(tiny_recipe),
        *QUICK,
        "training.learning_rate=1e-12",
        "training.steps=200",
        "training.patience=2",
        "training.validate_every=5",
        out=tmp_path / "run",
    )
    # The rate is too small to change a single weight in float32, so no validation beats the first.
    assert json.loads((run / "summary.json").read_text())["steps"] == 15


def test_curves_are_drawn_now_and_then_and_at_the_end(tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.undo()
    one = trainer(tiny_recipe, tmp_path / "run", *QUICK)
    picture = one.folder.plots / "curves.png"
    one.drawn += 1e9  # just now, however slow the machine is
    one._validate(5)
    assert not picture.exists()
    one.drawn -= 2e9
    one._validate(10)
    one.pictures.wait()
    assert picture.read_bytes().startswith(b"\x89PNG")
    picture.unlink()
    one.finish()
    one.pictures.wait()
    assert picture.exists()


@pytest.mark.parametrize(("decay", "weights"), [(0.0, "model"), (0.5, "average")])
def test_the_best_checkpoint_becomes_the_model(tiny_recipe, tmp_path, decay, weights):
    """Of a moving average, the one that was validated then."""
    few = [*QUICK, "training.steps=12", "training.validate_every=3", "training.save_every=3", f"training.ema={decay}"]
    run = regard.train(str(tiny_recipe), *few, "training.learning_rate=3.0", out=tmp_path / "run")
    losses = {record["step"]: record["valid_loss"] for record in records(run) if "valid_loss" in record}
    best = min(losses, key=losses.get)
    assert best < 12  # at this rate it gets worse
    assert (run / "checkpoints" / "best").resolve().name == f"step-{best}"
    assert (run / "model.safetensors").read_bytes() == (run / f"checkpoints/best/{weights}.safetensors").read_bytes()


def test_the_moving_average_is_the_formula(tiny_recipe, tmp_path):
    one = trainer(tiny_recipe, tmp_path / "run", "training.ema=0.5")
    name, parameter = next(iter(one.model.named_parameters()))
    expected = parameter.detach().clone()
    batches = one.task.stream.batches(DataState())
    for step in range(1, 6):
        batch, _ = next(batches)
        one._update(step, batch)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * parameter.detach()
    torch.testing.assert_close(one.average.weights[name], expected)
    assert not torch.equal(one.average.weights[name], parameter)


def test_the_last_step_is_averaged_in_even_between_two_regular_checkpoints(tiny_recipe, tmp_path):
    few = [*QUICK, "training.steps=13", "training.average_checkpoints=2"]
    run = regard.train(str(tiny_recipe), *few, out=tmp_path / "run")
    weights = [load_file(run / "checkpoints" / f"step-{step}" / "model.safetensors") for step in (10, 13)]
    model = load_file(run / "model.safetensors")
    for name, tensor in model.items():
        torch.testing.assert_close(tensor, (weights[0][name] + weights[1][name]) / 2)


def test_a_validation_that_is_not_a_number_is_never_the_best(tiny_recipe, tmp_path, monkeypatch, capfd):
    validate = Translate.validate
    values = {2: 5.0, 4: float("nan"), 6: 4.0, 8: float("inf")}

    def told(self, step):
        return validate(self, step) | {"loss": values[step]}

    monkeypatch.setattr(Translate, "validate", told)
    changes = ["training.steps=8", "training.validate_every=2", "training.save_every=2", "training.select=loss"]
    run = regard.train(str(tiny_recipe), *QUICK, *changes, out=tmp_path / "run")
    assert (run / "checkpoints" / "best").resolve().name == "step-6"
    said = " ".join(capfd.readouterr().err.split())
    assert "Step 4 cannot be the best: its validation loss is nan" in said and "Step 8 cannot" in said
    best = load_file(run / "checkpoints" / "step-6" / "model.safetensors")
    assert all(torch.equal(tensor, best[name]) for name, tensor in load_file(run / "model.safetensors").items())


def test_weights_that_are_no_numbers_do_not_become_a_model(tiny_recipe, tmp_path):
    one = trainer(tiny_recipe, tmp_path / "run")
    one.run()
    with torch.no_grad():
        next(one.model.parameters()).fill_(float("nan"))
    one.progress.best_step = one.progress.step
    with pytest.raises(Diverged, match="not finite"):
        one.finish()
    assert not one.folder.model.exists()


def test_a_best_step_without_a_checkpoint_is_told(tiny_recipe, tmp_path, capfd):
    one = trainer(tiny_recipe, tmp_path / "run")
    one.run()
    one.progress.best_step = 3
    last = {name: tensor.clone() for name, tensor in weights_of(one.model).items()}
    assert all(torch.equal(tensor, last[name]) for name, tensor in one.final_weights(last).items())
    assert "The best step, 3, has no checkpoint" in " ".join(capfd.readouterr().err.split())
