"""What all tasks with images do: read them once, say what could not be read, and bring them to the model's scale."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard import console
from regard.settings import Config
from regard.data.image_cache import Images, ImageSplits, image_splits, left_out
from regard.errors import RegardError
from regard.explain.image_grid import save_image
from regard.tasks.same_data import remember_data
from regard.training.folder import RunFolder

MEASURED = 20_000  # images from which mean and deviation are taken
AT_ONCE = 500  # of them in memory
EXAMPLES = 10  # images saved as files


@dataclass(frozen=True)
class Scale:
    """Mean and deviation of each channel, of pixels from 0 to 1. A model sees (x − mean) / deviation."""

    mean: list[float]
    deviation: list[float]

    @classmethod
    def of(cls, images: Images) -> Scale:
        """Of these images; where there are many, of some, evenly chosen."""
        chosen = np.unique(np.linspace(0, len(images) - 1, MEASURED).astype(np.int64))
        sums, squares = np.zeros((2, images.pixels_NHWC.shape[-1]))
        for start in range(0, len(chosen), AT_ONCE):
            pixels_NHWC = images.pixels_NHWC[chosen[start : start + AT_ONCE]] / 255
            sums += pixels_NHWC.sum((0, 1, 2))
            squares += np.square(pixels_NHWC).sum((0, 1, 2))
        count = len(chosen) * images.pixels_NHWC.shape[1] * images.pixels_NHWC.shape[2]
        mean = sums / count
        deviation = np.sqrt(np.maximum(squares / count - np.square(mean), 1e-4))
        return cls(mean.tolist(), deviation.tolist())

    @classmethod
    def of_run(cls, path: Path | str) -> Scale:
        return cls(**RunFolder.open(path).read_json("scale.json"))

    def on(self, device: torch.device) -> Scaled:
        mean, deviation = (torch.tensor(values, device=device) for values in (self.mean, self.deviation))
        return Scaled(mean[:, None, None], deviation[:, None, None], torch.tensor(255.0, device=device))


@dataclass(frozen=True)
class Scaled:
    """A scale on a device, ready to be used."""

    mean_C11: Tensor
    deviation_C11: Tensor
    white: Tensor  # a tensor: dividing by a number, a GPU multiplies by its inverse, and comes out a little different

    def __call__(self, images_BCHW: Tensor) -> Tensor:
        return (images_BCHW - self.mean_C11) / self.deviation_C11

    def pixels(self, pixels_BHWC: Tensor) -> Tensor:
        """Of bytes as they are in files: [B, C, H, W]."""
        return self(pixels_BHWC.permute(0, 3, 1, 2).contiguous() / self.white)


def prepare_images(config: Config, folder: RunFolder) -> ImageSplits:
    """Train, valid and test; what could not be read is left out, counted and named in the run folder."""
    found = image_splits(config.data, config.images)
    remember_data(folder, found.fingerprints)
    if found.skipped:
        folder.write_text("skipped_images.txt", "".join(line + "\n" for line in found.skipped))
        console.warn(f"{left_out(found.skipped)}. All are named in the run's skipped_images.txt.")
    for name, images in (("validation", found.valid), ("test", found.test)):
        if not len(images):
            raise RegardError(
                f"There are no images for the {name}.",
                f"Of {len(found.train):,} images none is left for it, with data.held_out = {config.data.held_out:g}.",
                "Raise data.held_out, or name a place for it (data.valid, data.test).",
            )
    return found


def save_examples(folder: RunFolder, data: ImageSplits) -> list[Path]:
    """A test image of each class, or of none, as files in the run's samples: something to try the verbs on."""
    numbers = {int(label): number for number, label in reversed(list(enumerate(data.test.labels_N)))}
    paths: list[Path] = []
    for label, number in sorted(numbers.items())[:EXAMPLES]:
        plain = re.sub(r"\W+", "-", data.classes[label]).strip("-") if label >= 0 else "image"
        path = folder.samples / f"{plain[:40] or f'class-{label + 1}'}.png"
        if path in paths:  # two names that differ in their signs alone
            path = folder.samples / f"class-{label + 1}.png"
        save_image(np.array(data.test.pixels_NHWC[number]), path)
        paths.append(path)
    return paths


def prepare_scale(config: Config, folder: RunFolder, train: Images) -> Scale:
    """The run's own scale; of a run that starts from another, that one's, since its weights expect it."""
    if not (folder.path / "scale.json").exists():
        source = config.training.start_from
        scale = Scale.of_run(source) if source else Scale.of(train)
        folder.write_json("scale.json", asdict(scale))
    return Scale.of_run(folder.path)
