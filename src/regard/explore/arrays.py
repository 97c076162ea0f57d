"""Matrices on their way to the page: byte planes, packed.

    unit    10 bits of numbers in 0 … 1     n = round(1023 x); plane 0: n >> 2, plane 1: n & 3     error ≤ 4.9e-4
    half    float16                         plane 0: high bytes, plane 1: low bytes       relative error ≤ 4.9e-4
    long    the upper 24 bits of float32    planes 0, 1, 2, the highest bytes first       relative error ≤ 1.6e-5

Similar bytes lie side by side, so they compress to a fraction.

A message is the length of its head (4 bytes, little-endian), the head as JSON, and the planes, gzipped.
"""

from __future__ import annotations

import gzip
import json
import struct
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["unit", "half", "long"]
LEVELS = 1023
COMPRESSION = 6  # of 9: higher levels save a few percent for several times the work


@dataclass(frozen=True)
class Matrix:
    """Numbers, how they are encoded, and notes for the page."""

    values: NDArray[np.float32]
    kind: Kind
    notes: dict[str, Any]

    @property
    def head(self) -> dict[str, Any]:
        return {"shape": list(self.values.shape), "kind": self.kind} | self.notes

    def packed(self) -> bytes:
        """The planes, gzipped; reproducible byte for byte."""
        return gzip.compress(planes(self.values, self.kind), COMPRESSION, mtime=0)

    def message(self) -> bytes:
        head = json.dumps(self.head).encode()
        return struct.pack("<I", len(head)) + head + self.packed()


def planes(values: NDArray[Any], kind: Kind) -> bytes:
    flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
    if kind == "unit":
        levels = np.rint(np.clip(flat, 0.0, 1.0) * LEVELS).astype(np.uint16)
        return (levels >> 2).astype(np.uint8).tobytes() + (levels & 3).astype(np.uint8).tobytes()
    if kind == "long":
        bits = flat.view(np.uint32)
        rounded = np.where(np.isfinite(flat), bits + np.uint32(128), bits)
        return b"".join(((rounded >> shift) & 255).astype(np.uint8).tobytes() for shift in (24, 16, 8))
    with np.errstate(over="ignore"):  # what float16 cannot hold becomes infinite
        halves = flat.astype("<f2").view(np.uint8).reshape(-1, 2)
    return halves[:, 1].tobytes() + halves[:, 0].tobytes()


def unpack(message: bytes) -> tuple[dict[str, Any], NDArray[np.float32]]:
    """The head and the values of a message, decoded as the page does it."""
    (length,) = struct.unpack_from("<I", message)
    head = json.loads(message[4 : 4 + length])
    raw = np.frombuffer(gzip.decompress(message[4 + length :]), np.uint8)
    first, second, *third = np.split(raw, 3 if head["kind"] == "long" else 2)
    if head["kind"] == "long":
        bits = first.astype(np.uint32) << 24 | second.astype(np.uint32) << 16 | third[0].astype(np.uint32) << 8
        values: NDArray[Any] = bits.view(np.float32)
    elif head["kind"] == "unit":
        values = ((first.astype(np.uint16) << 2) | second).astype(np.float32) / LEVELS
    else:
        values = np.stack([second, first], axis=1).reshape(-1).view("<f2").astype(np.float32)
    return head, values.reshape(head["shape"])


def max_pooled(values: NDArray[Any], most: int) -> tuple[NDArray[Any], int, int]:
    """The last two axes shortened to at most `most`, and by which two factors. Each cell is the maximum of its block.

    The maximum, because a mean would hide single links.
    """
    down, across = (-(-size // most) if size > most else 1 for size in values.shape[-2:])
    if down == across == 1:
        return values, 1, 1
    rows, columns = (np.arange(0, size, step) for size, step in zip(values.shape[-2:], (down, across), strict=True))
    pooled = np.maximum.reduceat(values, rows, axis=-2)
    return np.maximum.reduceat(pooled, columns, axis=-1), down, across
