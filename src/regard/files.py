"""Files that are complete or not there at all, and folders that one process uses at a time."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.errors import RegardError

LOCK = ".lock"
SMALL = 64 * 2**20  # bytes; more than any file of a run has but its weights and vectors
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)  # of some network file systems


def must_be_a_file(path: Path) -> None:
    """Reading a pipe or a device might never end."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is not a file")


def sha256(path: Path) -> str:
    must_be_a_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush(path: Path) -> None:
    """Wait until a file, or the list of files in a folder, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move_into_place(temporary: Path, path: Path) -> None:
    """Give a complete file its name, in the same folder. After a power cut it has the old content or the new."""
    flush(temporary)
    temporary.replace(path)
    flush(path.parent)


def write_atomically(path: Path, content: bytes) -> None:
    """Under another name first, flushed to disk, then renamed: a reader never sees half a file."""
    if path.exists() and not path.is_file():  # a pipe or a device, which is never replaced
        path.write_bytes(content)
        return
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content)
        move_into_place(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: Path, remedy: str = "Choose a writable path.") -> Iterator[None]:
    """Failing to write becomes an error that says which file."""
    try:
        yield
    except OSError as error:
        raise RegardError(f"Cannot write '{path}'.", f"{error}", remedy) from None


def read_small(path: Path, most: int = SMALL) -> bytes:
    """The content of a file that is never large; an OSError also where it is no file, such as a pipe, or endless."""
    must_be_a_file(path)
    with path.open("rb") as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise OSError(f"{path} is larger than {most // 2**20} MiB")
    return raw


# ---------------------------------------------------------------- one process at a time


@contextmanager
def locked(folder: Path, who: str = "Another training", wait: bool = False) -> Iterator[int]:
    """A folder for one process at a time. The system frees the lock when the process ends, however it ends.

    The file names the process and its machine. What a killed process has left there is known to be stale: its lock
    is free. Yields the file's descriptor: a child process that inherits it holds the lock as well. If the folder is in
    use, that is an error, or with `wait` a reason to wait.
    """
    with writing(folder / LOCK):
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _take(descriptor, folder, who, wait)
        _note(descriptor, f"{os.getpid()} {socket.gethostname()}\n")
        try:
            yield descriptor
        finally:
            _note(descriptor, "")
    finally:
        os.close(descriptor)


def _take(descriptor: int, folder: Path, who: str, wait: bool) -> None:
    process, _, host = os.pread(descriptor, 1000, 0).decode(errors="replace").strip().partition(" ")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    except OSError as error:
        no_locks = error.errno in NO_LOCKS
        if no_locks and (not process or (host == socket.gethostname() and not _runs(process))):
            return
    process_named = f" (process {process} on {host})" if host else ""
    gone = f", or delete '{folder / LOCK}' if it no longer runs" if no_locks else ""
    raise RegardError(
        f"'{folder}' is in use.",
        f"{who}{process_named} is running there.",
        f"Wait for it or stop it{gone}; or choose another folder with --out DIR.",
    )


def _note(descriptor: int, owner: str) -> None:
    with suppress(OSError):  # a full disk: the lock is held all the same
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, owner.encode(), 0)


def _runs(process: str) -> bool:
    """Whether a process of this machine is alive."""
    try:
        os.kill(int(process), 0)
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        pass  # it is another user's
    return True
