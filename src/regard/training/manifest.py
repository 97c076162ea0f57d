"""The manifest of a run: the sha256 of each file that the run is made of, so that none is used damaged.

A file and its digest cannot change in the same moment. So the digest of what is about to be written is noted first,
beside that of the file as it is; either will do until the next file is written. A run folder is valid at any moment.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.files import move_into_place, read_small, sha256, write_atomically

MANIFEST = "manifest.json"
EDITED = "edited"
# Files for people, and those that grow, are not part of it; nor is anything in a subfolder.
NOT_LISTED = (MANIFEST, "README.md", "metrics.jsonl", "skipped_images.txt")


class Manifest:
    def __init__(self, folder: Path):
        self.folder = folder
        self.finished: dict[str, str] = {}
        self.being_written: dict[str, str] = {}
        self._written: set[str] = set()  # of those being written: what this process has put into place

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """An empty one where there is none: runs of earlier versions are not checked."""
        manifest = cls(folder)
        path = folder / MANIFEST
        if path.is_symlink() or path.exists():
            try:
                content = json.loads(read_small(path))
                manifest.finished = _digests(content["sha256"])
                manifest.being_written = _digests(content["being_written"])
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                form = isinstance(error, (KeyError, TypeError))
                raise RegardError(
                    f"The manifest '{path}' is damaged.",
                    "It is not a table of digests." if form else f"{error}"[:200],
                    "Restore it. Without it, the other files of the run cannot be checked.",
                ) from None
        return manifest

    def agrees(self, name: str) -> bool:
        """Whether a file is what was written. What is not listed, or was edited on purpose, is not checked."""
        known = {digests[name] for digests in (self.finished, self.being_written) if name in digests}
        return not known or EDITED in known or sha256(self.folder / name) in known

    def put(self, temporary: Path, name: str) -> None:
        """Move a file that is complete into its place, and list its digest."""
        path = self.folder / name
        if path.parent != self.folder or name in NOT_LISTED:
            move_into_place(temporary, path)
            return
        self._settle()
        if name in self.being_written and path.is_file() and self.agrees(name):
            # It is either of two: a process was killed while it was replaced.
            self.finished[name] = sha256(path)
        self.being_written[name] = sha256(temporary)
        self._write()
        move_into_place(temporary, path)
        self._written.add(name)

    def close(self) -> None:
        """Every file is in its place: one digest for each."""
        self._settle()
        self._write()

    def _settle(self) -> None:
        for name in self._written:
            self.finished[name] = self.being_written.pop(name)
        self._written.clear()

    def _write(self) -> None:
        content = {"sha256": dict(sorted(self.finished.items())), "being_written": self.being_written}
        write_atomically(self.folder / MANIFEST, (json.dumps(content, indent=2) + "\n").encode())


def check(folder: Path, name: str) -> None:
    """An error if a file of a run is damaged."""
    # Once more, if a training has just replaced it.
    if not any(Manifest.read(folder).agrees(name) for _ in range(2)):
        raise RegardError(
            f"'{folder / name}' is damaged.",
            f"It is not what was written: its sha256 differs from that in {MANIFEST}.",
            f'Restore it from a copy. If you have changed it yourself, put "{EDITED}" in place of its digest there.',
        )


def _digests(content: Any) -> dict[str, str]:
    if not isinstance(content, dict) or not all(isinstance(digest, str) for digest in content.values()):
        raise TypeError("not a table of digests")
    return content
