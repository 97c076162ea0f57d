"""RandAugment: one of fourteen small changes for each image of a batch.

(Cubuk et al., 2019.) Every operation is done to every image, and each image keeps the one it drew: so shapes never
change, and nothing waits for the device. `amount` is between −1 and 1; what has no direction takes its size alone:

    identity                                 nothing
    rotate                                   by 30° · amount around the centre
    shear-x · shear-y                        by 0.3 · amount of the distance from the centre
    translate-x · translate-y                by 10/32 · amount of the side: 10 pixels of CIFAR's 32
    brightness · contrast · colour · sharpness
                                             base + (1 + 0.9 · amount) · (x − base), away from or towards the base:
                                             black · the mean grey · the grey image · the smoothed image
    posterize                                keeps the upper 8 − round(4 · |amount|) bits
    solarize                                 inverts levels from 256 · (1 − |amount|) up
    autocontrast · equalize                  always in full: levels stretched to, or spread over, 0 … 255

What geometry brings in from outside the image is grey. Images are float tensors of whole levels, 0 … 255, and
are so again after each operation, as in Pillow. Sums over whole numbers are exact: so an image comes
out the same, whatever else is in the batch. Most changes of tone give equal levels of an image equal new ones: they are
computed for its 256 levels, not for all its pixels, which then look theirs up.

Shapes: B images · C channels (1 or 3) · H height · W width · P pixels (H·W) · L levels (256)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

LEVELS = 256
WHITE = LEVELS - 1
GREY = 128.0
ROTATE, SHEAR, TRANSLATE = math.radians(30), 0.3, 10 / 32
ENHANCE = 0.9
POSTERIZE_BITS = 4


def change(x_BCHW: Tensor, choice_B: Tensor, amount_B: Tensor) -> Tensor:
    """Each image after the operation it drew, `choice_B` counting through OPERATIONS: whole levels, [B, C, H, W]."""
    choice_B111 = choice_B[:, None, None, None]
    grey_B1HW, level_BCP = grey(x_BCHW), x_BCHW.flatten(2).long()
    new_BCL = new_levels(Levels.counted(grey_B1HW, level_BCP), choice_B, amount_B)
    y_BCHW = new_BCL.gather(2, level_BCP).view_as(x_BCHW)
    y_BCHW = torch.where(choice_B111 < len(GEOMETRIC), transform(x_BCHW, choice_B, amount_B), y_BCHW)
    for name, operation in OF_PIXELS.items():
        changed_BCHW = operation(x_BCHW, grey_B1HW, amount_B)
        y_BCHW = torch.where(choice_B111 == OPERATIONS.index(name), changed_BCHW, y_BCHW)
    return y_BCHW.round_().clamp_(0, WHITE)


# ---------------------------------------------------------------- geometry


def transform(x_BCHW: Tensor, choice_B: Tensor, amount_B: Tensor) -> Tensor:
    """Each image turned, sheared or moved: where a pixel comes from is an affine map around the centre."""
    height, width = x_BCHW.shape[2:]
    around_B23 = motion_around_centre(choice_B, amount_B, height, width)
    (a, b, left), (c, d, top) = ([around_B23[:, row, column, None, None] for column in range(3)] for row in range(2))
    y_H1 = torch.arange(height, device=x_BCHW.device)[:, None] + (0.5 - height / 2)
    x_W = torch.arange(width, device=x_BCHW.device) + (0.5 - width / 2)
    from_x_BHW = a * x_W + b * y_H1 + left
    from_y_BHW = c * x_W + d * y_H1 + top
    # `grid_sample` counts from −1 at one edge of the image to 1 at the other.
    grid_BHW2 = torch.stack([from_x_BHW * (2 / width), from_y_BHW * (2 / height)], dim=-1)
    # What it takes from outside is 0, which stands for grey here.
    return F.grid_sample(x_BCHW - GREY, grid_BHW2, mode="bilinear", padding_mode="zeros", align_corners=False) + GREY


def motion_around_centre(choice_B: Tensor, amount_B: Tensor, height: int, width: int) -> Tensor:
    """Where points come from, counted from the centre: [B, 2, 3]. From where they are, if the operation is of tone.

    (x, y) ← (cos a · x + (s − sin a) · y + t,  (s' + sin a) · x + cos a · y + t'),   all but one of a, s, s', t, t' 0
    """

    def by(name: str, largest: float) -> Tensor:
        return amount_B * (choice_B == OPERATIONS.index(name)) * largest

    angle_B = by("rotate", ROTATE)
    cos_B, sin_B = angle_B.cos(), angle_B.sin()
    x_B3 = torch.stack([cos_B, by("shear-x", SHEAR) - sin_B, by("translate-x", TRANSLATE * width)], dim=-1)
    y_B3 = torch.stack([by("shear-y", SHEAR) + sin_B, cos_B, by("translate-y", TRANSLATE * height)], dim=-1)
    return torch.stack([x_B3, y_B3], dim=1)


# ---------------------------------------------------------------- tone of pixels; results need not be whole


def colour(x_BCHW: Tensor, grey_B1HW: Tensor, amount_B: Tensor) -> Tensor:
    """Away from or towards the grey image: saturation. An image of one channel stays as it is."""
    return torch.lerp(grey_B1HW, x_BCHW, factor_B111(amount_B))


def sharpness(x_BCHW: Tensor, grey_B1HW: Tensor, amount_B: Tensor) -> Tensor:
    """Away from or towards the smoothed image: means of 3 × 3 pixels, the middle one counted five times."""
    of_three = x_BCHW[:, :, :-2] + x_BCHW[:, :, 1:-1] + x_BCHW[:, :, 2:]
    of_nine = of_three[..., :-2] + of_three[..., 1:-1] + of_three[..., 2:]
    smooth_BCHW = x_BCHW.clone()  # the border stays, as in Pillow
    smooth_BCHW[:, :, 1:-1, 1:-1] = ((of_nine + 4 * x_BCHW[:, :, 1:-1, 1:-1]) / 13).round()
    return torch.lerp(smooth_BCHW, x_BCHW, factor_B111(amount_B))


# ---------------------------------------------------------------- tone of levels; results need not be whole


@dataclass(frozen=True)
class Levels:
    """All levels, and what is to be known of those of each image."""

    levels_L: Tensor
    mean_grey_B11: Tensor
    darkest_BC1: Tensor
    lightest_BC1: Tensor
    count_BCL: Tensor  # pixels of each level
    pixels: int

    @classmethod
    def counted(cls, grey_B1HW: Tensor, level_BCP: Tensor) -> Levels:
        count_BCL = level_BCP.new_zeros(*level_BCP.shape[:2], LEVELS)
        count_BCL.scatter_add_(2, level_BCP, level_BCP.new_ones(()).expand_as(level_BCP))
        levels_L = torch.arange(LEVELS, device=level_BCP.device, dtype=torch.float32)
        levels_BCL, missing_BCL = levels_L.expand(count_BCL.shape), count_BCL == 0
        darkest_BC1 = levels_BCL.masked_fill(missing_BCL, WHITE).amin(2, keepdim=True)
        lightest_BC1 = levels_BCL.masked_fill(missing_BCL, 0).amax(2, keepdim=True)
        mean_B11 = channel_means(grey_B1HW)[..., 0]
        return cls(levels_L, mean_B11, darkest_BC1, lightest_BC1, count_BCL, level_BCP.shape[2])


def new_levels(levels: Levels, choice_B: Tensor, amount_B: Tensor) -> Tensor:
    """What each level of each image becomes by the operation it drew, if that is one of levels: [B, C, L]."""
    new_BCL = levels.levels_L.expand(levels.count_BCL.shape)
    for name, operation in OF_LEVELS.items():
        drawn_B11 = (choice_B == OPERATIONS.index(name))[:, None, None]
        new_BCL = torch.where(drawn_B11, operation(levels, amount_B), new_BCL)
    return new_BCL


def brightness(levels: Levels, amount_B: Tensor) -> Tensor:
    """Away from or towards black."""
    return levels.levels_L * factor_B111(amount_B)[..., 0]


def contrast(levels: Levels, amount_B: Tensor) -> Tensor:
    """Away from or towards the mean grey of the image."""
    return torch.lerp(levels.mean_grey_B11, levels.levels_L, factor_B111(amount_B)[..., 0])


def posterize(levels: Levels, amount_B: Tensor) -> Tensor:
    """Fewer levels: the lower bits of each become 0."""
    lost_bits_B11 = (amount_B.abs() * POSTERIZE_BITS).round().int()[:, None, None]
    return ((levels.levels_L.int() >> lost_bits_B11) << lost_bits_B11).float()


def solarize(levels: Levels, amount_B: Tensor) -> Tensor:
    """Light levels are inverted, dark ones stay."""
    threshold_B11 = (LEVELS * (1 - amount_B.abs()))[:, None, None]
    return torch.where(levels.levels_L >= threshold_B11, WHITE - levels.levels_L, levels.levels_L)


def autocontrast(levels: Levels, amount_B: Tensor) -> Tensor:
    """The darkest level of a channel becomes 0 and the lightest 255."""
    darkest, lightest = levels.darkest_BC1, levels.lightest_BC1
    stretched_BCL = (levels.levels_L - darkest) * (WHITE / (lightest - darkest).clamp(min=1))
    return torch.where(lightest > darkest, stretched_BCL, levels.levels_L)


def equalize(levels: Levels, amount_B: Tensor) -> Tensor:
    """Every level of a channel becomes the share of its pixels that are darker, in steps as Pillow takes them.

    level ← (darker + step / 2) / step,   step = (pixels − those of the lightest level) / 255,   in whole numbers
    """
    count_BCL = levels.count_BCL
    of_lightest_BC1 = count_BCL.gather(2, levels.lightest_BC1.long())
    step_BC1 = (levels.pixels - of_lightest_BC1) // WHITE
    darker_BCL = count_BCL.cumsum(2) - count_BCL
    becomes_BCL = (darker_BCL + step_BC1 // 2) // step_BC1.clamp(min=1)
    # Of fewer than 255 pixels there is nothing to spread.
    return torch.where(step_BC1 > 0, becomes_BCL.float(), levels.levels_L)


GEOMETRIC = ("rotate", "shear-x", "shear-y", "translate-x", "translate-y")
OF_PIXELS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {"colour": colour, "sharpness": sharpness}
OF_LEVELS: dict[str, Callable[[Levels, Tensor], Tensor]] = {
    "brightness": brightness,
    "contrast": contrast,
    "posterize": posterize,
    "solarize": solarize,
    "autocontrast": autocontrast,
    "equalize": equalize,
}
# In this order: an image's number chooses among them, and must go on choosing the same.
TONAL = ("brightness", "contrast", "colour", "sharpness", "posterize", "solarize", "autocontrast", "equalize")
OPERATIONS = (*GEOMETRIC, *TONAL, "identity")


# ---------------------------------------------------------------- what several of them need


def factor_B111(amount_B: Tensor) -> Tensor:
    """How far from the base: 1 is the image itself."""
    return (1 + ENHANCE * amount_B)[:, None, None, None]


def grey(x_BCHW: Tensor) -> Tensor:
    """How light each pixel looks, in whole levels: [B, 1, H, W]."""
    if x_BCHW.shape[1] == 1:
        return x_BCHW
    red, green, blue = x_BCHW.split(1, dim=1)
    return (0.299 * red + 0.587 * green + 0.114 * blue).round()


def channel_means(x_BCHW: Tensor) -> Tensor:
    """The mean level of each channel: [B, C, 1, 1]. Whole levels add up exactly in any order: floats in a row, then
    integers."""
    height, width = x_BCHW.shape[2:]
    return x_BCHW.sum(3, keepdim=True).long().sum(2, keepdim=True) / (height * width)
