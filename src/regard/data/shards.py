"""Shards: a corpus tokenised once, kept on disk, mapped into memory, and used again.

A shard folder holds, for each side, all ids one after the other (`source.ids`) and where each sentence
starts (`source.offsets`), and a manifest with the sha256 of every file. It is made under a temporary
name and renamed when whole, so a folder with a manifest is complete. The folder's name is a hash of the
text, the tokenizers and this format: when any of them changes, another folder is made.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.labelled import LabelledSource
from regard.data.pairs import PairSource, not_empty
from regard.data.text import TextSource, not_utf8
from regard.data.tokenizers import END, START, TextTokenizer
from regard.errors import RegardError
from regard.files import flush, sha256

FORMAT = "shards-2"
DAY = 86_400  # seconds
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


def cut(sentences: Ragged, most: int) -> Ragged:
    """The first so many ids of each sentence."""
    lengths = np.minimum(sentences.lengths, most)
    return Ragged(sentences.ids[spread(sentences.offsets[:-1], lengths)], np.concatenate([[0], np.cumsum(lengths)]))


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


@dataclass(frozen=True)
class LabelledShards:
    """Tokenised texts, and the number of each one's class."""

    texts: Ragged
    classes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: NDArray[np.int64]) -> LabelledShards:
        return LabelledShards(self.texts.take(rows), self.classes[rows])


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
    parts = [FORMAT, pairs.fingerprint, *(tokenizer.to_json() for tokenizer in tokenizers)]
    sides = dict(zip(SIDES, tokenizers, strict=True))
    folder = kept(cache, parts, lambda place: _write_sides(place, sides, not_empty(pairs), progress))
    return PairShards(*(_read_side(folder, side, tokenizer) for side, tokenizer in sides.items()))


def tokenise_labelled(
    examples: LabelledSource, tokenizer: TextTokenizer, classes: Sequence[str], cache: Path
) -> LabelledShards:
    """The shards of labelled texts; a label that is none of the classes is an error."""
    parts = [FORMAT, "labelled", examples.fingerprint, json.dumps(classes), tokenizer.to_json()]
    number_of = {name: number for number, name in enumerate(classes)}

    def write(place: Path) -> None:
        numbers: list[int] = []

        def texts() -> Iterator[tuple[str]]:
            for example in examples:
                if example.label not in number_of:
                    raise RegardError(
                        f"The label '{example.label}' does not occur in the training data.",
                        f"The classes are: {', '.join(classes[:20])}{' …' if len(classes) > 20 else ''}.",
                        f"It stands before '{example.text[:40]}'. Correct it, or train with texts of that class.",
                    )
                numbers.append(number_of[example.label])
                yield (example.text,)

        _write_sides(place, {"text": tokenizer}, texts())
        (place / "classes").write_bytes(np.array(numbers, np.int64).tobytes())
        flush(place / "classes")

    folder = kept(cache, parts, write)
    found = np.fromfile(folder / "classes", np.int64)
    return LabelledShards(_read_side(folder, "text", tokenizer), found)


def tokenise_text(text: TextSource, tokenizer: TextTokenizer, cache: Path, starts: bool = False) -> NDArray[Any]:
    """All ids of a text, one after the other, <end> after every document; with `starts`, <start> before each.

    A text that is one document alone has no <end>: nothing comes after it.
    """
    parts = [FORMAT, "starts" if starts else "text", text.fingerprint, tokenizer.to_json()]
    folder = kept(cache, parts, lambda place: _write_text(place, text, tokenizer, starts))
    return read_ids(folder / "text.ids", tokenizer)


def kept(cache: Path, parts: Iterable[str], write: Callable[[Path], None]) -> Path:
    """The folder for these parts: as it lies in the cache if it is whole, else written now."""
    key = hashlib.sha256()
    for part in parts:
        key.update(part.encode())
    folder = cache / "shards" / key.hexdigest()[:32]
    if _is_whole(folder):
        return folder
    _sweep(folder.parent)
    temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.mkdir(parents=True)
        write(temporary)
        digests = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
        (temporary / "manifest.json").write_text(json.dumps({"format": FORMAT, "sha256": digests}, indent=2))
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except OSError as error:
        if not _is_whole(folder):  # else another process made the same shards meanwhile
            raise RegardError(
                f"Cannot write prepared data to '{folder.parent}'.",
                f"{error}",
                "Free some room there, or set data.cache to another folder.",
            ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _sweep(place: Path) -> None:
    """Take away what processes left behind that were killed a day ago or longer."""
    for left in place.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > DAY:
                shutil.rmtree(left, ignore_errors=True)


def _is_whole(folder: Path) -> bool:
    """Whether every file is there and is what the manifest says."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        return all(sha256(folder / name) == digest for name, digest in manifest["sha256"].items())
    except (OSError, ValueError, KeyError):
        return False


def _write_sides(
    folder: Path,
    sides: dict[str, TextTokenizer],
    samples: Iterable[tuple[str, ...]],
    progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Each sample has a text for each side."""
    count, totals = 0, [0] * len(sides)
    files = [[(folder / f"{side}.{part}").open("wb") for part in ("ids", "offsets")] for side in sides]
    for _, offsets_file in files:
        offsets_file.write(np.int64(0).tobytes())
    for chunk in _chunks(samples):
        for side, tokenizer in enumerate(sides.values()):
            rows = tokenizer.encode([sample[side] for sample in chunk])
            offsets = totals[side] + np.cumsum([len(row) for row in rows], dtype=np.int64)
            totals[side] = int(offsets[-1])
            files[side][0].write(np.fromiter(itertools.chain.from_iterable(rows), _dtype(tokenizer)).tobytes())
            files[side][1].write(offsets.tobytes())
        count += len(chunk)
        progress(count)
    for file in itertools.chain.from_iterable(files):
        file.close()
        flush(Path(file.name))


def _read_side(folder: Path, side: str, tokenizer: TextTokenizer) -> Ragged:
    ids = read_ids(folder / f"{side}.ids", tokenizer)
    return Ragged(ids, np.memmap(folder / f"{side}.offsets", dtype=np.int64, mode="r"))


def _write_text(folder: Path, text: TextSource, tokenizer: TextTokenizer, starts: bool) -> None:
    dtype = _dtype(tokenizer)
    start, end = dtype.type(START).tobytes(), dtype.type(END).tobytes()
    documents, begins = 0, True
    with (folder / "text.ids").open("wb") as file:
        for piece, ends_document in text.pieces():
            if begins:
                file.write((end if documents else b"") + (start if starts else b""))
                documents += 1
            file.write(np.array(_encode_piece(text, tokenizer, piece), dtype).tobytes())
            begins = ends_document
        file.write(end if documents > 1 else b"")
    flush(folder / "text.ids")


def _encode_piece(text: TextSource, tokenizer: TextTokenizer, piece: bytes) -> list[int] | NDArray[np.int64]:
    try:
        return tokenizer.encode_bytes(piece)
    except UnicodeDecodeError as error:
        raise not_utf8(text, piece, error) from None


def read_ids(path: Path, tokenizer: TextTokenizer) -> NDArray[Any]:
    dtype = _dtype(tokenizer)
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.empty(0, dtype)


def _dtype(tokenizer: TextTokenizer) -> np.dtype[Any]:
    """The smallest type that holds every id."""
    return np.dtype(np.uint16 if tokenizer.size <= 2**16 else np.uint32)


def _chunks(samples: Iterable[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    iterator = iter(samples)
    while chunk := list(itertools.islice(iterator, CHUNK)):
        yield chunk
