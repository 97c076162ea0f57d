"""Some images decoded into one file of pixels, each at its own place; in this process or in one started for it.

    → {"first": 128, "contents": [["file", "a.png"], ["bytes", 911], ["pixels", [28, 28]], ["bad", "It is empty."]]},
      then the bytes and the pixels
    ← {"outcomes": [[0.7130, 640, 480], "It is damaged or cut short.", [0.0265, 28, 28], "It is empty."]}

What comes back are hash fractions with widths and heights, and the reasons of bad images. The process of
`python -m regard.data.image_decoding` does this until its standard input ends, as it does when the process that started
it ends, however that ends. It imports nothing that takes long.
"""

from __future__ import annotations

import fcntl
import io
import math
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data import images
from regard.data.image_entries import Content
from regard.data.images import BadImage, Form, fit_pixels, read_with_size
from regard.data.processes import receive, send
from regard.data.splits import hash_fraction


class Read(NamedTuple):
    """What else is known of an image that was decoded: its hash fraction, and its own size, upright."""

    fraction: float
    width: int
    height: int


Outcome = Read | BadImage  # of an image; or why it has no pixels


def decode(contents: Sequence[Content], first: int, form: Form, target: int) -> list[Outcome]:
    """Image n of the contents becomes row `first` + n of the file with this descriptor; a bad one leaves it."""
    return [_decode_one(content, first + number, form, target) for number, content in enumerate(contents)]


def _decode_one(content: Content, row: int, form: Form, target: int) -> Outcome:
    try:
        if isinstance(content, BadImage):
            return content
        if isinstance(content, np.ndarray):
            pixels_HWC, size = fit_pixels(content, form), (content.shape[1], content.shape[0])
        else:
            pixels_HWC, size = read_with_size(io.BytesIO(content) if isinstance(content, bytes) else content, form)
        fraction = _fraction(content)
    except BadImage as bad:
        return bad
    _write(pixels_HWC, row * form.bytes, target)
    return Read(fraction, *size)


def _fraction(content: Path | bytes | NDArray[np.uint8]) -> float:
    """From the file itself, so that the split an image falls into does not change with the size it is brought to."""
    whole = content.read_bytes() if isinstance(content, Path) else content
    return hash_fraction(whole if isinstance(whole, bytes) else whole.tobytes())


def _write(pixels_HWC: NDArray[np.uint8], at: int, target: int) -> None:
    left = memoryview(pixels_HWC.tobytes())
    while left:  # a nearly full disk takes a part, and says why when asked again
        written = os.pwrite(target, left, at)
        left, at = left[written:], at + written


# ---------------------------------------------------------------- messages


def send_contents(file: BinaryIO, contents: Sequence[Content], first: int) -> None:
    described: list[tuple[str, Any]] = []
    blobs: list[bytes | memoryview] = []
    for content in contents:
        if isinstance(content, BadImage):
            described.append(("bad", content.reason))
        elif isinstance(content, Path):
            described.append(("file", str(content)))
        elif isinstance(content, bytes):
            described.append(("bytes", len(content)))
            blobs.append(content)
        else:
            described.append(("pixels", content.shape))
            blobs.append(content.tobytes())
    send(file, {"first": first, "contents": described}, blobs)


def _received_contents(file: BinaryIO, described: Sequence[Any]) -> list[Content]:
    contents: list[Content] = []
    for kind, about in described:
        if kind == "bad":
            contents.append(BadImage(about))
        elif kind == "file":
            contents.append(Path(about))
        elif kind == "bytes":
            contents.append(file.read(about))
        else:
            contents.append(np.frombuffer(file.read(math.prod(about)), np.uint8).reshape(about))
    return contents


# ---------------------------------------------------------------- the process


class OneOfAll:
    """A lock that all processes share which have opened the same file."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor

    def __enter__(self) -> None:
        with suppress(OSError):  # of file systems without locks
            fcntl.flock(self.descriptor, fcntl.LOCK_EX)

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)


def main() -> None:
    """Reads messages, decodes, and answers each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes: the one that started this one ends it
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    start = receive(asked)
    if start is None:
        return
    form = Form(*start["form"])
    target = os.open(start["target"], os.O_RDWR)
    images.ONE_LARGE = OneOfAll(target)
    with suppress(BrokenPipeError):  # nobody waits any longer
        send(answers, {"ready": True})
        while (message := receive(asked)) is not None:
            contents = _received_contents(asked, message["contents"])
            send(answers, _answer(contents, message["first"], form, target))


def _answer(contents: Sequence[Content], first: int, form: Form, target: int) -> dict[str, Any]:
    try:
        outcomes = decode(contents, first, form, target)
    except OSError as error:  # the disk is full, or a file is gone
        return {"error": [error.errno, error.strerror, error.filename]}
    return {"outcomes": [outcome.reason if isinstance(outcome, BadImage) else outcome for outcome in outcomes]}


if __name__ == "__main__":
    main()
