"""A trained model of pixels: it draws images, completes them, and says how likely they are.

Shapes: N images · H × W pixels · C channels · T = H·W pixels of an image · S samples · D model width
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.settings import FileList
from regard.data.image_cache import Images, ImageSplits, image_splits, labelled_images
from regard.data.images import BadImage, read_image
from regard.data.palette import Palette
from regard.data.pixel_batches import pixel_batch
from regard.decoding.pixels import draw_pixels
from regard.errors import RegardError, UsageError
from regard.evaluation.metrics import Evaluation, Score
from regard.evaluation.probe import features_of_layers, means_of_layers
from regard.runs.base import Run
from regard.tasks.pixels import PALETTE, measure, pixel_model
from regard.tasks.same_data import notice_change

PIXELS_AT_ONCE = 65_536  # of all images that are drawn, or read, side by side
MOST_SAMPLES = 10_000


class PixelRun(Run):
    """`regard.load("runs/mnist-pixels").sample(25)`"""

    def __init__(self, path: Path | str, device: str = "auto"):
        super().__init__(path, device)
        self.palette = Palette.from_json(self.folder.read_json(PALETTE))
        self.model = self._load(pixel_model(self.config, self.palette))
        self.height, self.width = self.config.images.height, self.config.images.width
        self.at_once = max(1, PIXELS_AT_ONCE // (self.height * self.width))

    def sample(self, count: int = 25, seed: int = 1, **decoding: Any) -> NDArray[np.uint8]:
        """Images that the model makes up: [N, H, W, C]. Keywords override [decoding]: temperature=0.9 …"""
        _can_be_drawn(count)
        return self._drawn(np.zeros((count, 0), np.int64), seed, decoding)

    def complete(
        self,
        images: Sequence[NDArray[np.uint8] | Path | str] | Path | str,
        keep: float = 0.5,
        samples: int = 5,
        seed: int = 1,
        **decoding: Any,
    ) -> NDArray[np.uint8]:
        """The first rows of each image, a file or [H, W, C], and below them what the model adds: [N, S, H, W, C].

        What is kept has the palette's colours.
        """
        kept = self.kept_rows(keep)
        images = [images] if isinstance(images, Path | str) else images
        if not images:
            raise UsageError("There is no image to complete.", "None was given.", "Add --complete IMAGE.png.")
        pixels = [self.read(image) if isinstance(image, Path | str) else image for image in images]
        codes_NT = self.palette.codes(np.stack(pixels))
        _can_be_drawn(samples, len(images))
        given_NP = np.repeat(codes_NT[:, : kept * self.width], samples, axis=0)
        drawn = self._drawn(given_NP, seed, decoding)
        return drawn.reshape(len(images), samples, *drawn.shape[1:])

    def kept_rows(self, keep: float) -> int:
        """How many rows of an image a share of it is: at least one, and not all."""
        if not 0 < keep < 1 or self.height < 2:
            raise UsageError(
                f"{keep:g} of an image cannot be kept.",
                f"At least one of its {self.height} rows is kept, and at least one drawn.",
                "Use a share between 0 and 1: --keep 0.5.",
            )
        return min(max(1, round(keep * self.height)), self.height - 1)

    def splits(self) -> ImageSplits:
        """The images that the run was trained and measured on."""
        return image_splits(self.config.data, self.config.images)

    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        """Score held-out images: the run's own, or the files given."""
        images, what = self._held_out(files, split)
        if not len(images):
            raise RegardError("There is nothing to score.", f"There is no image in {what}.", "Name another file.")
        found = measure(self.model, images.pixels_NHWC, self.palette, self.config, self.hardware)
        lost = self.palette.error(images.pixels_NHWC[: self.at_once])
        said = {"loss": "nats a pixel", "bits_per_pixel": f"bits a pixel of {len(self.palette)} colours"}
        scores = [Score(name, value, None, f"{what} · {said[name]}") for name, value in found.items()]
        details = {"colours": len(self.palette), "palette_squared_error": lost}
        return Evaluation(scores, len(images), "images", details=details)

    @torch.inference_mode()
    def layer_features(self, pixels_NHWC: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
        """What each layer makes of each image, the mean of its positions: [N, D] of the embedding, of each block."""
        found: list[list[Tensor]] = []
        for start in range(0, len(pixels_NHWC), self.at_once):
            codes_BT = self.palette.codes(pixels_NHWC[start : start + self.at_once])
            batch = pixel_batch(codes_BT, start=len(self.palette)).to(self.hardware.device)
            with self.hardware.autocast(), means_of_layers(self.model.trunk.layers) as means:
                self.model.trunk(batch.tokens_BT)
            found.append(means)
        return features_of_layers(found)

    def _drawn(self, given_NP: NDArray[np.int64], seed: int, decoding: dict[str, Any]) -> NDArray[np.uint8]:
        """Images that go on from the pixels given: [N, H, W, C]. Image n depends on the seed and n alone."""
        if seed < 0:
            raise UsageError(f"The seed {seed} is negative.", "A seed is 0 or more.", "Use --seed 1.")
        settings = self._with("decoding", **decoding).decoding
        parts = [
            draw_pixels(
                self.model,
                given_NP[first : first + self.at_once],
                self.height * self.width,
                settings,
                start=len(self.palette),
                seed=seed,
                first=first,
                device=self.hardware.device,
            ).codes_NT
            for first in range(0, len(given_NP), self.at_once)
        ]
        return self.palette.pixels(np.concatenate(parts), self.height, self.width)

    def read(self, path: Path | str) -> NDArray[np.uint8]:
        """An image file as the model sees images: [H, W, C]."""
        try:
            return read_image(Path(path), self.config.images)
        except BadImage as error:
            raise RegardError(f"The image '{path}' cannot be read.", error.reason, "Give another image.") from None

    def _held_out(self, files: FileList | None, split: str) -> tuple[Images, str]:
        if files:
            paths = [Path(str(name)).resolve() for name in files]
            named = ", ".join(path.name for path in paths)
            return labelled_images(paths, self.config.data, self.config.images, classes=[]), named  # of any class
        splits = self.splits()
        notice_change(self.folder, splits.fingerprints, split)
        found: Images = getattr(splits, split)
        return found, split


def _can_be_drawn(samples: int, images: int = 1) -> None:
    if not 1 <= samples * images <= MOST_SAMPLES:
        raise UsageError(
            f"{samples * images:,} images cannot be drawn.",
            f"One to {MOST_SAMPLES:,} are drawn at a time.",
            "Use --samples 25, or call again with another --seed.",
        )
