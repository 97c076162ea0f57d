"""A file in parts: the same bytes, whoever works on them, and whoever is killed meanwhile."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from command import finish, forked_regard, regard, running, tree, when
from expect import error_of
from regard.cli import parts
from regard.cli.bulk import Bulk
from regard.data.samples import english_german
from regard.decoding.long_sources import LongSources

# Parts of four lines each, in the command and in its workers, which know its process by this variable.
SMALL = """
import os, regard.cli.lines, regard.cli.parts
regard.cli.lines.LINES_AT_ONCE, regard.cli.parts.LEAST = 4, 1
os.environ.setdefault("COMMAND", str(os.getpid()))
"""
LINES = [source for source, _ in english_german.pairs(17, seed=3)]
LINES[5] = ""
TEXT = "\n".join(LINES)  # without a last line break
COMMANDS = {
    "translate": "translate run FILE --temperature 1 --json",
    "generate": "generate language FILE --max-tokens 6 --temperature 1 --samples 2",
    "classify": "classify classifier FILE --top 2",
    "tokenize": "tokenize run --file FILE",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "FILE").write_text(TEXT)
    return tmp_path


def in_parts(command: list[str], folder: Path, before: str = "", **options: Any) -> Any:
    return regard(*command, cwd=folder, before=SMALL + before, **options)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_same_bytes_however_lines_are_shared(name: str, folder: Path, request: pytest.FixtureRequest):
    verb, fixture, *options = COMMANDS[name].split()
    given = request.getfixturevalue(fixture)
    command = [verb, str(given if isinstance(given, Path) else given.folder.path), *options]
    in_parts([*command, "-o", "plain"], folder)
    in_parts([*command, "-o", "two", "--processes", "2"], folder)
    for share in ("3/3", "1/3", "2/3"):
        assert not (folder / "shared").exists()
        said = in_parts([*command, "-o", "shared", "--part", share], folder).stderr
    assert "All parts are there, and are joined" in said
    expected = (folder / "plain").read_bytes()
    assert expected.count(b"\n") >= len(LINES) and len(set(expected.splitlines())) > 8
    assert (folder / "two").read_bytes() == (folder / "shared").read_bytes() == expected
    assert tree(folder) == {Path(name) for name in ("FILE", "plain", "two", "shared")}


def test_prompts_and_tokens_of_lines_are_one_line_each(language, folder):
    """And a text depends on the number of its line, not on empty ones between."""
    run, (first, last) = str(language.folder.path), (LINES[4], LINES[6] * 9)
    (folder / "FILE").write_text(f"{first}\n\n{last}\n")
    options: dict[str, Any] = {"max_tokens": 20, "temperature": 1.0, "samples": 2}
    texts = language.generate([first, "", last], **options)
    command = ["generate", run, "FILE", "--max-tokens", "20", "--temperature", "1", "--samples", "2"]
    shown = regard(*command, "--json", cwd=folder)
    assert [json.loads(line) for line in shown.stdout.splitlines()] == [
        {"prompt": first, "texts": texts[:2]},
        {"prompt": "", "texts": []},
        {"prompt": last, "texts": texts[4:]},
    ]
    assert "1 prompt is longer" in shown.stderr and "line 3 (" in shown.stderr
    lines = regard(*command, cwd=folder).stdout.split("\n")
    assert len(lines) == 8 and [lines[2], lines[3], lines[6]] == ["", "", ""]
    assert [line.replace("\\n", "\n") for line in lines[:2]] == [first + text for text in texts[:2]]
    ids = language.tokenizer.encode([first])[0]
    command = ["tokenize", run, "--file", "FILE"]
    assert regard(*command, cwd=folder).stdout.splitlines()[:2] == [" ".join(map(str, ids)), ""]
    told = json.loads(regard(*command, "--json", cwd=folder).stdout.splitlines()[0])
    assert told == {"text": first, "ids": ids, "tokens": [language.tokenizer.piece(token) for token in ids]}


@pytest.fixture
def tokenised(run: Path, folder: Path) -> tuple[list[str], bytes]:
    """A command in parts, and what it is to write."""
    command = ["tokenize", str(run), "--file", "FILE"]
    expected = regard(*command, cwd=folder).stdout.encode()
    return [*command, "-o", "out", "--processes", "1"], expected


def test_a_killed_worker_is_told_of_and_the_same_command_continues(tokenised, folder):
    command, expected = tokenised
    kill = when("os.rename", "part-00002", "os.kill(os.getpid(), signal.SIGKILL)")
    error = in_parts(command, folder, kill, code=1).error
    assert "Worker 1 of 1" in error[0] and "SIGKILL" in error[0] and "same command" in error[2]
    assert {path.name for path in (folder / "out.parts").glob("part*")} == {
        f"part-0000{number}{ending}" for number in (0, 1) for ending in ("", ".json")
    }
    # Of what is there, nothing is taken for what it is not.
    assert "There, --json is false; here, it is true." in in_parts([*command, "--json"], folder, code=1).stderr
    plain = regard(*command[: command.index("--processes")], cwd=folder, code=1)
    assert "'out' was begun in parts." in plain.stderr.replace(f"{folder}/", "") and "--processes 1" in plain.error[2]
    (folder / "FILE").write_text(TEXT.upper())
    assert "'FILE' has changed since this job began." in in_parts(command, folder, code=1).stderr
    (folder / "FILE").write_text(TEXT)
    first, second = folder / "out.parts" / "part-00000", folder / "out.parts" / "part-00001"
    first.write_bytes(first.read_bytes()[::-1])
    second.write_bytes(second.read_bytes()[:-1])
    said = in_parts(command, folder).stderr
    assert "part-00000' is damaged, and is made again" in said and "part-00001' is damaged" in said
    assert (folder / "out").read_bytes() == expected and tree(folder) == {Path("FILE"), Path("out")}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_a_stopped_command_stops_its_workers_and_continues(tokenised, folder, number, code):
    command, expected = tokenised
    stop = when("os.rename", "part-00002", f"os.kill(int(os.environ['COMMAND']), {number:d}); signal.pause()")
    said = in_parts(command, folder, stop, code=code).stderr  # the worker has ended, too: it holds this pipe open
    assert number == signal.SIGKILL or "Stopped. Parts that are whole are kept" in said
    assert not (folder / "out").exists() and (folder / "out.parts" / "part-00001.json").exists()
    in_parts(command, folder)
    assert (folder / "out").read_bytes() == expected and tree(folder) == {Path("FILE"), Path("out")}


def test_two_equal_commands_at_once_do_not_hurt_each_other(tokenised, folder):
    command, expected = tokenised
    both = [
        running(*command, cwd=folder, program=forked_regard(), variables={"BEFORE_REGARD": SMALL}) for _ in range(2)
    ]
    with both[0] as one, both[1] as other:
        assert [finish(one).code, finish(other).code] == [0, 0]
    assert (folder / "out").read_bytes() == expected and tree(folder) == {Path("FILE"), Path("out")}


def test_mistakes_in_lines_have_their_number_in_the_whole_file(tokenised, folder):
    command, _ = tokenised
    (folder / "FILE").write_bytes(b"fine\n" * 10 + b"\xff\n" + b"fine\n" * 10)
    assert "Line 11 of 'FILE' cannot be used." in in_parts(command, folder, code=1).error[0]
    (folder / "FILE").write_bytes(b"")
    (folder / "out.parts" / "job.json").unlink()
    assert "is not a folder of parts" in in_parts(command, folder, code=1).error[0]
    shutil.rmtree(folder / "out.parts")
    in_parts(command, folder)
    assert (folder / "out").read_bytes() == b""


def test_a_full_disk_is_told_and_the_same_command_continues(tokenised, folder):
    command, expected = tokenised
    full = when("os.rename", "part-00001", "raise OSError(28, 'No space left on device')")
    error = in_parts(command, folder, full, code=1).error
    assert "Cannot write" in error[0] and "No space left" in error[1] and "Free some space" in error[2]
    assert regard(*command, cwd=folder, before=SMALL, limits={resource.RLIMIT_FSIZE: 40}, code=1).error
    in_parts(command, folder)
    assert (folder / "out").read_bytes() == expected


BAD: dict[str, tuple[Callable[[Path], Bulk], str]] = {
    "a share beyond the last": (lambda file: Bulk([file], Path("out"), part="5/4"), "--part 5/4 is not a part"),
    "a share before the first": (lambda file: Bulk([file], Path("out"), part="0/4"), "--part 0/4 is not a part"),
    "no share": (lambda file: Bulk([file], Path("out"), part="x"), "--part x is not a part"),
    "no output": (lambda file: Bulk([file], None, processes=1), "--processes needs an output"),
    "standard input": (lambda file: Bulk([], Path("out"), part="1/2"), "--part needs one file"),
    "two files": (lambda file: Bulk([file, file], Path("out"), processes=2), "--processes needs one file"),
    "the input as output": (lambda file: Bulk([file], file, processes=2), "would be overwritten"),
    "a packed file": (lambda file: Bulk([file.with_name("a.gz")], Path("out"), processes=2), "is packed"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_shared_is_refused(name, folder):
    (folder / "a.gz").touch()
    make, told = BAD[name]
    error = error_of(make(folder / "FILE").check)
    assert told in error.what and error.exit_code == 2


@pytest.mark.parametrize("block", [7, 2**20])
def test_parts_follow_from_the_file_and_begin_with_chunks(tmp_path, monkeypatch, block):
    monkeypatch.setattr(parts, "BLOCK", block)
    monkeypatch.setattr(parts, "LEAST", 20)
    lines = [b"x" * (7 * number % 23) for number in range(50)]
    for end in (b"", b"\n", b"\n\n"):
        (tmp_path / "a").write_bytes(b"\n".join(lines) + end)
        cut, digest = parts.cut(tmp_path / "a", 3)
        assert len(digest) == 64 and len(cut) > 4
        assert [part.first % 3 for part in cut] == [0] * len(cut)
        assert all(part.end - part.start >= 20 for part in cut[:-1])
        read = [list(parts.lines_of(tmp_path / "a", part, parts.JobFolder(tmp_path / "out"))) for part in cut]
        assert [len(each) for each in read] == [part.lines for part in cut]
        assert [line for each in read for line in each] == (b"\n".join(lines) + end).decode().splitlines()


def test_long_lines_of_parts_are_told_of_as_one(capsys):
    def noticed(lines: range) -> dict[str, Any]:
        long = LongSources(positions=10, trained=5)
        for line in lines:
            long.notice(line, 12)
        return json.loads(json.dumps(long.take()))

    LongSources(**noticed(range(1, 4))).add(noticed(range(4, 10))).warn()
    said = " ".join(capsys.readouterr().err.split())
    assert "9 lines are longer" in said and "line 5 (2 tokens dropped) …" in said and "line 6" not in said


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed; it is not part of Regard")
def test_the_example_for_ray_gives_the_same_bytes(run, folder):
    text = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    [example] = [block for block in text.split("```") if block.startswith("python\n# bulk_ray.py\n")]
    (folder / "bulk_ray.py").write_text(example.removeprefix("python\n"))
    shutil.copytree(run, folder / "runs" / "demo")
    (folder / "lines.txt").write_text("".join(f"{source}\n" for source, _ in english_german.pairs(1_200, seed=3)))
    regard("translate", "runs/demo", "lines.txt", "-o", "plain.txt", cwd=folder)
    ended = subprocess.run([sys.executable, "bulk_ray.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert (folder / "out.txt").read_bytes() == (folder / "plain.txt").read_bytes()
    assert not (folder / "out.txt.parts").exists()
