"""A run folder from recipe to finished run: created whole or not at all, continued, opened, loaded."""

from __future__ import annotations

import json
import os
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from expect import error_of
from regard.errors import Interrupted
from regard.files import locked
from regard.hardware import Hardware
from regard.process_memory import growth_during
from regard.run import open_run, read_recipe
from regard.tasks.synthetic import Synthetic
from regard.training.checkpoint import weights_of
from regard.training.folder import RunFolder
from regard.training.loop import Trainer
from regard.training.tensors import save_tensors

TINY = ["model.layers=1", "model.width=16", "model.heads=2", "model.feedforward=16", "synthetic.length=8"]
TINY += ["synthetic.vocabulary=4", "synthetic.test_sequences=10", "training.tokens_per_batch=64"]
TINY += ["training.steps=4", "training.validate_every=2", "training.log_every=1"]


@pytest.fixture
def run(made_once: Callable[..., Path]) -> Path:
    """A finished run of four steps."""
    return made_once("four-steps", lambda out: regard.train("reverse", *TINY, out=out))


@pytest.fixture
def digits_run(made_once: Callable[..., Path]) -> Path:
    """One that has data, classes and a scale."""
    small = ["model.layers=1", "model.width=16", "model.feedforward=16", "training.steps=4"]
    return made_once(
        "four-steps-of-digits", lambda out: regard.train("digits", *small, "training.validate_every=2", out=out)
    )


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
    assert "synthetic.length" in error.fix and "model.width" in error.fix


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


def test_a_loaded_run_takes_the_memory_of_its_weights_once(run):
    (run / "manifest.json").unlink()  # the run is made larger by hand
    config = (run / "config.toml").read_text()
    config = config.replace("width = 16", "width = 64").replace("feedforward = 16", "feedforward = 131072")
    (run / "config.toml").write_text(config)
    save_tensors(run / "model.safetensors", weights_of(open_run(run).build()))
    size, loaded = (run / "model.safetensors").stat().st_size, []
    grown = growth_during(lambda: loaded.append(regard.load(run, "cpu")))
    assert size > 60e6 and 0.9 * size < grown < 1.2 * size


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
    (run / "manifest.json").unlink()  # a run of an earlier version, which has none
    (run / "config.toml").write_bytes(content)
    assert says in error_of(regard.load, run).what


def test_weights_that_are_not_of_the_settings_are_refused(run):
    (run / "manifest.json").unlink()  # a run of an earlier version, which has none
    weights = load_file(run / "model.safetensors")
    save_file({name: tensor[..., :8].contiguous() for name, tensor in weights.items()}, run / "model.safetensors")
    assert "do not fit its config.toml" in error_of(regard.load, run).what
    (run / "model.safetensors").write_bytes(b"damaged")
    assert "Cannot read the weights" in error_of(regard.load, run).what


@pytest.mark.parametrize("name", ["model.safetensors", "config.toml", "labels.json", "scale.json"])
def test_a_file_with_one_bit_changed_is_not_used(name, digits_run):
    path = digits_run / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    error = error_of(regard.load, digits_run)
    assert f"{name}' is damaged" in error.what and "manifest.json" in error.why
    if name == "config.toml":
        assert "is damaged" in error_of(regard.train, str(digits_run), out=digits_run.with_name("another")).what


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(value, run):
    (run / "manifest.json").unlink()
    weights = load_file(run / "model.safetensors")
    name = next(iter(weights))
    weights[name][0] = value
    save_file(weights, run / "model.safetensors")
    error = error_of(regard.load, run)
    assert "not finite" in error.what and name in error.why


def test_a_file_changed_on_purpose_is_used_once_the_manifest_says_so(run):
    config = run / "config.toml"
    config.write_text(config.read_text().replace("seed = 1", "seed = 2"))
    assert '"edited" in place of its digest' in error_of(open_run, run).fix
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["sha256"]["config.toml"] = "edited"
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert open_run(run).settings.seed == 2


# ---------------------------------------------------------------- nothing lost, nothing silent


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.fixture
def tuned(digits_run: Path, tmp_path: Path) -> Path:
    """A run that starts from another, finished."""
    steps = ["training.steps=4", "training.validate_every=2"]
    return regard.train("digits", *steps, "seed=2", out=tmp_path / "tuned", start_from=digits_run)


def test_a_run_whose_checkpoints_are_all_damaged_begins_again_where_it_began(tuned, capfd):
    before = (tuned / "model.safetensors").read_bytes()
    for checkpoint in tuned.glob("checkpoints/step-*"):
        damage(checkpoint / "model.safetensors")
    regard.train(str(tuned), resume=True)
    said = " ".join(capfd.readouterr().err.split())
    assert "No checkpoint" in said and "begins again" in said
    assert (tuned / "model.safetensors").read_bytes() == before


def test_it_does_not_begin_again_from_other_weights(digits_run, tuned):
    for checkpoint in tuned.glob("checkpoints/step-*"):
        damage(checkpoint / "model.safetensors")
    regard.train(str(digits_run), "training.steps=20", resume=True)
    error = error_of(regard.train, str(tuned), resume=True)
    assert "cannot begin again" in error.what and str(digits_run / "model.safetensors") in error.why


@pytest.mark.parametrize("stray", ["step-99999", "step-x", "step-", "step-3.5", "step--1", "other"])
def test_stray_names_among_checkpoints_and_samples_do_not_matter(stray, run):
    (run / "checkpoints" / stray).mkdir()
    (run / "samples").mkdir(exist_ok=True)
    (run / "samples" / f"{stray}.txt").write_text("")
    regard.train(str(run), "training.steps=6", resume=True)
    assert json.loads((run / "summary.json").read_text())["steps"] == 6


@pytest.mark.parametrize("line", ["[1]", "{}", '{"loss": 1}', '{"step": "4"}', "7", "[" * 100_000, '{"step": 3'])
def test_lines_of_metrics_that_say_nothing_are_skipped(line, run):
    metrics = run / "metrics.jsonl"
    metrics.write_text(metrics.read_text() + line + "\n")
    regard.train(str(run), "training.steps=6", resume=True)
    assert [json.loads(each)["step"] for each in metrics.open()][-1] == 6


@pytest.mark.parametrize("content", ["[]", "7", '{"train": []}', "[" * 100_000, "", "null"])
def test_a_file_of_another_form_is_an_error(content, digits_run):
    (digits_run / "manifest.json").unlink()
    (digits_run / "data.json").write_text(content)
    error = error_of(regard.train, str(digits_run), "training.steps=9", resume=True)
    assert "Cannot read data.json" in error.what


@pytest.mark.parametrize("content", ["[]", "{}", '{"sha256": []}', '{"sha256": {"a": 1}, "being_written": {}}', "{"])
def test_a_manifest_of_another_form_is_an_error(content, run):
    (run / "manifest.json").write_text(content)
    error = error_of(regard.load, run)
    assert "manifest.json' is damaged" in error.what


def test_a_second_training_in_the_same_folder_is_refused(run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with locked(run):
        error = error_of(regard.train, str(run), "training.steps=6", resume=True)
        assert "is in use" in error.what and f"process {os.getpid()} on" in error.why and "--out" in error.fix
    assert {path: path.read_bytes() for path in before} == before
    regard.train(str(run), "training.steps=6", resume=True)


def test_a_refused_training_does_not_remove_what_it_did_not_make(tmp_path, monkeypatch):
    """Another process may take a folder as soon as it is there."""
    create = RunFolder.create

    def taken_at_once(*arguments, **values):
        folder = create(*arguments, **values)
        held.enter_context(locked(folder.path))
        return folder

    monkeypatch.setattr(RunFolder, "create", taken_at_once)
    with ExitStack() as held:
        assert "is in use" in error_of(regard.train, "reverse", *TINY, out=tmp_path / "run").what
        assert (tmp_path / "run" / "config.toml").is_file()


def history(run: Path) -> list[dict]:
    return json.loads((run / "environment.json").read_text())


def test_conditions_that_change_the_last_bits_are_told_and_kept(run, capfd):
    threads = torch.get_num_threads()
    try:
        regard.train(str(run), "training.steps=6", "training.validate_every=3", resume=True)
        assert "other conditions" not in capfd.readouterr().err
        regard.train(str(run), "training.steps=8", f"system.threads={threads + 1}", resume=True)
    finally:
        torch.set_num_threads(threads)
    said = " ".join(capfd.readouterr().err.split())
    assert f"torch threads {threads} → {threads + 1}" in said and f"system.threads={threads}" in said
    assert [(entry["from_step"], entry["torch_threads"]) for entry in history(run)] == [
        (0, threads),
        (4, threads),
        (6, threads + 1),
    ]


def test_the_environment_of_an_earlier_version_is_kept(run):
    (run / "manifest.json").unlink()
    (run / "environment.json").write_text('{"torch": "1.0"}')
    regard.train(str(run), "training.steps=6", resume=True)
    assert history(run)[0] == {"torch": "1.0"} and history(run)[1]["from_step"] == 4


def test_a_run_without_a_manifest_is_used_with_a_warning(run, capfd):
    regard.load(run)
    assert "manifest" not in capfd.readouterr().err
    (run / "manifest.json").unlink()
    regard.load(run)
    assert "has no manifest.json" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["data.json", "scale.json", "environment.json"])
def test_a_file_that_is_gone_is_not_made_anew(name, digits_run):
    """Its content may have been another."""
    (digits_run / name).unlink()
    error = error_of(regard.train, str(digits_run), "training.steps=9", resume=True)
    assert f"Cannot read {name}" in error.what


def test_what_it_started_from_cannot_be_forgotten(digits_run, tuned):
    for checkpoint in tuned.glob("checkpoints/step-*"):
        damage(checkpoint / "model.safetensors")
    (tuned / "start.json").unlink()
    assert "Cannot read start.json" in error_of(regard.train, str(tuned), resume=True).what


def test_a_fine_tuning_is_continued_by_its_own_settings(digits_run, tuned):
    steps = ["training.steps=4", "training.validate_every=2", "seed=2"]
    error = error_of(regard.train, "digits", *steps, out=tuned, resume=True)
    assert "was started from" in error.what and f"--from {digits_run}" in error.fix
    digits_run.rename(digits_run.with_name("moved"))
    error = error_of(regard.train, "digits", *steps, out=tuned, resume=True, start_from=digits_run)
    assert "no longer there" in error.what and f"regard train {tuned} --resume" in error.fix
    regard.train(str(tuned), resume=True)


def test_a_folder_that_was_moved_while_it_was_trained_is_told(tmp_path, monkeypatch):
    update = Trainer._update

    def move_at_three(self, step, batch):
        if step == 3:
            self.folder.path.rename(tmp_path / "moved")
        return update(self, step, batch)

    monkeypatch.setattr(Trainer, "_update", move_at_three)
    error = error_of(regard.train, "reverse", *TINY, out=tmp_path / "run")
    assert "If it was moved" in error.fix and "Nothing was saved" not in error.fix
    assert (tmp_path / "moved" / "checkpoints" / "step-2").is_dir()


def test_a_gpu_wakes_while_data_is_prepared_and_the_curves_are_drawn_before_the_summary(tmp_path, monkeypatch):
    seen: list[str] = []
    prepare, summary = Synthetic.prepare, RunFolder.write_json

    @contextmanager
    def waking(hardware: Hardware) -> Iterator[None]:
        seen.append("waking")
        yield
        seen.append("awake")

    def write_json(self, name, content):
        if name == "summary.json":
            seen.append("summary")
        summary(self, name, content)

    monkeypatch.setattr(Hardware, "waking", waking)
    monkeypatch.setattr(Synthetic, "prepare", lambda self: (seen.append("prepared"), prepare(self))[1])
    monkeypatch.setattr(Synthetic, "draw", lambda self: (threading.Event().wait(0.05), seen.append("drawn"))[1])
    monkeypatch.setattr(RunFolder, "write_json", write_json)
    regard.train("reverse", *TINY, out=tmp_path / "run")
    assert seen == ["waking", "prepared", "awake", "drawn", "summary"]


def test_what_goes_wrong_with_a_picture_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(Synthetic, "draw", raising(OSError("no room for it")))
    assert "no room for it" in error_of(regard.train, "reverse", *TINY, out=tmp_path / "run").why
