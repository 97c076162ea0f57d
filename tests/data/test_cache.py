"""The cache: written once for every key, complete or not there at all, and written again when it is damaged."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from expect import error_of
from regard.data.cache import cache_folder, cached

CONTENT = {"ids": b"some bytes", "offsets": b"\0\1\2\3"}


class Writer:
    """Writes the same files every time, and counts how often it is asked to."""

    def __init__(self, then: Callable[[], None] = lambda: None):
        self.calls, self.then = 0, then

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        for name, content in CONTENT.items():
            (folder / name).write_bytes(content)
        self.then()


def read(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in CONTENT}


def test_the_cache_is_where_the_settings_or_the_environment_say(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("") == tmp_path / "regard"
    assert cache_folder("elsewhere") == Path("elsewhere")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder("") == Path.home() / ".cache" / "regard"


def test_a_key_is_written_once_and_another_key_elsewhere(tmp_path):
    write = Writer()
    first = cached(tmp_path, ["a", "b"], write)
    assert cached(tmp_path, ["a", "b"], write) == first
    assert write.calls == 1
    assert read(first) == CONTENT
    others = [cached(tmp_path, key, write) for key in (["ab"], ["a", "b", ""], ["b", "a"])]
    assert write.calls == 4
    assert len({first, *others}) == 4


@pytest.mark.parametrize("name", [*CONTENT, "manifest.json"])
@pytest.mark.parametrize("left", [None, 0, 1, -1])
def test_a_missing_or_truncated_file_is_noticed_and_the_folder_written_again(tmp_path, name, left):
    path = cached(tmp_path, ["key"], Writer()) / name
    raw = path.read_bytes()
    path.unlink()
    if left is not None:
        path.write_bytes(raw[:left])
    write = Writer()
    assert read(cached(tmp_path, ["key"], write)) == CONTENT
    assert path.read_bytes() == raw
    assert write.calls == 1


def test_no_flipped_byte_does_harm(tmp_path):
    for name in (*CONTENT, "manifest.json"):
        path = cached(tmp_path, ["key"], Writer()) / name
        raw = path.read_bytes()
        for at in range(len(raw)):
            path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
            assert read(cached(tmp_path, ["key"], Writer())) == CONTENT, (name, at)


def test_a_writer_that_fails_leaves_nothing_behind(tmp_path):
    def fail() -> None:
        assert any((tmp_path / "prepared").iterdir()), "writing has begun"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached(tmp_path, ["key"], Writer(fail))
    assert list((tmp_path / "prepared").iterdir()) == []


def test_what_another_process_wrote_meanwhile_is_taken(tmp_path):
    def meanwhile() -> None:
        cached(tmp_path, ["key"], Writer())
        raise OSError("the disk is full")

    assert read(cached(tmp_path, ["key"], Writer(meanwhile))) == CONTENT


def test_a_cache_that_cannot_be_written_is_an_error_that_names_it(tmp_path):
    (tmp_path / "cache").write_text("a file, where a folder should be")
    error = error_of(cached, tmp_path / "cache", ["key"], Writer())
    assert str(tmp_path / "cache") in error.what
    assert "data.cache" in error.fix


def test_leftovers_of_killed_processes_are_swept_after_a_day(tmp_path):
    old, new = (tmp_path / "prepared" / f"{name}.tmp" for name in ("old", "new"))
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    cached(tmp_path, ["key"], Writer())
    assert not old.exists() and new.exists()


def test_what_another_process_has_written_meanwhile_is_left_in_place(tmp_path):
    """It may be reading it already."""
    inodes = []

    def another_process() -> None:
        inodes.append((cached(tmp_path, ["key"], Writer()) / "ids").stat().st_ino)

    folder = cached(tmp_path, ["key"], Writer(then=another_process))
    assert (folder / "ids").stat().st_ino == inodes[0]
    assert read(folder) == CONTENT and not list(tmp_path.glob("prepared/*.tmp"))
