"""Shards: a corpus tokenised once, kept on disk, mapped into memory, and used again.

A shard folder holds, for each side, all ids one after the other (`source.ids`) and where each sentence
starts (`source.offsets`), and a manifest with the sha256 of every file. It is made under a temporary
name and renamed when whole, so a folder with a manifest is complete. The folder's name is a hash of the
text, the tokenizers and this format: when any of them changes, another folder is made.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.pairs import Pair, PairSource, not_empty
from regard.data.tokenizers import TextTokenizer
from regard.errors import RegardError
from regard.files import flush, sha256

FORMAT = "pairs-1"
CHUNK = 20_000  # pairs tokenised at a time
SIDES = ("source", "target")


@dataclass(frozen=True)
class Ragged:
    """Sentences of different length in one flat array: sentence i is ids[offsets[i] : offsets[i + 1]]."""

    ids: NDArray[Any]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[Any]:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        """These sentences, in this order, copied."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return Ragged(self.ids[spread(starts, lengths)], offsets)


def spread(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1 … for each start and length, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)


@dataclass(frozen=True)
class PairShards:
    """Tokenised pairs; sentence i of `source` goes with sentence i of `target`."""

    source: Ragged
    target: Ragged

    def __len__(self) -> int:
        return len(self.source)


def cache_folder(setting: str) -> Path:
    if setting:
        return Path(setting)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


def tokenise(
    pairs: PairSource,
    tokenizers: tuple[TextTokenizer, TextTokenizer],
    cache: Path,
    progress: Callable[[int], None] = lambda done: None,
) -> PairShards:
    """The shards of these pairs: from the cache where they are whole, else made now."""
    key = hashlib.sha256()
    for part in (FORMAT, pairs.fingerprint(), *(tokenizer.to_json() for tokenizer in tokenizers)):
        key.update(part.encode())
    folder = cache / "shards" / key.hexdigest()[:32]
    if not _is_whole(folder):
        _make(folder, not_empty(pairs), tokenizers, progress)
    return _open(folder, tokenizers)


def _make(
    folder: Path,
    pairs: Iterable[Pair],
    tokenizers: tuple[TextTokenizer, TextTokenizer],
    progress: Callable[[int], None],
) -> None:
    temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.mkdir(parents=True)
        _write(temporary, pairs, tokenizers, progress)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except OSError as error:
        if _is_whole(folder):  # another process made the same shards meanwhile
            return
        raise RegardError(
            f"Cannot write tokenised data to '{folder.parent}'.",
            f"{error}",
            "Free some room there, or set data.cache to another folder.",
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write(
    folder: Path,
    pairs: Iterable[Pair],
    tokenizers: tuple[TextTokenizer, TextTokenizer],
    progress: Callable[[int], None],
) -> None:
    dtypes = [_dtype(tokenizer) for tokenizer in tokenizers]
    count, totals = 0, [0, 0]
    files = [[(folder / f"{side}.{part}").open("wb") for part in ("ids", "offsets")] for side in SIDES]
    for _, offsets_file in files:
        offsets_file.write(np.int64(0).tobytes())
    for chunk in _chunks(pairs):
        for side, tokenizer in enumerate(tokenizers):
            rows = tokenizer.encode([pair[side] for pair in chunk])
            offsets = totals[side] + np.cumsum([len(row) for row in rows], dtype=np.int64)
            totals[side] = int(offsets[-1])
            files[side][0].write(np.fromiter(itertools.chain.from_iterable(rows), dtypes[side]).tobytes())
            files[side][1].write(offsets.tobytes())
        count += len(chunk)
        progress(count)
    for file in itertools.chain.from_iterable(files):
        file.close()
        flush(Path(file.name))
    manifest = {
        "format": FORMAT,
        "pairs": count,
        "dtypes": [dtype.name for dtype in dtypes],
        "sha256": {path.name: sha256(path) for path in sorted(folder.iterdir())},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2))


def _dtype(tokenizer: TextTokenizer) -> np.dtype[Any]:
    """The smallest type that holds every id."""
    return np.dtype(np.uint16 if tokenizer.size <= 2**16 else np.uint32)


def _chunks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    iterator = iter(pairs)
    while chunk := list(itertools.islice(iterator, CHUNK)):
        yield chunk


def _is_whole(folder: Path) -> bool:
    """Whether every file is there and is what the manifest says."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        return all(sha256(folder / name) == digest for name, digest in manifest["sha256"].items())
    except (OSError, ValueError, KeyError):
        return False


def _open(folder: Path, tokenizers: tuple[TextTokenizer, TextTokenizer]) -> PairShards:
    sides = []
    for side, tokenizer in zip(SIDES, tokenizers, strict=True):
        ids_path, dtype = folder / f"{side}.ids", _dtype(tokenizer)
        ids = np.memmap(ids_path, dtype=dtype, mode="r") if ids_path.stat().st_size else np.empty(0, dtype)
        sides.append(Ragged(ids, np.memmap(folder / f"{side}.offsets", dtype=np.int64, mode="r")))
    return PairShards(*sides)
