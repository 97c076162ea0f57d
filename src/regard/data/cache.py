"""The cache: what is costly to prepare is written once, and mapped into memory when it is needed again.

A cache folder is named after a hash of all that its content follows from: when any of it changes, another folder is
written. It has a manifest with the sha256 of every file, and appears under its name when it is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from regard.errors import RegardError
from regard.files import flush, read_small, sha256

DAY = 86_400  # seconds


def cache_folder(setting: str) -> Path:
    """Where prepared data is: the folder that `data.cache` names, or the user's cache."""
    if setting:
        return Path(setting)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


def cached(cache: Path, key: Iterable[str], write: Callable[[Path], None]) -> Path:
    """The folder for this key: from the cache if it is complete, else `write` fills it now."""
    folder = cache / "prepared" / hashlib.sha256(repr(list(key)).encode()).hexdigest()[:32]
    if _is_complete(folder):
        return folder
    _sweep(folder.parent)
    temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.mkdir(parents=True)
        write(temporary)
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


def _sweep(folder: Path) -> None:
    """Remove what was left behind by processes killed a day ago or longer."""
    for leftover in folder.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > DAY:
                shutil.rmtree(leftover, ignore_errors=True)


def _is_complete(folder: Path) -> bool:
    """Whether every file is there and is what the manifest says."""
    try:
        digests = json.loads(read_small(folder / "manifest.json"))["sha256"]
        return all((folder / name).is_file() and sha256(folder / name) == digest for name, digest in digests.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
