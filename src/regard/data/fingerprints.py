"""Fingerprints of data: they tell whether a corpus is the one that was read before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from regard.data.lines import readable
from regard.files import sha256


def fingerprint(files: Iterable[Path], *settings: object) -> str:
    """Changes with the content of the files, their order, and the settings by which they are read; not with paths."""
    digest = hashlib.sha256(repr(settings).encode())
    for path in files:
        with readable(path):
            digest.update(bytes.fromhex(sha256(path)))
    return digest.hexdigest()
