"""What every registered task promises: it trains, resumes to the byte, moves, loads, and refuses what is wrong."""

from __future__ import annotations

import itertools
import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch.nn.utils import parameters_to_vector
from typer.testing import CliRunner

import regard
from command import regard as command
from corpora import equal
from kinds import KINDS, Kind
from regard import recipes, registry
from regard.cli.app import app
from regard.data.batch import Batch, DataState
from regard.errors import Interrupted, RegardError, UsageError
from regard.hardware import Hardware, seed_everything
from regard.layers import attention
from regard.layers.attention_kernel import attend
from regard.recipes import starter_recipe
from regard.recipes.writing import flat
from regard.run import open_run, read_recipe, require
from regard.tasks.starting import HEADS, OWN
from regard.training import head_loss
from regard.training.loop import Trainer
from regard.training.loss import training_loss

every_task = pytest.mark.parametrize("task", registry.names("tasks"))
with_data = pytest.mark.parametrize("task", [name for name, kind in KINDS.items() if kind.data])


def data_of(kind: Kind, request: pytest.FixtureRequest) -> Path | None:
    return request.getfixturevalue(kind.data) if kind.data else None


@pytest.fixture
def run(task: str, tiny_run: Callable[[str], Path]) -> Path:
    """A finished run of the task."""
    return tiny_run(task)


@pytest.fixture(scope="module")
def runs_to_look_at() -> dict[str, Path]:
    """A run of each task that no test changes."""
    return {}


def metrics_of(run: Path) -> dict[str, float]:
    return json.loads((run / "summary.json").read_text())["metrics"]


def prepared(run: Path, data: Path | None, seed: int = 1) -> Any:
    """The run's task with its data and a new model, ready to train."""
    task = open_run(run, data)
    task.settings = task.settings.model_copy(update={"seed": seed})
    task.hardware = Hardware.choose(task.settings.system)
    task.prepare()
    seed_everything(seed)
    task.model = task.build()
    return task


def assert_scores(metrics: dict[str, float], run: Path, task: str) -> None:
    """They are those of the summary."""
    shared = metrics.keys() & metrics_of(run).keys()
    assert registry.load("tasks", task).about.metrics[0] in shared
    assert {name: metrics[name] for name in shared} == pytest.approx({name: metrics_of(run)[name] for name in shared})


def batches(task: Any, state: DataState, count: int) -> list[tuple[Batch, DataState]]:
    return list(itertools.islice(task.stream.batches(state), count))


@every_task
def test_it_is_tested_at_all(task):
    assert task in KINDS, f"add a tiny training of '{task}' to tests/kinds.py"


@every_task
def test_every_norm_of_its_model_has_the_epsilon_of_the_settings(task, run, request):
    task = prepared(run, data_of(KINDS[task], request))
    if "model" not in type(task.settings).model_fields:
        assert not any("Norm" in type(module).__name__ for module in task.model.modules())
        return
    task.settings = task.settings.with_section("model", norm_epsilon=2e-7, norm="pre", query_key_norm=True)
    found = [module.eps for module in task.build().modules() if hasattr(module, "eps")]
    # One block: two norms around its parts, one of the queries and one of the keys; and one after it.
    assert len(found) >= 5
    assert set(found) == {2e-7}
    assert "norm_epsilon = 1e-05" in (run / "config.toml").read_text(), "what it was trained with is recorded"


# ---------------------------------------------------------------- training


@pytest.mark.parametrize("task", ["language", "pixels", "synthetic"])
def test_full_rows_are_causal_by_flag_and_need_no_mask(task, run, request, monkeypatch):
    """For which kernels have a faster way."""
    asked = []

    def watched(q, k, v, mask, dropout, causal, grouped):
        asked.append((mask, causal))
        return attend(q, k, v, mask, dropout, causal, grouped)

    task = prepared(run, data_of(KINDS[task], request))
    if task.settings.task == "language":
        task.settings = task.settings.with_section("data", documents="together")
    monkeypatch.setattr(attention, "attend", watched)
    task.loss(batches(task, DataState(), 1)[0][0])
    assert asked and set(asked) == {(None, True)}


@pytest.mark.parametrize("task", ["translate", "language", "masked", "pixels", "synthetic"])
@pytest.mark.parametrize("consistency", [0.0, 2.0])
def test_its_loss_is_that_of_whole_logits_in_small_chunks(task, run, consistency, request, monkeypatch):
    task = prepared(run, data_of(KINDS[task], request))
    task.settings = task.settings.with_section("training", consistency=consistency, label_smoothing=0.1)
    task.model.eval()  # no dropout
    batch = batches(task, DataState(), 1)[0][0].first(4)
    expected = training_loss(task.logits, batch, 0.1, consistency)
    wanted = torch.autograd.grad(expected, list(task.model.parameters()))
    monkeypatch.setattr(head_loss, "AT_A_TIME", {"cpu": 1})
    monkeypatch.setattr(head_loss, "FEWEST_ROWS", 16)
    monkeypatch.setattr(head_loss, "SMALL", 0)
    monkeypatch.setattr(type(task.model), "forward", None)  # whole logits are not asked for
    loss = task.loss(batch)
    found = torch.autograd.grad(loss, list(task.model.parameters()))
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    for mine, one in zip(found, wanted, strict=True):
        assert (mine - one).norm() <= 1e-5 * one.norm() + 1e-6


@every_task
def test_it_leaves_a_run_folder_with_all_that_is_promised(task, run, monkeypatch):
    monkeypatch.undo()
    open_run(run).draw()
    assert {path.name for path in run.iterdir()} >= {
        "config.toml",
        "config.json",
        "model.safetensors",
        "metrics.jsonl",
        "summary.json",
        "environment.json",
        "README.md",
        "plots",
        "checkpoints",
    }
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["task"], summary["steps"]) == (task, 8)
    assert set(registry.load("tasks", task).about.metrics[:1]) <= set(summary["metrics"])
    assert all(command.split()[0] in ("regard", "echo") for command in summary["next"])
    assert (run / "plots" / "curves.png").read_bytes().startswith(b"\x89PNG")
    for path in (path for path in run.rglob("*") if path.is_file()):
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                assert file.keys()
        else:  # a pickle starts with its protocol; torch.save makes a zip
            assert not path.read_bytes().startswith((b"\x80", b"PK\x03\x04")), path


@every_task
def test_stopped_and_resumed_it_gives_the_same_bytes(task, run, request, tmp_path, monkeypatch):
    kind = KINDS[task]
    update = Trainer._update

    def stop_at_six(self, step, batch):
        self.stop_asked = step == 6  # between two regular checkpoints
        return update(self, step, batch)

    arguments = {"out": tmp_path / "stopped", "data": data_of(kind, request)}
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Trainer, "_update", stop_at_six)
        regard.train(kind.recipe, *kind.overrides, **arguments)
    resumed = regard.train(kind.recipe, *kind.overrides, **arguments, resume=True)
    assert (resumed / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    assert metrics_of(resumed) == metrics_of(run)
    steps = [[json.loads(line)["step"] for line in (each / "metrics.jsonl").open()] for each in (resumed, run)]
    assert steps[0] == steps[1]


@every_task
def test_from_any_state_on_the_same_batches_come(task, run, request):
    opened = prepared(run, data_of(KINDS[task], request))
    first = batches(opened, DataState(), 12)
    for at in (0, 3, 10):
        [(batch, state)] = batches(opened, first[at][1], 1)
        expected, after = first[at + 1]
        assert state == after
        assert equal(batch, expected)


@every_task
def test_the_seed_decides_the_weights_and_the_order_of_the_data(task, run, request):
    one, again, other = (prepared(run, data_of(KINDS[task], request), seed) for seed in (1, 1, 2))
    weights = [parameters_to_vector(each.model.parameters()) for each in (one, again, other)]
    assert weights[0].equal(weights[1]) and not weights[0].equal(weights[2])
    [first], [same], [different] = (batches(each, DataState(), 1) for each in (one, again, other))
    assert equal(first[0], same[0]) and not equal(first[0], different[0])


@every_task
def test_any_split_into_micro_batches_gives_the_same_gradient(task, run, request):
    """Of the mean loss over all targets, however unevenly those are spread over the pieces."""
    opened = prepared(run, data_of(KINDS[task], request))
    trainer = Trainer(opened)
    trainer.model.eval()  # dropout differs from piece to piece
    [(batch, _)] = batches(opened, DataState(), 1)
    gradients = []
    for pieces in (1, 3):
        trainer.model.zero_grad()
        mean = sum(trainer.backward(piece, batch.targets).item() for piece in batch.split(pieces))
        assert mean == pytest.approx(opened.loss(batch).item() / batch.targets, rel=1e-5)
        gradients.append([parameter.grad.clone() for parameter in trainer.model.parameters()])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@every_task
def test_it_cannot_be_resumed_with_other_settings(task, run, request):
    kind = KINDS[task]
    for setting in ("seed=2", "training.learning_rate=0.123", kind.other):
        with pytest.raises(UsageError) as caught:
            regard.train(kind.recipe, *kind.overrides, setting, out=run, data=data_of(kind, request), resume=True)
        assert f"cannot be resumed with {setting.partition('=')[0]} = " in caught.value.what


# ---------------------------------------------------------------- a loaded run


@every_task
def test_loaded_it_scores_what_its_summary_says(task, run):
    loaded = regard.load(run)
    assert type(loaded) is registry.load("tasks", task)
    assert_scores(loaded.evaluate(**KINDS[task].evaluate).metrics, run, task)


@every_task
def test_the_command_scores_it_the_same_and_reads_its_settings_once(task, run, monkeypatch):
    read = []
    validate = recipes.validate
    monkeypatch.setattr(recipes, "validate", lambda tree: read.append(tree) or validate(tree))
    options = ["--no-baselines"] if KINDS[task].evaluate else []
    result = CliRunner().invoke(app, ["evaluate", str(run), "--json", *options])
    shown = json.loads(result.stdout)
    assert_scores(shown["metrics"], run, task)
    assert [score["name"] for score in shown["scores"]] == list(shown["metrics"])
    assert len(read) == 1


def files_of(run: Path) -> dict[Path, tuple[bytes, int, int]]:
    """Every file of a run but for its pictures: what is in it, and whether it was written again."""
    files = [path for path in run.rglob("*") if path.is_file() and path.parent != run / "plots"]
    return {path: (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


@every_task
def test_scoring_it_writes_to_no_file_of_the_run(task, run):
    before = files_of(run)
    for split in ("test", "valid"):
        regard.load(run).evaluate(split=split, **KINDS[task].evaluate)
    assert files_of(run) == before
    assert len(before) > 5


# Python for a process that can write to nothing below a folder, as on a medium that is read-only.
READ_ONLY = """
import errno, os, sys
def look(event, arguments):
    writes = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.utime")
    flags = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    if event == "open" and isinstance(arguments[2], int):
        writes = bool(arguments[2] & flags)
    if writes and any(str(path).startswith({folder!r}) for path in arguments[:2]):
        raise OSError(errno.EROFS, "Read-only file system", str(arguments[0]))
sys.addaudithook(look)
"""


@every_task
def test_scores_are_printed_where_nothing_can_be_written_to_the_run(task, run):
    read_only, before = READ_ONLY.format(folder=str(run)), files_of(run)
    options = ["--no-baselines"] if KINDS[task].evaluate else []
    result = command("evaluate", run, "--json", *options, before=read_only)
    shown = json.loads(result.stdout)
    assert_scores(shown["metrics"], run, task)
    pictures = [name for name in shown if name.endswith("_picture")]
    assert [shown[name] for name in pictures] == [None] * len(pictures)
    assert result.stderr.count("could not be written") == len(pictures)
    if pictures:  # and for people
        assert "Read-only file system" in result.stderr
        decisive = registry.load("tasks", task).about.metrics[0]
        assert decisive in command("evaluate", run, *options, before=read_only).stdout
    if hasattr(registry.load("tasks", task), "probe"):
        probed = command("probe", run, "--json", before=read_only)
        assert json.loads(probed.stdout)["layers"] and json.loads(probed.stdout)["picture"] is None
        assert "could not be written" in probed.stderr
        failed = command("probe", run, "--json", "-o", run / "mine.png", before=read_only, code=1)
        assert json.loads(failed.stdout)["layers"] == json.loads(probed.stdout)["layers"]
        assert "Cannot write" in failed.error[0]
    assert files_of(run) == before


@every_task
def test_what_it_computes_can_be_looked_into(task, run):
    """All that a trace shows is what the model computes; what has no layers says so."""
    loaded = regard.load(run)
    given = [loaded.example, *([loaded.example_context] if task == "answer" else [])]
    if task == "embeddings":
        with pytest.raises(UsageError, match="no layers"):
            loaded.trace(*given)
        return
    traced = loaded.trace(*given)
    assert traced.difference < 1e-5
    assert all(len(stack.stack.pieces) == len(stack.layers[0].after_TD) for stack in traced.stacks)
    assert all(answer.label for answer in traced.subject.answers)
    if traced.subject.readout is not None:
        assert traced.lens().agreement.values[-1] == 100
        assert traced.contributions().notes["error"] < 1e-4


@every_task
def test_its_settings_survive_writing_and_reading(task, run, request):
    kind = KINDS[task]
    given, kept = read_recipe(kind.recipe, kind.overrides, data_of(kind, request)), open_run(run).settings
    # Each worker has its own copy of the data, and another may have trained the run.
    assert flat(kept) | {"data.root": ""} == flat(given) | {"data.root": ""}


@every_task
def test_an_ability_that_it_does_not_have_is_refused_and_its_own_verb_named(task, run):
    opened = open_run(run)
    missing = next(name for name in ("translate", "fill") if not hasattr(opened, name))
    with pytest.raises(UsageError) as caught:
        require(opened, missing)
    assert opened.about.noun in caught.value.what
    assert f"regard {opened.about.verb} {run}" in caught.value.fix


# ---------------------------------------------------------------- starting from another run


@pytest.mark.parametrize("task", [name for name in KINDS if name in registry.load("tasks", name).starts_from])
def test_it_starts_from_the_body_of_a_run_of_its_kind(task, run, request, tmp_path):
    kind = KINDS[task]
    own = [setting for setting in kind.overrides if not setting.startswith(("model.", "tokenizer."))]
    own += ["training.steps=1", "training.learning_rate=1e-9", "training.warmup=0"]
    out = regard.train(kind.recipe, *own, out=tmp_path / "more", data=data_of(kind, request), start_from=run)
    before, after = load_file(run / "model.safetensors"), load_file(out / "model.safetensors")
    assert before.keys() == after.keys()
    body = [name for name in after if not name.startswith(HEADS)]
    torch.testing.assert_close({name: after[name] for name in body}, {name: before[name] for name in body})
    for name in registry.load("tasks", task).handed_on:
        assert (out / name).read_bytes() == (run / name).read_bytes()
    old, new, plain = (
        flat(each) for each in (open_run(run).settings, open_run(out).settings, read_recipe(kind.recipe))
    )
    assert new["training.start_from"] == str(run)
    for key in (key for key in new if key.startswith(("model.", "tokenizer."))):
        assert new[key] == (plain if key.removeprefix("model.") in OWN else old)[key], key


@every_task
def test_what_it_cannot_start_from_is_refused(task, request, tiny_run, runs_to_look_at, tmp_path):
    kind, able = KINDS[task], registry.load("tasks", task).starts_from
    says = "cannot be started from" if able else "'training.start_from' has no effect"
    for source in KINDS.keys() - set(able):
        if source not in runs_to_look_at:
            runs_to_look_at[source] = tiny_run(source)
        given = {"data": data_of(kind, request), "start_from": runs_to_look_at[source]}
        with pytest.raises(UsageError, match=says):
            regard.train(kind.recipe, out=tmp_path / "run", **given)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- data


@with_data
def test_moved_data_is_the_same_and_changed_data_is_noticed(task, run, request, tmp_path, capsys):
    kind, moved = KINDS[task], tmp_path / "elsewhere"
    shutil.copytree(request.getfixturevalue(kind.data), moved)
    assert_scores(regard.load(run, data=moved).evaluate(**kind.evaluate).metrics, run, task)
    regard.train(kind.recipe, *kind.overrides, "training.steps=9", out=run, data=moved, resume=True)
    assert regard.load(run).settings.data.root == str(moved)
    assert "changed" not in capsys.readouterr().err

    if kind.test != kind.train:
        kind.spoil(moved / kind.test)
        regard.load(run).evaluate(**kind.evaluate)
        assert "test data" in (said := " ".join(capsys.readouterr().err.split())) and "has changed" in said

    kind.spoil(moved / kind.train)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(RegardError, match=r"training data of .* has changed"):
        regard.train(kind.recipe, *kind.overrides, "training.steps=16", out=run, data=moved, resume=True)
    assert {path: path.read_bytes() for path in before} == before

    shutil.rmtree(moved)
    with pytest.raises(RegardError, match="elsewhere"):
        regard.load(run).evaluate(**kind.evaluate)


@with_data
def test_missing_data_is_named_and_nothing_is_left(task, tmp_path):
    kind = KINDS[task]
    with pytest.raises(RegardError) as caught:
        regard.train(kind.recipe, *kind.overrides, kind.missing, out=tmp_path / "run", data=tmp_path)
    assert "no" in caught.value.what and "missing" in caught.value.what
    assert not list(tmp_path.iterdir())


@every_task
def test_doctor_can_examine_its_data(task, request):
    kind = KINDS[task]
    settings = read_recipe(kind.recipe, kind.overrides, data_of(kind, request))
    figures, advice = registry.load("tasks", task).examine(settings)
    assert figures
    assert all(isinstance(line, str) and line for line in advice)


# ---------------------------------------------------------------- settings


@every_task
def test_a_setting_that_it_does_not_have_is_refused(task):
    kind = KINDS[task]
    for setting, says in (("training.stepz=3", "Did you mean 'steps'?"), ("xxqqxx.a=1", "Valid names")):
        with pytest.raises(UsageError) as caught:
            read_recipe(kind.recipe, [setting])
        assert says in caught.value.fix


@every_task
def test_its_starter_recipe_is_complete_commented_and_its_own(task, tmp_path):
    text = starter_recipe(task)
    tree = tomllib.loads(text)
    assert tree["task"] == task
    starter = registry.load("tasks", task).about.starter
    for name, section in read_recipe(starter).sections().items():
        assert set(type(section).model_fields) <= set(tree[name]), name
    tables = {f"[{name}.{table}]" for name, values in tree.items() if isinstance(values, dict) for table in values}
    lines = [line for line in text.split("\n[", 1)[1].splitlines() if " = " in line]
    commented = [line for line in lines if len(line.partition(" # ")[2]) > 5]
    assert len(lines) - len(commented) <= sum(text.count(table) for table in tables), "but for tables of idle parts"
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    own = [f"data.root={tmp_path}"] if "data" in tree else []
    assert read_recipe(str(tmp_path / "mine.toml")) == read_recipe(starter, [*own, "recipe=mine"])


def test_an_unknown_task_is_an_error_everywhere(tmp_path):
    (tmp_path / "mine.toml").write_text('task = "sing"\n')
    with pytest.raises(UsageError, match="'task' cannot be 'sing'"):
        read_recipe(str(tmp_path / "mine.toml"))
    with pytest.raises(UsageError, match="no task 'sing'"):
        registry.load("tasks", "sing")
    (tmp_path / "run").mkdir()
    (tmp_path / "mine.toml").rename(tmp_path / "run" / "config.toml")
    with pytest.raises(UsageError, match="'task' cannot be 'sing'"):
        regard.load(tmp_path / "run")
