"""The pixel task (iGPT): a causal language model over the pixels of images, which then draws images of its own.

Shapes: N images · H × W pixels · C channels · T = H·W pixels of an image
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard import console
from regard.settings import Config
from regard.data.batch import DataState
from regard.data.image_cache import Images
from regard.data.palette import Palette
from regard.data.pixel_batches import PixelBatch, PixelStream, pixel_batch
from regard.hardware import Hardware
from regard.models.causal import Causal
from regard.tasks.common import draw_curves
from regard.tasks.images import prepare_images, save_examples
from regard.training.folder import RunFolder
from regard.training.loss import cross_entropy, training_loss

MOST_VALIDATED = 1000  # images; a test takes all
PALETTE = "palette.json"


class PixelTask:
    """What the trainer needs to know of images as sequences of pixels."""

    def __init__(self, config: Config, folder: RunFolder, hardware: Hardware):
        self.config, self.folder, self.hardware = config, folder, hardware
        self.data = prepare_images(config, folder)
        self.example = save_examples(folder, self.data)[0]
        self.palette = prepare_palette(config, folder, self.data.train)
        self.stream = PixelStream(
            self.data.train, self.palette, config.training.images_per_batch, config.seed, config.augmentation
        )

    def build(self) -> Causal:
        return pixel_model(self.config, self.palette)

    def architecture(self) -> dict[str, Any]:
        return {
            "architecture": "causal",
            "vocabulary": len(self.palette) + 1,
            "start_id": len(self.palette),
            "images": self.config.images.model_dump(),
            "palette": self.palette.to_json()["colours"],
        }

    def size(self) -> str:
        images, count = self.config.images, len(self.data.train)
        steps = -(-count // self.config.training.images_per_batch)
        return (
            f"{count:,} images of {images.height} x {images.width} · {images.height * images.width:,} pixels each, "
            f"of {len(self.palette)} colours · an epoch is {steps:,} steps"
        )

    def batches(self, state: DataState) -> Iterator[tuple[PixelBatch, DataState]]:
        return self.stream.batches(state)

    def loss(self, model: nn.Module, batch: PixelBatch) -> Tensor:
        settings = self.config.training
        return training_loss(lambda part: model(part.tokens_BT), batch, settings.label_smoothing, settings.consistency)

    def validate(self, model: nn.Module, step: int) -> dict[str, float]:
        return self._measure(model, evenly(self.data.valid, MOST_VALIDATED))

    def test(self, model: nn.Module) -> dict[str, float]:
        return self._measure(model, self.data.test)

    def draw(self) -> None:
        draw_curves(self.folder)

    def next_commands(self) -> list[str]:
        path = self.folder.path
        commands = [
            f"regard generate {path} --samples 25 -o samples.png",
            f"regard generate {path} --complete {self.example} --keep 0.5 -o completed.png",
            f"regard evaluate {path}",
        ]
        return [*commands, f"regard probe {path}"] if self.data.classes else commands

    def _measure(self, model: nn.Module, images: Images) -> dict[str, float]:
        return measure(model, images.pixels_NHWC, self.palette, self.config, self.hardware)


def pixel_model(config: Config, palette: Palette) -> Causal:
    """A token for each colour, and one for the start of an image."""
    return Causal(config.model, len(palette) + 1)


def prepare_palette(config: Config, folder: RunFolder, train: Images) -> Palette:
    """The run's own palette: made once, then read back, so that a code always stands for the same colour."""
    if not (folder.path / PALETTE).exists():
        asked = config.pixels.colours
        if config.pixels.palette == "grey":
            palette = Palette.grey(asked)
        else:
            console.say(f"Looking for {asked:,} colours in {len(train):,} images.")
            palette = Palette.k_means(train.pixels_NHWC, asked, config.seed)
        if len(palette) < asked:
            console.warn(f"There are only {len(palette):,} colours; pixels.colours = {asked:,} asks for more.")
        folder.write_json(PALETTE, palette.to_json())
    return Palette.from_json(folder.read_json(PALETTE))


def evenly(images: Images, most: int) -> Images:
    """At most so many of the images, at equal distances."""
    if len(images) <= most:
        return images
    return images.take(np.linspace(0, len(images) - 1, most).astype(np.int64))


@torch.inference_mode()
def measure(
    model: nn.Module, pixels_NHWC: NDArray[np.uint8], palette: Palette, config: Config, hardware: Hardware
) -> dict[str, float]:
    """Over every pixel, the first of an image included.

    loss            mean, in nats a pixel
    bits_per_pixel  the same in bits: what a perfect coder would need to store a pixel of the palette's colours.
                    With 256 grey levels nothing is lost by the palette, and these are "bits per dimension".
    """
    model.eval()
    total, targets = 0.0, 0
    at_once = max(1, config.training.images_per_batch // config.training.micro_batches)
    for start in range(0, len(pixels_NHWC), at_once):
        codes_BT = palette.codes(pixels_NHWC[start : start + at_once])
        batch = pixel_batch(codes_BT, start=len(palette)).to(hardware.device)
        with hardware.autocast():
            total += cross_entropy(model(batch.tokens_BT), batch.labels_BT, ignore=batch.nothing).item()
        targets += codes_BT.size
    loss = total / max(targets, 1)
    return {"loss": loss, "bits_per_pixel": loss / math.log(2)}
