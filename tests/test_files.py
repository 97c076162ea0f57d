"""Files that are whole or not there; folders that one process uses at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from expect import error_of
from regard import files
from regard.errors import RegardError
from regard.files import LOCK, locked, write_atomically

HOLD = """
import sys, time
from pathlib import Path
from regard.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(folder: Path) -> subprocess.Popen[str]:
    """Another process that has locked a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def take(folder: Path) -> None:
    with locked(folder):
        pass


def test_a_folder_is_for_one_process_and_the_other_is_named(tmp_path):
    other = hold(tmp_path)
    error = error_of(take, tmp_path)
    assert "is in use" in error.what and f"process {other.pid} on {os.uname().nodename}" in error.why
    other.communicate()
    take(tmp_path)
    assert (tmp_path / LOCK).read_bytes() == b""


def test_the_lock_of_a_killed_process_is_stale(tmp_path):
    other = hold(tmp_path)
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert str(other.pid) in (tmp_path / LOCK).read_text()
    take(tmp_path)


@pytest.mark.parametrize(
    ("owner", "refused"),
    [("{pid} {host}", True), ("4194305 {host}", False), ("{pid} elsewhere", True), ("", False), ("x {host}", False)],
)
def test_without_locks_of_the_file_system_the_process_named_decides(owner, refused, tmp_path, monkeypatch):
    def no_locks(*arguments: object) -> None:
        raise OSError(files.NO_LOCKS[0], "Function not implemented")

    monkeypatch.setattr(files.fcntl, "flock", no_locks)
    (tmp_path / LOCK).write_text(owner.format(pid=os.getpid(), host=os.uname().nodename))
    if refused:
        assert f"delete '{tmp_path / LOCK}' if it no longer runs" in error_of(take, tmp_path).fix
    else:
        take(tmp_path)


def test_a_folder_that_cannot_be_locked_is_told(tmp_path):
    assert "Cannot write" in error_of(take, tmp_path / "missing").what


def test_a_file_and_then_its_folder_are_on_disk(tmp_path, monkeypatch):
    """Without the second, a power cut may leave the folder as it was before the file was renamed."""
    done = []
    flush, replace = files.flush, Path.replace
    monkeypatch.setattr(files, "flush", lambda path: done.append(path.name) or flush(path))
    monkeypatch.setattr(Path, "replace", lambda path, target: done.append("renamed") or replace(path, target))
    write_atomically(tmp_path / "a.json", b"{}")
    assert done == [".a.json.tmp", "renamed", tmp_path.name]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
    write_atomically(tmp_path / "a", b"old")
    (tmp_path / ".a.tmp").mkdir()
    with pytest.raises(OSError):
        write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"


def test_errors_are_ours(tmp_path):
    with pytest.raises(RegardError), locked(tmp_path):
        take(tmp_path)
