"""Text tokenised in parts: the same bytes for any number of processes, and after any end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from expect import error_of
from regard.data import cache as cache_module
from regard.data import parts, text
from regard.data.labelled import labelled_splits
from regard.data.pairs import Pair, PairSource, pair_splits
from regard.data.parts import Worker, divided
from regard.data.text import text_source
from regard.data.tokenised import tokenise_labelled, tokenise_pairs, tokenise_text
from regard.data.tokenising import Sides, digest, packed, read_part, unpacked, write_part
from regard.data.tokenizers import TextTokenizer, train_tokenizer
from regard.errors import RegardError
from regard.settings import LabelledData, PairData, TextData, TokenizerSettings

PAIRS: list[Pair] = [(f"Sentence {n} é", f"Satz {n * n} 句") for n in range(10)]
BPE = train_tokenizer([*(side for pair in PAIRS for side in pair)], TokenizerSettings(kind="bpe", vocabulary=290))
BYTES = train_tokenizer([], TokenizerSettings(kind="byte"))
Tokenise = Callable[[Path, int], object]  # into this cache, with so many workers


@pytest.fixture
def small_parts(monkeypatch) -> None:
    monkeypatch.setattr(parts, "PART_SAMPLES", 3)


@pytest.fixture
def made(monkeypatch) -> list[str]:
    """The parts that are tokenised, here or in a process."""
    made: list[str] = []
    encode, write = Worker.encode, parts.write_part

    def in_process(worker: Worker, path: Path, *rest: object) -> None:
        encode(worker, path, *rest)
        made.append(path.name)

    def here(path: Path, *rest: object) -> None:
        write(path, *rest)
        made.append(path.name)

    monkeypatch.setattr(Worker, "encode", in_process)
    monkeypatch.setattr(parts, "write_part", here)
    return made


def pair_source(folder: Path, workers: int = 0, count: int = len(PAIRS)) -> PairSource:
    content = "".join(f"{source}\t{target}\n" for source, target in PAIRS[:count])
    (folder / "a.tsv").write_text(content, encoding="utf-8")
    return pair_splits(PairData(root=str(folder), train=["a.tsv"], held_out=0.0, workers=workers))["train"]


def tokenise_the_pairs(folder: Path) -> Tokenise:
    return lambda cache, workers: tokenise_pairs(pair_source(folder, workers), (BPE, BYTES), cache)


def tokenise_the_labelled(folder: Path) -> Tokenise:
    (folder / "a.tsv").write_text("".join(f"{len(target)}\t{source}\n" for source, target in PAIRS), encoding="utf-8")
    classes = sorted({str(len(target)) for _, target in PAIRS})

    def tokenise(cache: Path, workers: int) -> object:
        data = LabelledData(root=str(folder), train=["a.tsv"], held_out=0.0, workers=workers)
        return tokenise_labelled(labelled_splits(data)["train"], BPE, classes, cache)

    return tokenise


def tokenise_the_text(folder: Path, tokenizer: TextTokenizer = BPE) -> Tokenise:
    (folder / "text").mkdir()
    for number in range(3):
        content = "".join(f"{source} {number}\n" for source, _ in PAIRS[number:])
        (folder / "text" / f"{number}.txt").write_text(content, encoding="utf-8")
    source = text_source(str(folder / "text"), TextData())
    return lambda cache, workers: tokenise_text(source, tokenizer, cache, starts=True, workers=workers)


def files_of(cache: Path) -> dict[str, bytes]:
    return {str(path.relative_to(cache)): path.read_bytes() for path in cache.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("source", "workers"),
    [(tokenise_the_pairs, (1, 2, 3)), (tokenise_the_labelled, (2,)), (tokenise_the_text, (2,))],
)
def test_any_number_of_workers_writes_the_bytes_that_one_part_has(tmp_path, monkeypatch, made, source, workers):
    monkeypatch.setattr(text, "PIECE", 40)
    tokenise = source(tmp_path)
    tokenise(tmp_path / "whole", 2)
    assert not made, "what fits into one part is not divided"
    monkeypatch.setattr(parts, "PART_SAMPLES", 3)
    for count in workers:
        made.clear()
        tokenise(tmp_path / f"{count}", count)
        assert len(made) > 3
        assert files_of(tmp_path / f"{count}") == files_of(tmp_path / "whole"), "and nothing else is left"


def test_parts_are_bounded_in_samples_and_in_bytes(monkeypatch):
    monkeypatch.setattr(parts, "PART_SAMPLES", 3)
    monkeypatch.setattr(parts, "PART_BYTES", 10)
    samples = [(b"a", b"b")] * 4 + [(b"long enough", b"")] + [(b"", b"x")]
    assert list(divided(samples)) == [[[b"a"] * 3, [b"b"] * 3], [[b"a", b"long enough"], [b"b", b""]], [[b""], [b"x"]]]
    assert list(divided([])) == []


def test_what_was_done_before_an_interruption_is_not_done_again(tmp_path, small_parts, made):
    class Interrupted(Exception):
        pass

    def interrupt(done: int) -> None:
        if done >= 6:
            raise Interrupted

    source = pair_source(tmp_path, workers=1)
    with pytest.raises(Interrupted):
        tokenise_pairs(source, (BPE, BYTES), tmp_path / "cache", interrupt)
    done = {*made}
    assert {"part-0", "part-1"} <= done
    [kept] = (tmp_path / "cache" / "prepared").iterdir()
    assert {path.name for path in kept.glob("part-*")} == done
    (kept / "part-1").write_bytes((kept / "part-1").read_bytes()[:-1] + b"?")
    made.clear()
    tokenise_pairs(source, (BPE, BYTES), tmp_path / "cache")
    assert {*made} == {"part-0", "part-1", "part-2", "part-3"} - (done - {"part-1"}), "the damaged and the missing"
    tokenise_the_pairs(tmp_path)(tmp_path / "at once", 1)
    assert files_of(tmp_path / "cache") == files_of(tmp_path / "at once")


def test_a_killed_process_is_an_error_and_the_same_command_continues(tmp_path, small_parts, made, monkeypatch):
    start, encode, workers = Worker.__init__, Worker.encode, []

    def kill_the_second(worker: Worker, *arguments: object) -> None:
        start(worker, *arguments)
        workers.append(worker)

    def encode_or_die(worker: Worker, path: Path, *rest: object) -> None:
        if path.name == "part-2":
            worker.process.kill()
        encode(worker, path, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Worker, "__init__", kill_the_second)
        patched.setattr(Worker, "encode", encode_or_die)
        error = error_of(tokenise_the_pairs(tmp_path), tmp_path / "cache", 2)
    assert error.what == "A process that tokenises has ended." and "SIGKILL" in error.why
    assert "data.workers" in error.fix and "same command" in error.fix
    assert workers and all(worker.process.poll() is not None for worker in workers), "none is left running"
    done = {*made}
    assert "part-0" in done and "part-2" not in done
    made.clear()
    tokenise_the_pairs(tmp_path)(tmp_path / "cache", 1)
    assert not done & {*made} and "part-2" in made
    tokenise_the_pairs(tmp_path)(tmp_path / "at once", 1)
    assert files_of(tmp_path / "cache") == files_of(tmp_path / "at once")


def test_after_a_command_was_killed_its_processes_end_and_its_parts_are_used(tmp_path, small_parts, made):
    """The lock is free only when the last of its processes has ended."""
    pair_source(tmp_path)
    code = f"""
import os, signal
from pathlib import Path
from test_parts import *
parts.PART_SAMPLES = 3
tokenise_pairs(pair_source(Path({str(tmp_path)!r}), 2), (BPE, BYTES), Path({str(tmp_path / "cache")!r}),
               lambda done: os.kill(os.getpid(), signal.SIGKILL) if done >= 6 else None)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", code], env=environment)
    assert killed.returncode == -signal.SIGKILL
    tokenise_the_pairs(tmp_path)(tmp_path / "cache", 1)
    assert not {"part-0", "part-1"} & {*made}
    tokenise_the_pairs(tmp_path)(tmp_path / "at once", 1)
    assert files_of(tmp_path / "cache") == files_of(tmp_path / "at once")


def test_a_command_that_waits_for_another_takes_what_that_has_written(tmp_path, small_parts, made, monkeypatch):
    locked, waited = cache_module.locked, []

    def while_waiting(folder: Path, wait: bool = False):
        if not waited:
            waited.append(False)
            raise RegardError("It is in use.", "", "")
        if not waited[-1]:
            waited.append(True)
            tokenise_the_pairs(tmp_path)(tmp_path / "cache", 1)  # the other process
            folder.mkdir()
            made.clear()
        return locked(folder, wait=wait)

    monkeypatch.setattr(cache_module, "locked", while_waiting)
    assert len(tokenise_the_pairs(tmp_path)(tmp_path / "cache", 1)) == len(PAIRS)
    assert waited == [False, True] and made == []


def test_a_place_that_was_removed_while_waiting_is_made_again(tmp_path, small_parts, monkeypatch):
    locked, removed = cache_module.locked, []

    class Removed:
        """The lock of a folder that its owner removes before it frees the lock."""

        def __init__(self, folder: Path):
            self.folder, self.held = folder, locked(folder)

        def __enter__(self) -> int:
            descriptor = self.held.__enter__()
            (self.folder / ".lock").unlink()
            self.folder.rmdir()
            removed.append(self.folder)
            return descriptor

        def __exit__(self, *error: object) -> None:
            self.held.__exit__(*error)

    monkeypatch.setattr(cache_module, "locked", lambda folder: locked(folder) if removed else Removed(folder))
    assert len(tokenise_the_pairs(tmp_path)(tmp_path / "cache", 1)) == len(PAIRS)
    assert len(removed) == 1 and not removed[0].exists()


def test_parts_are_swept_after_a_week_unless_they_are_in_use(tmp_path):
    prepared = tmp_path / "prepared"
    old, new, used = (prepared / f"{name}.parts" for name in ("old", "new", "used"))
    for folder in (old, new, used):
        folder.mkdir(parents=True)
        (folder / "part-0").write_bytes(b"")
    with cache_module.locked(used):
        for folder in (old, used):
            os.utime(folder, (0, 0))
        cache_module.cached(tmp_path, ["key"], lambda folder: None)
    assert not old.exists() and new.exists() and used.exists()


def test_a_full_disk_is_the_error_of_the_cache(tmp_path, small_parts, monkeypatch):
    worker = Worker(Sides([BYTES]), 2)
    try:
        with pytest.raises(OSError, match="No such file"):
            worker.encode(tmp_path / "gone" / "part-0", "", packed([[b"a"]])) if worker.ready else None
    finally:
        worker.stop()

    def full(path: Path, *rest: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(parts, "write_part", full)
    error = error_of(tokenise_the_pairs(tmp_path), tmp_path / "cache", 1)
    assert "Cannot write prepared data" in error.what and "No space left" in error.why
    assert list((tmp_path / "cache" / "prepared").iterdir()) == []


def test_where_no_process_can_start_this_one_does_it(tmp_path, small_parts, made, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert len(tokenise_the_pairs(tmp_path)(tmp_path / "cache", 2)) == len(PAIRS)
    assert len(made) == 4


def test_a_bad_line_is_the_same_error_in_parts(tmp_path, small_parts):
    source = pair_source(tmp_path, 1)
    with (tmp_path / "a.tsv").open("ab") as file:
        file.write(b"half a pair\n")
    error = error_of(tokenise_pairs, source, (BPE, BYTES), tmp_path / "cache")
    assert error.what.startswith("Line 11 of ")


def test_texts_arrive_as_they_were_sent():
    columns = [[b"a", b"", "é\n".encode()], [b"\xff\x00", b"x" * 99, b""]]
    assert unpacked(packed(columns)) == columns
    assert digest([b"ab", b"c"]) != digest([b"a", b"bc"])


def test_a_part_is_what_was_written_or_nothing(tmp_path):
    path = tmp_path / "part-0"
    assert read_part(path, "x") is None
    write_part(path, "x", [b"ids", b"", b"offsets"])
    assert read_part(path, "x") == [b"ids", b"", b"offsets"]
    assert read_part(path, "of another text") is None
    raw = path.read_bytes()
    for at in range(len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        assert read_part(path, "x") is None, at
        path.write_bytes(raw[:at])
        assert read_part(path, "x") is None, at
    path.write_bytes(raw + b"?")
    assert read_part(path, "x") is None


def test_a_process_that_tokenises_loads_neither_torch_nor_the_settings():
    code = "import sys, regard.data.tokenising; print([m for m in ('torch', 'pydantic', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
