"""How images are brought to one shape, changed in training, and cut into tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, field_validator

from regard.settings.base import Chance, NotNegative, Positive, Problem, Settings

LONGEST_SIDE = 4096
MOST_OPERATIONS = 16


class ImageSettings(Settings):
    """Every image is brought to one size and one number of channels."""

    size: Positive | list[Positive] = Field(32, description="pixels of a side, or [height, width]")
    colour: bool = Field(True, description="false: grey")
    fit: Literal["crop", "stretch", "pad"] = Field(
        "crop", description="an image of another shape: crop (its middle) · stretch · pad (with black)"
    )

    @field_validator("size")
    @classmethod
    def _two_sides(cls, value: int | list[int]) -> int | list[int]:
        if isinstance(value, list) and len(value) != 2:
            raise ValueError(f"size = {value} is not one side or two; write 32, or [24, 32] for height and width")
        longest = max(value) if isinstance(value, list) else value
        if longest > LONGEST_SIDE:
            raise ValueError(f"size = {value} is more than {LONGEST_SIDE:,} pixels to a side; choose a smaller one")
        return value

    @property
    def height(self) -> int:
        return self.size if isinstance(self.size, int) else self.size[0]

    @property
    def width(self) -> int:
        return self.size if isinstance(self.size, int) else self.size[1]

    @property
    def channels(self) -> int:
        return 3 if self.colour else 1


class CropSettings(Settings):
    """Every image is moved and mirrored at random each time it is seen. See `regard.data.augmentation`."""

    crop: NotNegative = Field(0, description="pixels of edge added all around, from which a random part is cut")
    flip: Chance = Field(0.0, description="chance to swap left and right")

    def check(self, images: ImageSettings) -> Iterator[Problem]:
        if self.crop >= min(images.height, images.width):
            yield Problem(
                f"augmentation.crop = {self.crop} would cut images of {images.height} x {images.width} away",
                "use an eighth of a side or so",
            )


class MovingAugmentation(CropSettings):
    """And its content is changed: size, colours, parts. Masks and boxes move with it."""

    scale: float = Field(0.0, ge=0, le=4, description="0.25: up to 1.25 times as large, or as small; 0: off")
    operations: NotNegative = Field(0, le=MOST_OPERATIONS, description="RandAugment: changes drawn for each image")
    strength: Chance = Field(0.5, description="RandAugment: how strong they may be")
    erase: Chance = Field(0.0, description="chance to cover a rectangle")


class AugmentationSettings(MovingAugmentation):
    """And other images are mixed in: of classes, which can be mixed too."""

    mixup: float = Field(0.0, ge=0, description="two images blended; the a of Beta(a, a); 0: off")
    cutmix: float = Field(0.0, ge=0, description="a rectangle of another image put in; the a of Beta(a, a); 0: off")
    mix: Chance = Field(1.0, description="chance of mixup or cutmix, where they are on")

    def check(self, images: ImageSettings) -> Iterator[Problem]:
        yield from super().check(images)
        if self.mixup and self.cutmix and not self.mix:
            yield Problem("augmentation.mix = 0 leaves mixup and cutmix without effect", "raise it, or set both to 0")
