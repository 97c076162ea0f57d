"""What a command loads before it knows what to do: help and mistakes come without torch; settings are read once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard import recipes
from regard.cli.app import app

# Runs the commands in one process; of each the exit code, its error, and the modules that are loaded by then.
PROGRAM = """
import contextlib, io, json, sys
from regard.cli import main
results = []
for command in json.load(sys.stdin):
    sys.argv, said, shown = ["regard", *command], io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(shown):
        try:
            main()
        except SystemExit as end:
            code = end.code
    names = ("torch", "numpy", "pydantic", "torch._dynamo", "sympy", "matplotlib", "sklearn")
    loaded = [name for name in names if name in sys.modules]
    results.append([code, said.getvalue(), shown.getvalue(), loaded])
print(json.dumps(results))
"""

MISTAKES = {
    "train demo training.stepz=5": "'training.stepz'",
    "train demo training.steps=many": "'training.steps' cannot be 'many'",
    "train demo model.heads=7": "heads = 7",
    "train demo model.mixer=mamba": "'model.mixer' cannot be 'mamba'",
    "train demo model.hyenna.order=3": "'model.hyenna'",
    "train demo training.packing=maybe": "'training.packing' cannot be 'maybe'",
    "train demo data.max_length=999": "data.max_length = 999",
    "train demo decoding.beam=0": "'decoding.beam' cannot be 0",
    "train demo synthetic.length=4": "no effect on the task 'translate'",
    "train digits model.patch=3": "patches of 3 x 3",
    "train digits-pixels images.colour=true": "images.colour",
    "train reverse synthetic.length=5": "length = 5 is odd",
    "train shakespeare-cpu training.row_length=1": "training.row_length = 1",
    "train words embeddings.width=0": "'embeddings.width' cannot be 0",
    "train demo task=sing": "'task' cannot be 'sing'",
    "train nothing": "no recipe 'nothing'",
    "train missing.toml": "missing.toml",
    "doctor demo seed=-1": "'seed' cannot be -1",
    "evaluate missing": "'missing' is not a run folder",
    "evaluate missing --split train": "no split 'train'",
    "explain missing --what nothing": "'nothing'",
    "init sing": "no task 'sing'",
    "trane demo": "no verb 'trane'",
    "train --stepz": "--stepz",
}


def executed(*commands: str, cwd: Path) -> list[tuple[int, str, str, list[str]]]:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([command.split() for command in commands]),
        capture_output=True,
        text=True,
        cwd=cwd,
        check=True,
    )
    return json.loads(process.stdout)


def test_help_loads_neither_torch_nor_numpy_nor_pydantic(tmp_path):
    everything, version, *verbs = executed("--help", "--version", "train --help", "explain --help", cwd=tmp_path)
    for code, said, shown, loaded in (everything, version, *verbs):
        assert (code, said) == (0, "")
        assert "regard" in shown
        assert not {"torch", "numpy"} & set(loaded)
    assert everything[-1] == version[-1] == []  # typer itself asks for pydantic where a verb has options


def test_a_mistake_is_reported_before_torch_is_loaded(tmp_path):
    results = executed(*MISTAKES, cwd=tmp_path)
    for (command, says), (code, said, _, loaded) in zip(MISTAKES.items(), results, strict=True):
        assert says in said, command
        assert code == (1 if "not a run folder" in says else 2), command
        assert len(said.splitlines()) == 3, command
        assert "torch" not in loaded, command
    assert not list(tmp_path.iterdir())


def test_to_use_a_run_loads_no_compiler_and_nothing_that_draws(tiny_run, tmp_path):
    run = str(tiny_run("translate"))
    (tmp_path / "in").write_text("The dog sleeps.\n")
    for code, said, shown, loaded in executed(f"evaluate {run}", f"translate {run} {tmp_path / 'in'}", cwd=tmp_path):
        assert not code, said
        assert shown
        assert loaded == ["torch", "numpy", "pydantic"]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """All settings that are read."""
    trees: list[object] = []
    validate = recipes.validate
    monkeypatch.setattr(recipes, "validate", lambda tree: trees.append(tree) or validate(tree))
    return trees


def test_explain_reads_the_settings_of_a_run_once(trained, tmp_path, read):
    picture = tmp_path / "positions.png"
    result = CliRunner().invoke(app, ["explain", str(trained.folder.path), "--what", "positions", "-o", str(picture)])
    assert result.stdout.strip() == str(picture) and picture.is_file()
    assert len(read) == 1


@pytest.mark.parametrize("arguments", [["train", "reverse"], ["doctor", "reverse"]])
def test_a_recipe_is_read_once(arguments, tmp_path, monkeypatch, read):
    monkeypatch.chdir(tmp_path)
    few = ["training.steps=1", "training.validate_every=1", "training.tokens_per_batch=64", "synthetic.length=8"]
    result = CliRunner().invoke(app, [*arguments, *few, "synthetic.test_sequences=5", "--json"])
    assert result.exit_code == 0 and json.loads(result.stdout)
    assert len(read) == 1


def test_ctrl_c_waits_while_something_is_imported(tmp_path):
    """torch, numpy and others swallow it, and go on half-imported."""
    (tmp_path / "swallowing.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('imported', flush=True)\n"
        "except KeyboardInterrupt:\n"
        "    pass\n"
    )
    program = (
        "import signal\n"
        "from regard.cli import app\n"
        "signal.signal(signal.SIGINT, app._interrupt)\n"
        "import swallowing\n"
        "signal.pause()\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    assert shown.stdout == "imported\n" and "KeyboardInterrupt" in shown.stderr
