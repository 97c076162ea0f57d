"""Numbered images for tests of how images are read, and a way to read them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from regard.data.image_cache import Images, ImageSplits, image_splits
from regard.settings import ImageData, ImageSettings

SETTINGS = ImageSettings(size=4)


def pixels(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (4, 4, 3)).astype(np.uint8)


class Photos:
    """Numbered images below a folder, a cache beside them, and a way to read the ones through the other."""

    def __init__(self, folder: Path):
        self.folder, self.cache = folder / "photos", folder / "cache"
        self.folder.mkdir()

    def add(self, where: str, numbers: range) -> Photos:
        (self.folder / where).mkdir(parents=True, exist_ok=True)
        for number in numbers:
            Image.fromarray(pixels(number)).save(self.folder / where / f"{number}.png")
        return self

    def data(self, **changes) -> ImageData:
        return ImageData(**{"root": str(self.folder), "cache": str(self.cache), "images": "."} | changes)

    def splits(self, settings: ImageSettings = SETTINGS, **changes) -> ImageSplits:
        return image_splits(self.data(**changes), settings)

    def cached(self) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in sorted(self.cache.rglob("*"))}


def numbers(images: Images) -> list[int]:
    return [int(Path(name).stem) for name in images.names]


def spoil(folder: Path) -> None:
    """Adds a text that is called an image, and half an image."""
    (folder / "text.png").write_text("no image")
    whole = io.BytesIO()
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (64, 64, 3)).astype(np.uint8)).save(whole, "JPEG")
    (folder / "half.jpg").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
