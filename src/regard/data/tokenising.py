"""A part of some text tokenised, in this process or in one started for it, and kept in a file, whole or not there.

    → {"encoder": "sides", "tokenizers": ["{…}", "{…}"]}        once
    → {"path": "…/part-12", "of": "5f09…", "sizes": [800, 9340, 800, 9871]}, then the texts; see `packed`
    ← {"done": true}

The process of `python -m regard.data.tokenising` does this until its standard input ends, as it does when the process
that started it ends, however that ends. It imports nothing that takes long.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from regard.data.processes import receive, send
from regard.data.tokenizers import TextTokenizer
from regard.files import read_small, write_atomically

CHUNK = 20_000  # texts tokenised at a time
TOGETHER = 2**22  # bytes tokenised at a time; a token takes a hundred bytes or so meanwhile
LARGEST = 2**31  # bytes of a part's file: far more than it can have, since parts are small

Column = list[bytes]  # texts in UTF-8, or, for a vocabulary of bytes, anything


class Encoder(ABC):
    """Columns of texts become byte strings, each of which is appended to that of the part before."""

    name: ClassVar[str]

    def __init__(self, tokenizers: Sequence[TextTokenizer]):
        self.tokenizers = tokenizers

    @abstractmethod
    def encode(self, columns: Sequence[Column]) -> list[bytes]: ...

    def to_json(self) -> dict[str, Any]:
        return {"encoder": self.name, "tokenizers": [tokenizer.to_json() for tokenizer in self.tokenizers]}


class Sides(Encoder):
    """A column for each side. For each, the ids of all texts, and where each text ends among them."""

    name = "sides"

    def encode(self, columns: Sequence[Column]) -> list[bytes]:
        return [encoded for pair in zip(self.tokenizers, columns, strict=True) for encoded in self._side(*pair)]

    def _side(self, tokenizer: TextTokenizer, column: Column) -> tuple[bytes, bytes]:
        ids, lengths = bytearray(), []
        for chunk in chunks(column):
            rows = tokenizer.encode([text.decode() for text in chunk])
            lengths.append(np.fromiter(map(len, rows), np.int64, len(rows)))
            ids += np.fromiter(itertools.chain.from_iterable(rows), dtype_of(tokenizer)).tobytes()
        return bytes(ids), np.cumsum(np.concatenate(lengths)).tobytes()


class Running(Encoder):
    """Pieces of running text, and what is to be written before each: <end>, <start>, or nothing."""

    name = "running"

    def encode(self, columns: Sequence[Column]) -> list[bytes]:
        [tokenizer] = self.tokenizers
        pieces, before = columns
        ids, marks = bytearray(), iter(before)
        for chunk in chunks(pieces):
            for row in tokenizer.encode_pieces([tokenizer.readable(piece) for piece in chunk]):
                ids += next(marks) + np.asarray(row, dtype_of(tokenizer)).tobytes()
        return [bytes(ids)]


ENCODERS: dict[str, type[Encoder]] = {encoder.name: encoder for encoder in (Sides, Running)}


def encoder_from_json(described: dict[str, Any]) -> Encoder:
    tokenizers = {text: TextTokenizer.from_json(text) for text in described["tokenizers"]}
    return ENCODERS[described["encoder"]]([tokenizers[text] for text in described["tokenizers"]])


def dtype_of(tokenizer: TextTokenizer) -> np.dtype[Any]:
    """The smallest type that holds every id."""
    return np.dtype(np.uint16 if tokenizer.size <= 2**16 else np.uint32)


def chunks(texts: Iterable[bytes]) -> Iterator[Column]:
    """A few texts at a time, bounded in number and in bytes."""
    chunk: Column = []
    size = 0
    for text in texts:
        chunk.append(text)
        size += len(text)
        if len(chunk) >= CHUNK or size >= TOGETHER:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


# ---------------------------------------------------------------- texts on their way, and ids in a file


def packed(columns: Sequence[Column]) -> list[bytes]:
    """Of each column the lengths of its texts, and all of them one after the other."""
    blobs: list[bytes] = []
    for column in columns:
        blobs += [np.fromiter(map(len, column), np.int64, len(column)).tobytes(), b"".join(column)]
    return blobs


def unpacked(blobs: Sequence[bytes]) -> list[Column]:
    columns = []
    for lengths, texts in zip(blobs[::2], blobs[1::2], strict=True):
        ends = np.cumsum(np.frombuffer(lengths, np.int64)).tolist()
        columns.append([texts[start:end] for start, end in zip([0, *ends], ends, strict=False)])
    return columns


def digest(blobs: Iterable[bytes]) -> str:
    sha256 = hashlib.sha256()
    for blob in blobs:
        sha256.update(len(blob).to_bytes(8) + blob)
    return sha256.hexdigest()


def write_part(path: Path, of: str, encoded: Sequence[bytes]) -> None:
    """`of` is the digest of the texts. The first line says what the file must hold."""
    header = json.dumps({"of": of, "sizes": [*map(len, encoded)], "sha256": digest(encoded)}).encode()
    write_atomically(path, b"".join((header, b"\n", *encoded)))


def read_part(path: Path, of: str) -> list[bytes] | None:
    """What `write_part` was given; None where there is no such file, or it is damaged, or of other texts."""
    try:
        header, _, rest = read_small(path, LARGEST).partition(b"\n")
        about = json.loads(header)
        ends = [0, *itertools.accumulate(about["sizes"])]
        encoded = [rest[start:end] for start, end in itertools.pairwise(ends)]
        return encoded if about["of"] == of and about["sha256"] == digest(encoded) and ends[-1] == len(rest) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


# ---------------------------------------------------------------- the process


def main() -> None:
    """Reads messages, tokenises, and answers each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes: the one that started this one ends it
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    start = receive(asked)
    if start is None:
        return
    encoder = encoder_from_json(start)
    with suppress(BrokenPipeError):  # nobody waits any longer
        send(answers, {"ready": True})
        while (message := receive(asked)) is not None:
            blobs = [asked.read(size) for size in message["sizes"]]
            if [*map(len, blobs)] != message["sizes"]:
                return  # who asked was killed meanwhile
            send(answers, _answer(Path(message["path"]), message["of"], encoder, blobs))


def _answer(path: Path, of: str, encoder: Encoder, blobs: Sequence[bytes]) -> dict[str, Any]:
    try:
        write_part(path, of, encoder.encode(unpacked(blobs)))
    except OSError as error:  # the disk is full
        return {"error": [error.errno, error.strerror, error.filename]}
    return {"done": True}


if __name__ == "__main__":
    main()
