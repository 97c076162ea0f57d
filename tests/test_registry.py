"""The registry: every name leads to its class; plug-ins add parts, and only when the user asks for them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard
from expect import error_of
from regard import registry
from regard.cli.app import _with_plugins
from regard.errors import UsageError
from regard.recipes import resolve

KINDS = list(registry.KINDS)
PARTS = '''
"""One part of each kind."""

from pathlib import Path

import torch
from pydantic import Field

from regard.layers.mixer import Mixer
from regard.layers.positions import Positions
from regard.settings import PartSettings
from regard.tasks.synthetic import Synthetic
from regard.training.optimizer import Method


class ShiftSettings(PartSettings):
    by: int = Field(1, gt=0, description="how far back")


class Shift(Mixer):
    Settings = ShiftSettings

    def __init__(self, settings, causal=False, decoder=False):
        super().__init__(settings, causal, decoder)
        self.by = settings.own("mixer", ShiftSettings).by
        self.to_out = torch.nn.Linear(settings.width, settings.width)

    def forward(self, x_BTD, context):
        return self.to_out(x_BTD.roll(self.by, 1) if not context.causal else self._before(x_BTD))

    def _before(self, x_BTD):
        return torch.nn.functional.pad(x_BTD, (0, 0, self.by, 0))[:, : x_BTD.shape[1]]


class Halves(Positions):
    def code(self, positions):
        return positions[..., None] / 2 ** torch.arange(self.width, device=positions.device)


class Sgd(Method):
    @staticmethod
    def make(weights, settings):
        return [(torch.optim.SGD(weights.groups(settings.weight_decay), lr=weights.rate()), 1.0)]


class Parity(Synthetic):
    pass


MIXERS = {"shift": Shift}
POSITIONS = {"halves": Halves}
OPTIMIZERS = {"sgd": Sgd}
TASKS = {"parity": Parity}
(Path(__file__).parent / "executed").touch()
'''
TINY = ["model.layers=1", "model.width=16", "model.heads=2", "model.feedforward=16", "synthetic.length=8"]
TINY += ["synthetic.vocabulary=4", "synthetic.test_sequences=10", "training.tokens_per_batch=64", "training.steps=2"]
TINY += ["training.validate_every=2"]
ALL = ["task=parity", "model.mixer=shift", "model.shift.by=2", "model.positions=halves", "training.optimizer=sgd"]


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """What a test registers is forgotten after it."""
    before = {kind: dict(table) for kind, table in registry.KINDS.items()}
    yield
    forget(before)


def forget(before: dict[str, dict[str, object]]) -> None:
    """As a new process, in which no plug-in is loaded."""
    registry._plugins.clear()
    for kind, table in registry.KINDS.items():
        table.clear()
        table.update(before[kind])


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """A plug-in that leaves a file behind wherever it is executed."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "parts.py").write_text(PARTS)
    return folder / "parts.py"


@pytest.fixture
def run(parts: Path, tmp_path: Path) -> Path:
    """A run with a part of each kind, in a process that has loaded nothing yet."""
    before = {kind: dict(table) for kind, table in registry.KINDS.items()}
    out = regard.train("reverse", *TINY, *ALL, out=tmp_path / "run", plugins=[parts])
    forget(before)
    return out


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_leads_to_a_class_with_settings(kind):
    for name in registry.names(kind):
        part = registry.load(kind, name)
        assert isinstance(part, type) and issubclass(part.Settings, regard.settings.Settings)
        assert registry.load(kind, name) is part


@pytest.mark.parametrize(("kind", "near", "name"), [("tasks", "trnslate", "translate"), ("mixers", "hiena", "hyena")])
def test_an_unknown_name_is_an_error_that_names_the_nearest(kind, near, name):
    error = error_of(registry.load, kind, near)
    assert error.exit_code == 2
    assert f"no {kind[:-1]} '{near}'" in error.what and f"'{name}'" in error.fix


@pytest.mark.parametrize(
    "setting", ["task=sing", "model.mixer=mamba", "model.positions=alibi", "training.optimizer=lion"]
)
def test_an_unknown_name_in_a_recipe_is_an_error_of_that_setting(setting):
    key, _, value = setting.partition("=")
    error = error_of(resolve, "demo", [setting])
    assert error.exit_code == 2
    assert f"'{key}' cannot be '{value}'" in error.what


# ---------------------------------------------------------------- plug-ins


def test_a_file_brings_parts_of_every_kind_and_a_run_is_trained_with_them(parts, tmp_path):
    out = regard.train("reverse", *TINY, *ALL, out=tmp_path / "run", plugins=[parts])
    loaded = regard.load(out)
    assert type(loaded) is registry.load("tasks", "parity")
    assert type(loaded.model.trunk.blocks[0].mixer) is registry.load("mixers", "shift")
    assert loaded.model.trunk.blocks[0].mixer.by == 2
    assert loaded.evaluate().metrics == json.loads((out / "summary.json").read_text())["metrics"]
    assert "by = 2                              # how far back" in (out / "config.toml").read_text()


def test_its_own_settings_are_checked(parts):
    registry.load_plugins([parts])
    changes = [*TINY, *ALL]
    assert "'model.shift.by' cannot be 0" in error_of(resolve, "reverse", [*changes, "model.shift.by=0"]).what
    assert "'by'" in error_of(resolve, "reverse", [*changes, "model.shift.bi=1"]).fix


def test_a_file_named_twice_is_executed_once(parts):
    registry.load_plugins([parts])
    (parts.parent / "executed").unlink()
    registry.load_plugins([parts, str(parts.parent / ".." / "plugins" / "parts.py")])
    assert not (parts.parent / "executed").exists()
    assert [plugin.path for plugin in registry.plugins()] == [parts]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("broken.py", "import nothing_of_this_name", "No module named 'nothing_of_this_name'"),
        ("broken.py", "1 +", "SyntaxError"),
        ("empty.py", "MIXER = {}", "defines none of TASKS, MIXERS, POSITIONS, OPTIMIZERS"),
        ("empty.py", "MIXERS = {}", "brings nothing"),
        ("twice.py", 'OPTIMIZERS = {"mine": int}\nMIXERS = {"gru": int}', "a second 'gru'"),
        ("leaves.py", "raise SystemExit(3)", "SystemExit: 3"),
        ("list.py", "MIXERS = [int]", "MIXERS in the plug-in"),
        ("number.py", 'MIXERS = {"foo": 3}', "It is not a class with Settings."),
        ("class.py", 'TASKS = {"foo": int}', "It is not a class with Settings and about."),
        ("spaced.py", 'MIXERS = {"my mixer": int}', "letters, digits, - and _ only"),
        ("text.txt", "MIXERS = {}", "not a Python file"),
        ("missing.py", None, "Cannot read the plug-in"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_leaves_nothing_registered(name, content, says, tmp_path):
    before = {kind: registry.names(kind) for kind in KINDS}
    if content is not None:
        (tmp_path / name).write_text(content)
    error = error_of(registry.load_plugins, [tmp_path / name])
    assert name in error.what and says in str(error)
    assert {kind: registry.names(kind) for kind in KINDS} == before
    assert registry.plugins() == []


def test_what_a_file_prints_does_not_mix_with_results(parts, capsys):
    parts.write_text('print("hello")\n' + parts.read_text())
    registry.load_plugins(parts)
    shown = capsys.readouterr()
    assert (shown.out, "hello" in shown.err) == ("", True)


def test_a_part_may_not_have_the_name_of_a_setting(parts):
    parts.write_text(parts.read_text() + '\nMIXERS["width"] = MIXERS["shift"]\n')
    registry.load_plugins(parts)
    assert "has the name of a setting" in error_of(resolve, "reverse", ["model.mixer=width"]).why


def test_a_part_may_not_replace_that_of_another_plug_in(parts, tmp_path):
    registry.load_plugins([parts])
    (tmp_path / "other.py").write_text('MIXERS = {"shift": int}')
    assert "a second 'shift'" in error_of(registry.load_plugins, [tmp_path / "other.py"]).what


@pytest.mark.parametrize(
    "arguments",
    [["--plugin", "{}", "train", "demo"], ["train", "--plugin={}", "demo"], ["train", "demo", "--plugin", "{}"]],
)
def test_the_option_may_stand_anywhere_in_a_command(arguments, parts):
    assert _with_plugins([argument.format(parts) for argument in arguments]) == ["train", "demo"]
    assert "shift" in registry.names("mixers")


def test_after_two_dashes_the_option_is_an_argument_like_any_other(parts):
    assert _with_plugins(["translate", "--", "--plugin", str(parts)]) == ["translate", "--", "--plugin", str(parts)]
    assert not (parts.parent / "executed").exists()


# ---------------------------------------------------------------- runs


def test_a_run_records_the_name_and_the_hash_of_what_it_was_made_with(run, parts):
    digest = hashlib.sha256(parts.read_bytes()).hexdigest()
    assert json.loads((run / "plugins.json").read_text()) == {"parts.py": digest}


def test_a_run_that_uses_no_part_of_a_plug_in_records_none(parts, tmp_path):
    out = regard.train("reverse", *TINY, out=tmp_path / "run", plugins=[parts])
    assert not (out / "plugins.json").exists()


@pytest.mark.parametrize("act", [regard.load, lambda run: regard.train(str(run), resume=True)], ids=["load", "resume"])
def test_a_run_asks_for_its_plug_in_again(act, run, parts, capsys):
    with pytest.raises(UsageError) as caught:
        act(run)
    assert "parts.py" in caught.value.what
    assert "never executes code by itself" in caught.value.why and "--plugin" in caught.value.fix
    registry.load_plugins([parts])
    act(run)
    assert capsys.readouterr().err == ""


def test_a_plug_in_that_has_changed_is_used_with_a_warning(run, parts, capsys):
    parts.write_text(parts.read_text() + "\n# Changed.\n")
    regard.load(run, plugins=[parts])
    assert "parts.py is not what" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(UsageError, match=r"parts\.py has changed since the run"):
        regard.train(str(run), resume=True)


def test_a_run_folder_never_executes_what_lies_in_it(run, parts, tmp_path, monkeypatch):
    for name in ("parts.py", "__init__.py", "conftest.py", "regard.py", "sitecustomize.py"):
        shutil.copy(parts, run / name)
    (parts.parent / "executed").unlink()
    monkeypatch.chdir(run)
    with pytest.raises(UsageError, match=r"made with the plug-in parts\.py"):
        regard.load(".")
    regard.load(".", plugins=[parts]).evaluate()
    assert not (run / "executed").exists()
    assert (parts.parent / "executed").exists()
