"""The cache: what is costly to prepare is written once, and mapped into memory when it is needed again.

A cache folder is named after a hash of all that its content follows from: when any of it changes, another folder is
written. It has a manifest with the sha256 of every file, and appears under its name when it is complete.

What takes long may be prepared in parts, which are kept beside it until all is done: one process at a time writes them,
and whoever comes after a killed one finds them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from regard import console
from regard.errors import RegardError
from regard.files import LOCK, flush, locked, read_small, sha256

DAY = 86_400  # seconds
KEPT = 7 * DAY  # parts that nobody has come back for


class Kept(NamedTuple):
    """Where parts are kept, and the descriptor of the lock that is held there."""

    folder: Path
    lock: int


Keep = Callable[[], Kept]  # to be called when something is to be kept


def cache_folder(setting: str) -> Path:
    """Where prepared data is: the folder that `data.cache` names, or the user's cache."""
    if setting:
        return Path(setting)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


def cached(cache: Path, key: Iterable[str], write: Callable[[Path], None]) -> Path:
    """The folder for this key: from the cache if it is complete, else `write` fills it now."""
    return cached_in_parts(cache, key, lambda folder, keep: write(folder))


def cached_in_parts(cache: Path, key: Iterable[str], write: Callable[[Path, Keep], None]) -> Path:
    """The same; what `write` keeps in parts is there when a killed command is given again, until all is done."""
    folder = cache / "prepared" / hashlib.sha256(repr(list(key)).encode()).hexdigest()[:32]
    if _is_complete(folder):
        return folder
    _sweep(folder.parent)
    temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}.tmp")
    with contextlib.ExitStack() as until_done:
        try:
            temporary.mkdir(parents=True)
            write(temporary, lambda: until_done.enter_context(_kept_for(folder, temporary)))
            digests = {}
            for path in sorted(temporary.iterdir()):
                flush(path)
                digests[path.name] = sha256(path)
            (temporary / "manifest.json").write_text(json.dumps({"sha256": digests}, indent=2))
            if folder.exists() and not _is_complete(folder):
                shutil.rmtree(folder, ignore_errors=True)
            temporary.rename(folder)  # fails if another process has written it meanwhile, and may be reading it now
        except OSError as error:
            if not _is_complete(folder):
                raise RegardError(
                    f"Cannot write prepared data to '{folder.parent}'.",
                    f"{error}",
                    "Free some space there, or set data.cache to another folder.",
                ) from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


@contextlib.contextmanager
def _kept_for(folder: Path, temporary: Path) -> Iterator[Kept]:
    """A place for parts of this folder, for one process at a time. An OSError if another one has finished meanwhile."""
    parts = folder.with_name(f"{folder.name}.parts")
    with contextlib.ExitStack() as until_done:
        while True:
            parts.mkdir(exist_ok=True)
            try:
                lock = until_done.enter_context(locked(parts))
            except RegardError:
                console.say("Another process is preparing the same data; waiting for it.")
                lock = until_done.enter_context(locked(parts, wait=True))
            if _is_complete(folder):
                raise FileExistsError(f"{folder} was written by another process")
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(lock), (parts / LOCK).stat()):
                    break
            until_done.close()  # whoever had it has removed it: it is not what others see
        for leftover in {*folder.parent.glob(f"{folder.name}.*.tmp")} - {temporary}:  # of one that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            yield Kept(parts, lock)
        finally:
            if folder.exists() or not any(parts.glob("part-*")):
                shutil.rmtree(parts, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove what was left behind by processes killed a day ago or longer; what they have done, a week later."""
    for leftover in [*folder.glob("*.tmp"), *folder.glob("*.parts")]:
        with contextlib.suppress(OSError, RegardError):
            if time.time() - leftover.stat().st_mtime > (DAY if leftover.suffix == ".tmp" else KEPT):
                with locked(leftover) if leftover.suffix == ".parts" else contextlib.nullcontext():
                    shutil.rmtree(leftover, ignore_errors=True)


def _is_complete(folder: Path) -> bool:
    """Whether every file is there and is what the manifest says."""
    try:
        digests = json.loads(read_small(folder / "manifest.json"))["sha256"]
        return all((folder / name).is_file() and sha256(folder / name) == digest for name, digest in digests.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
