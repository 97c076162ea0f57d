"""The manifest of a run: valid at any moment, whatever is written and whenever it is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from expect import error_of
from regard.training import manifest as module
from regard.training.folder import RunFolder
from regard.training.manifest import Manifest, check


def written(folder: Path) -> dict[str, dict[str, str]]:
    return json.loads((folder / "manifest.json").read_text())


def test_every_file_of_a_run_is_listed_and_those_for_people_are_not(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_json("labels.json", ["a", "b"])
    folder.write_text("README.md", "# a run")
    folder.write_text("samples/step-1.txt", "a sample")
    folder.manifest.close()
    assert written(tmp_path)["sha256"].keys() == {"labels.json"}
    assert written(tmp_path)["being_written"] == {}
    assert RunFolder(tmp_path).read_json("labels.json", list[str]) == ["a", "b"]


def test_what_is_damaged_is_not_read(tmp_path):
    RunFolder(tmp_path).write_json("labels.json", ["a", "b"])
    (tmp_path / "labels.json").write_text('["a", "c"]')
    assert "is damaged" in error_of(RunFolder(tmp_path).read_json, "labels.json").what


class Killed(BaseException):
    """Nothing is done after it."""


def killed_at(call: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The n-th call of a function of the module ends the process."""
    function, calls = getattr(module, call), iter(range(1, 100))

    def act(*arguments: object) -> object:
        if next(calls) == number:
            raise Killed
        return function(*arguments)

    monkeypatch.setattr(module, call, act)


@pytest.mark.parametrize("call", ["write_atomically", "move_into_place"])
@pytest.mark.parametrize("again", ["move_into_place", "write_atomically", None])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_kill_at_any_moment_leaves_a_valid_run(call, number, again, tmp_path, monkeypatch):
    """Two kills: one while files are written, another while they are written again."""
    RunFolder(tmp_path).write_text("a.json", "1")
    for name, at in ((call, number), (again, number)):
        if name is not None:
            with monkeypatch.context() as patch:
                killed_at(name, at, patch)
                folder = RunFolder(tmp_path)
                try:
                    for content in ("2", "3"):
                        folder.write_text("a.json", content)
                        folder.write_text("b.json", content)
                except Killed:
                    pass
            for name in ("a.json", "b.json"):
                if (tmp_path / name).exists():
                    check(tmp_path, name)
    folder = RunFolder(tmp_path)
    for name in ("a.json", "b.json"):
        folder.write_text(name, "4")
    folder.manifest.close()
    assert written(tmp_path)["being_written"] == {}
    assert RunFolder(tmp_path).read_json("b.json", int) == 4


def test_a_write_that_fails_leaves_the_old_file_valid(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    folder.write_text("a.json", "1")
    with monkeypatch.context() as patch:
        patch.setattr(module, "move_into_place", lambda *paths: (_ for _ in ()).throw(OSError("no room")))
        with pytest.raises(OSError):
            folder.write_text("a.json", "2")
    folder.write_text("b.json", "3")
    folder.manifest.close()
    assert RunFolder(tmp_path).read_json("a.json", int) == 1


def test_files_of_an_earlier_version_are_not_checked(tmp_path):
    (tmp_path / "labels.json").write_text("[]")
    assert Manifest.read(tmp_path).agrees("labels.json")
    assert RunFolder(tmp_path).read_json("labels.json", list[str]) == []
