"""The scale of images: a model sees (x − mean) / deviation, channel by channel, of pixels from 0 to 1.

Shapes: B, N images · C channels · H height · W width
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field, ValidationError
from torch import Tensor

from regard.data.image_cache import Images
from regard.errors import RegardError, first_problem
from regard.settings import Settings

MEASURED = 20_000  # images from which mean and deviation are taken
AT_ONCE = 500  # of them in memory


class Measured(Settings):
    """What a run's scale.json holds, a number for each channel."""

    mean: list[float]
    deviation: list[Annotated[float, Field(gt=0)]]


@dataclass(frozen=True)
class Scale:
    """Mean and deviation of each channel."""

    mean: list[float]
    deviation: list[float]

    @classmethod
    def measured(cls, images: Images) -> Scale:
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
    def from_json(cls, content: Any, channels: int, where: Path | str) -> Scale:
        """The scale of a run whose images have these channels; `where` it is written, for messages."""
        try:
            values = Measured.model_validate(content)
        except ValidationError as error:
            raise _malformed(where, first_problem(error)) from None
        if len(values.mean) != channels or len(values.deviation) != channels:
            raise _malformed(where, f"The images have {channels} channel{'s' * (channels > 1)}, each with its own.")
        return cls(values.mean, values.deviation)

    def on(self, device: torch.device) -> Scaled:
        mean, deviation = (torch.tensor(values, device=device) for values in (self.mean, self.deviation))
        return Scaled(mean[:, None, None], deviation[:, None, None], torch.tensor(255.0, device=device))


def _malformed(where: Path | str, why: str) -> RegardError:
    return RegardError(f"'{where}' is not a scale: a mean and a deviation.", why, "Restore the file, or train again.")


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
