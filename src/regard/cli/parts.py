"""A large file in parts: which there are, which are done, and how they become one output.

    OUT.parts/job.json          what is asked for, and the parts, fixed when the job begins
    OUT.parts/part-00007        what was written for part 7, and beside it
    OUT.parts/part-00007.json   its size and sha256: it appears last, so what has one is whole
    OUT.parts/.lock             a byte for each part, locked by the process that works on it

A part is a range of bytes that holds a whole number of the chunks that lines are worked on in, counted from the first
line of the file. So every line is worked on with the same others as without parts, whoever does it. Nothing relies on
the locks: they only save work that would be done twice. Two that write a part write the same bytes, each under a name
of its own until it is whole.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from regard import console
from regard.cli.lines import ADVICE
from regard.errors import RegardError
from regard.files import NO_LOCKS, move_into_place, read_small, sha256, writing

PARTS = 256  # that a file is cut into, as far as they are neither
LEAST, MOST = 2**14, 2**26  # smaller nor larger than this many bytes
BLOCK = 2**20
SPACE = "Free some space, and give the same command again: it continues."


class Gone(Exception):
    """The folder is no longer there: another process has joined the parts."""


@dataclass(frozen=True)
class Part:
    number: int
    start: int  # byte in the file
    end: int
    first: int  # the number of its first line, from 0
    lines: int

    @property
    def name(self) -> str:
        return f"part-{self.number:05}"


def cut(file: Path, at_once: int) -> tuple[list[Part], str]:
    """The parts of a file, and its sha256. They follow from its content alone."""
    import numpy as np

    from regard.data.lines import readable

    digest = hashlib.sha256()
    ends, lines, size, last = [(0, 0)], 0, 0, b"\n"  # bytes and lines up to the end of each part; and up to here
    with readable(file), file.open("rb") as stream:
        least = min(max(file.stat().st_size // PARTS, LEAST), MOST)
        while block := stream.read(BLOCK):
            digest.update(block)
            breaks = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            to_next = at_once - 1 - lines % at_once
            for number, place in enumerate(breaks[to_next::at_once].tolist()):
                if (end := size + place + 1) - ends[-1][0] >= least:
                    ends.append((end, lines + to_next + number * at_once + 1))
            lines, size, last = lines + len(breaks), size + len(block), block[-1:]
    lines += last != b"\n"
    if size > ends[-1][0]:
        ends.append((size, lines))
    parts = [
        Part(number, start, end, first, after - first)
        for number, ((start, first), (end, after)) in enumerate(pairwise(ends))
    ]
    return parts, digest.hexdigest()


def lines_of(file: Path, part: Part, folder: JobFolder) -> Iterator[str]:
    """The lines of a part; of a bad one, the message has its number in the whole file."""
    from regard.data.lines import bad_line, numbered_lines, readable

    with readable(file), file.open("rb") as stream:
        stream.seek(part.start)
        for line in islice(numbered_lines(stream, before=part.first), part.lines):
            if line.problem:
                bad_line(file, line.number, line.problem, "error", advice=f"{ADVICE} Then delete '{folder.path}'.")
            yield line.text
        if stream.tell() != part.end:
            raise changed_input(file, folder)


def changed_input(file: Path, folder: JobFolder) -> RegardError:
    return RegardError(
        f"'{file}' has changed since this job began.",
        "Parts that were made of it before cannot be joined with new ones.",
        f"Restore it; or delete '{folder.path}', and start again.",
    )


class JobFolder:
    """The folder of parts beside an output."""

    def __init__(self, output: Path):
        self.output = output.resolve()  # a link stays a link
        self.path = self.output.with_name(f"{self.output.name}.parts")

    # ------------------------------------------------------------ what is asked for

    def must_not_be_begun(self) -> None:
        """An error if parts of this output are there: a command without parts would leave them behind."""
        if (self.path / "job.json").exists():
            raise RegardError(
                f"'{self.output}' was begun in parts.",
                f"What is done of it is in '{self.path}'.",
                "Add --processes 1 to make what is missing, and join all; or delete that folder.",
            )

    def open(self, asked: dict[str, Any], file: Path, at_once: int) -> list[Part]:
        """The parts of this job, which is begun or continued. An error if the folder is of another."""
        asked = asked | {"lines at once": at_once}
        with writing(self.path):
            if self.output.exists() and not self.output.is_file():
                raise IsADirectoryError(f"'{self.output}' is not a file; parts are joined to one")
            self.output.parent.mkdir(parents=True, exist_ok=True)
        for left in self.output.parent.glob(f".{self.path.name}.*.old"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        while True:
            with suppress(Gone):
                with writing(self.path):
                    self.path.mkdir(exist_ok=True)
                with self._locked(0, wait=True):
                    return self._begin_or_continue(asked, file, at_once)

    def _begin_or_continue(self, asked: dict[str, Any], file: Path, at_once: int) -> list[Part]:
        path = self.path / "job.json"
        if not path.exists():
            self._must_be_ours()
            state = file.stat()
            parts, digest = cut(file, at_once)
            known = {"bytes": state.st_size, "modified": state.st_mtime_ns, "sha256": digest}
            self._put(path, json.dumps({"asked": asked, "input": known, "parts": [*map(asdict, parts)]}).encode())
            return parts
        try:
            job = json.loads(read_small(path))
            parts, then, known = [Part(**part) for part in job["parts"]], job["asked"], job["input"]
            problem = difference(then, asked)
            known["bytes"], known["modified"], known["sha256"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RegardError(
                f"'{path}' cannot be read.", f"{error}", f"Delete '{self.path}', and start again."
            ) from None
        if problem:
            raise RegardError(
                f"'{self.path}' is of another job.",
                problem,
                "Give that command again to continue it; or delete the folder, or choose another -o FILE.",
            )
        self._check(file, known)
        return parts

    def _must_be_ours(self) -> None:
        """An error if there is anything in the folder but what a job that was killed as it began has left."""
        strange = [entry.name for entry in os.scandir(self.path) if not entry.name.startswith((".lock", ".job.json."))]
        if strange:
            raise RegardError(
                f"'{self.path}' is not a folder of parts.",
                f"It has '{min(strange)}', but no job.json.",
                "Choose another -o FILE, or move the folder.",
            )

    def _check(self, file: Path, known: dict[str, Any]) -> None:
        """An error if the input has changed. One that only seems new, such as a copy, is looked into."""
        from regard.data.lines import readable

        with readable(file):
            state = file.stat()
            same = state.st_size == known["bytes"]
            if not same or (state.st_mtime_ns != known["modified"] and sha256(file) != known["sha256"]):
                raise changed_input(file, self)

    # ------------------------------------------------------------ parts

    def whole(self, parts: Sequence[Part]) -> set[int]:
        """The numbers of parts that are there, with the right size. Their bytes are looked at when they are joined."""
        try:
            names = {entry.name for entry in os.scandir(self.path)}  # of a network's folder, a list is up to date
        except FileNotFoundError:
            raise Gone from None
        found = set()
        for part in parts:
            if f"{part.name}.json" in names:
                note = self._note(part)
                if note is not None and _size(self.path / part.name) == note["bytes"]:
                    found.add(part.number)
                else:
                    self._warn_of(part)
        return found

    def claimed(self, part: Part, wait: bool) -> AbstractContextManager[bool]:
        """Whether this process is the one to work on a part."""
        return self._locked(part.number + 1, wait)

    def put(self, part: Part, texts: Iterable[bytes], note: dict[str, Any]) -> None:
        """A part that appears when it is whole. The note is complete when all texts are made."""
        path = self.path / part.name
        digest, size = hashlib.sha256(), 0
        try:
            with writing(path, SPACE), self._temporary(path) as temporary:
                with temporary.open("wb") as file:
                    for text in texts:
                        digest.update(text)
                        size += len(text)
                        file.write(text)
                move_into_place(temporary, path)
            known = {"bytes": size, "sha256": digest.hexdigest()}
            self._put(path.with_name(f"{part.name}.json"), json.dumps(known | note).encode())
        except RegardError:
            if not self.path.exists():
                raise Gone from None
            raise

    def _note(self, part: Part) -> dict[str, Any] | None:
        try:
            note = json.loads(read_small(self.path / f"{part.name}.json"))
        except (OSError, ValueError):
            return None
        right = isinstance(note, dict) and isinstance(note.get("bytes"), int) and isinstance(note.get("sha256"), str)
        return note if right else None

    def _warn_of(self, part: Part) -> None:
        console.warn(f"'{self.path / part.name}' is damaged, and is made again.")
        (self.path / f"{part.name}.json").unlink(missing_ok=True)

    # ------------------------------------------------------------ the whole

    def join(self, parts: Sequence[Part], file: Path) -> tuple[list[Part], list[dict[str, Any]]]:
        """All parts become the output, and the folder goes; unless some turn out to be damaged, which are returned.

        Returned are also the notes of all parts.
        """
        with self._locked(len(parts) + 1, wait=True):
            self._check(file, json.loads(read_small(self.path / "job.json"))["input"])
            notes = {part.number: self._note(part) for part in parts}
            with self._temporary(self.output) as temporary, writing(self.output, SPACE):
                with temporary.open("wb") as out:
                    damaged = [part for part in parts if not self._copied(part, notes[part.number], out)]
                if not damaged:
                    move_into_place(temporary, self.output)
            for part in damaged:
                self._warn_of(part)
            if not damaged:
                old = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.old")
                self.path.rename(old)  # in one moment: who comes now begins anew
                shutil.rmtree(old, ignore_errors=True)
        return damaged, [note for note in notes.values() if note]

    def _copied(self, part: Part, note: dict[str, Any] | None, out: Any) -> bool:
        """Whether a part was what its note says."""
        if note is None or _size(self.path / part.name) != note["bytes"]:
            return False
        digest = hashlib.sha256()
        with (self.path / part.name).open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
                out.write(block)
        return bool(digest.hexdigest() == note["sha256"])

    # ------------------------------------------------------------ files and locks

    def _put(self, path: Path, content: bytes) -> None:
        with writing(path, SPACE), self._temporary(path) as temporary:
            temporary.write_bytes(content)
            move_into_place(temporary, path)

    @contextmanager
    def _temporary(self, path: Path) -> Iterator[Path]:
        """A name for one process alone."""
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            yield temporary
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    @contextmanager
    def _locked(self, byte: int, wait: bool) -> Iterator[bool]:
        """A byte of the lock, for one process at a time: whether it is this one.

        It is freed when the process ends, however it ends. Locks of this kind are known to NFS, too.
        """
        path = self.path / ".lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            raise Gone from None
        except OSError as error:
            raise RegardError(f"Cannot write '{path}'.", f"{error}", "Choose a writable path with -o FILE.") from None
        try:
            got = True
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
            except OSError as error:
                got = error.errno in NO_LOCKS
                if not got and error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
            if not _is_still(path, descriptor):
                raise Gone
            yield got
        finally:
            os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether an open file has this name yet."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def difference(then: dict[str, Any], now: dict[str, Any]) -> str:
    """The first thing in which two jobs differ, as a sentence; nothing if they are the same."""
    for name in now | then:
        if isinstance(now.get(name), dict) and isinstance(then.get(name), dict):
            if told := difference(then[name], now[name]):
                return told
        elif now.get(name) != then.get(name):
            return f"There, {name} {_shown(then.get(name))}; here, it {_shown(now.get(name))}."
    return ""


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "is not given"
    told = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"is {told[:12]}…" if re.fullmatch("[0-9a-f]{64}", told) else f"is {told}"
