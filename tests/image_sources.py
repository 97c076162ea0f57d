"""Small sources of images, made for tests: folders, archives, idx files; and what is read from them."""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from expect import error_of
from regard.data.image_sources import images_for, open_source
from regard.errors import RegardError
from regard.settings import ImageData


def png(colour: int = 0, side: int = 4) -> bytes:
    file = io.BytesIO()
    Image.new("L", (side, side), colour).save(file, "PNG")
    return file.getvalue()


def tree(folder: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number))
    return folder


def tar(path: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def idx(*shape: int, fill: bytes | None = None) -> bytes:
    count = int(np.prod(shape))
    content = bytes(number % 10 for number in range(count)) if fill is None else fill
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + content


def mnist(train: int = 3, test: int = 2) -> dict[str, bytes]:
    return {
        "train-images-idx3-ubyte": idx(train, 4, 5),
        "train-labels-idx1-ubyte": idx(train),
        "t10k-images-idx3-ubyte": idx(test, 4, 5),
        "t10k-labels-idx1-ubyte": idx(test),
    }


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def listing(path: Path, split: str = "train", **settings) -> list[tuple[str, str, str]]:
    """Name, label and split of all images of a source, in natural order."""
    count, images = images_for([open_source(path, ImageData(**settings))], split)
    entries = [tuple(entry[:3]) for entry, _ in images]
    assert len(entries) == count
    return sorted(entries)


def error_of_reading(path: Path, **settings) -> RegardError:
    def read() -> None:
        _, images = images_for([open_source(path, ImageData(**settings))], "train")
        list(images)

    return error_of(read)
