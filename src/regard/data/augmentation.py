"""Augmentation: every image is changed at random each time it is seen, on the device that trains.

    own  = erase(operations(scale(flip(crop(image)))))      and so, with the numbers of its own key, another image
    x    = (1 − part) · own + part · other             part ~ Beta(a, a), or 0
           mixup: part is the same for all pixels (Zhang et al., 2017)
           cutmix: part is 1 in a rectangle of that share of the area, 0 around it (Yun et al., 2019)

Where images have masks or boxes, `motion` tells how an image moves, and `data.geometry` moves them with it. What
changes colours alone, or covers a part, leaves them as they are.

Every random number is a pure function of a key and of what the number is for; the key, of (seed, epoch, sample).
So an image is the same on any device, in any batch and after any restart, and setting one thing leaves the draws of
all others as they were. Nothing waits for the device or changes shape: a CUDA graph can hold all of it.

Shapes: B images · C channels · H height · W width · N random numbers of an image · Q quantiles
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy.special import betaincinv
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.geometry import from_centre, move_pixels, moved_by, one_after_another, scaled_by
from regard.data.image_operations import OPERATIONS, WHITE, change, channel_means, motion_around_centre
from regard.data.keys import uniforms, whole
from regard.settings import MOST_OPERATIONS, AugmentationSettings, CropSettings, MovingAugmentation

ERASED_AREA = (0.02, 0.33)  # of the image
ERASED_SHAPE = 0.3  # the least ratio of the shorter side to the longer
QUANTILES = 4096
FUSED = True  # whether a GPU may take the kernels of `fused_augmentation`

# What each random number of an image is for. After these come three for each of RandAugment's rounds.
(
    TOP,
    LEFT,
    FLIP,
    ERASE,
    ERASE_AREA,
    ERASE_SHAPE,
    ERASE_TOP,
    ERASE_LEFT,
    MIX,
    CUT,
    PART,
    CENTRE_Y,
    CENTRE_X,
    ROUNDS,
) = range(14)
SCALE = ROUNDS + 3 * MOST_OPERATIONS


class Augmentation(nn.Module):
    """`augmentation(pixels, keys, others, other_keys)`: images in 0 … 1, and the share of each that is its own."""

    white: Tensor
    mixup_Q: Tensor
    cutmix_Q: Tensor

    def __init__(self, settings: MovingAugmentation, height: int, width: int):
        """Only `AugmentationSettings` mix images."""
        super().__init__()
        self.settings, self.height, self.width = settings, height, width
        mixing = settings if isinstance(settings, AugmentationSettings) else AugmentationSettings(mix=0)
        mixup, cutmix, self.mix = mixing.mixup, mixing.cutmix, mixing.mix
        self.mixes = self.mix > 0 and (mixup > 0 or cutmix > 0)
        self.chance_of_cut = 0.5 if mixup > 0 and cutmix > 0 else float(cutmix > 0)
        # A tensor: dividing by a number, a GPU multiplies by its inverse, and comes out a little different.
        self.register_buffer("white", torch.tensor(float(WHITE)), persistent=False)
        self.register_buffer("mixup_Q", beta_quantiles(mixup), persistent=False)
        self.register_buffer("cutmix_Q", beta_quantiles(cutmix), persistent=False)

    @torch.no_grad()
    def forward(
        self, pixels_BHWC: Tensor, keys_B: Tensor, others_BHWC: Tensor | None = None, other_keys_B: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Bytes in; float32 [B, C, H, W] and [B] out. `others` are only looked at where this `mixes`."""
        if self.white.device != pixels_BHWC.device:
            self.to(pixels_BHWC.device)
        if not self.mixes:
            return self.changed(pixels_BHWC, keys_B) / self.white, torch.ones_like(keys_B, dtype=torch.float32)
        if others_BHWC is None or other_keys_B is None:
            raise ValueError("mixup and cutmix need other images and their keys")
        both_BCHW = self.changed(torch.cat([pixels_BHWC, others_BHWC]), torch.cat([keys_B, other_keys_B]))
        if kernels := _kernels(pixels_BHWC, self.settings):
            mixed: tuple[Tensor, Tensor] = kernels.mixed(
                both_BCHW, keys_B, self.mixup_Q, self.cutmix_Q, self.mix, self.chance_of_cut
            )
            return mixed
        own_BCHW, other_BCHW = both_BCHW.chunk(2)
        part_B1HW, share_B = self.parts(uniforms(keys_B, ROUNDS))
        return torch.lerp(own_BCHW, other_BCHW, part_B1HW) / self.white, share_B

    def changed(self, pixels_BHWC: Tensor, keys_B: Tensor) -> Tensor:
        """Each image by itself, with nothing mixed in: levels 0 … 255, float32 [B, C, H, W]."""
        settings = self.settings
        if kernels := _kernels(pixels_BHWC, settings):
            changed: Tensor = kernels.changed(pixels_BHWC, keys_B, settings, ROUNDS, ERASED_AREA, ERASED_SHAPE)
            return changed
        u_NB = uniforms(keys_B, ROUNDS + 3 * settings.operations)
        if settings.crop or settings.flip:
            pixels_BHWC = crop_and_flip(pixels_BHWC, keys_B, settings)
        x_BCHW = pixels_BHWC.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        if settings.scale:
            x_BCHW = move_pixels(x_BCHW, scaled_by(self.zoom(keys_B), self.height, self.width)).round_()
        for choice_B, amount_B in self.rounds(u_NB):
            x_BCHW = change(x_BCHW, choice_B, amount_B)
        return self.erased(x_BCHW, u_NB) if settings.erase else x_BCHW

    @torch.no_grad()
    def motion(self, keys_B: Tensor) -> Tensor:
        """How each image moves in all, where nothing is mixed in: [B, 2, 3], for `data.geometry`."""
        left_B, top_B, flipped_B = drawn_crop(keys_B, self.settings)
        edge, height, width = self.settings.crop, self.height, self.width
        motion_B23 = moved_by(left_B - edge, top_B - edge, flipped_B, width)
        if self.settings.scale:
            motion_B23 = one_after_another(motion_B23, scaled_by(self.zoom(keys_B), height, width))
        for choice_B, amount_B in self.rounds(uniforms(keys_B, ROUNDS + 3 * self.settings.operations)):
            around_B23 = motion_around_centre(choice_B, amount_B, height, width)
            motion_B23 = one_after_another(motion_B23, from_centre(around_B23, height, width))
        return motion_B23

    def rounds(self, u_NB: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """In each, an image draws one operation, all alike, an amount from 0 to `strength`, all alike, and its sign."""
        for first in range(ROUNDS, ROUNDS + 3 * self.settings.operations, 3):
            which_B, size_B, sign_B = u_NB[first : first + 3]
            amount_B = self.settings.strength * size_B * ((sign_B < 0.5) * 2 - 1)
            yield whole(which_B, len(OPERATIONS)), amount_B

    def zoom(self, keys_B: Tensor) -> Tensor:
        """From 1 / (1 + scale) to 1 + scale times as large; larger as often as smaller: [B]."""
        [u_B] = uniforms(keys_B, 1, first=SCALE)
        return (1 + self.settings.scale) ** (2 * u_B - 1)

    def erased(self, x_BCHW: Tensor, u_NB: Tensor) -> Tensor:
        """A rectangle in the image's mean colour. One longer than the image is made shorter and wider."""
        smallest, largest = ERASED_AREA
        area_B = (smallest + (largest - smallest) * u_NB[ERASE_AREA]) * (self.height * self.width)
        upright_B = u_NB[ERASE_SHAPE] < 0.5
        ratio_B = ERASED_SHAPE + (1 - ERASED_SHAPE) * (2 * u_NB[ERASE_SHAPE] - 1).abs()
        height_B = (area_B * torch.where(upright_B, 1 / ratio_B, ratio_B)).sqrt()
        height_B = torch.maximum(height_B, area_B / self.width).round().clamp(1, self.height)
        width_B = (area_B / height_B).round().clamp(1, self.width)
        top_B = whole(u_NB[ERASE_TOP], self.height + 1 - height_B)
        left_B = whole(u_NB[ERASE_LEFT], self.width + 1 - width_B)
        height_B = height_B * (u_NB[ERASE] < self.settings.erase)
        covered_B1HW = self.rectangles(top_B, top_B + height_B, left_B, left_B + width_B)
        return torch.where(covered_B1HW, channel_means(x_BCHW), x_BCHW)

    def parts(self, u_NB: Tensor) -> tuple[Tensor, Tensor]:
        """How much of each pixel is the other image's, [B, 1, H, W]; the share of the whole that is its own, [B]."""
        cut_B = u_NB[CUT] < self.chance_of_cut
        part_B = torch.where(cut_B, quantile(self.cutmix_Q, u_NB[PART]), quantile(self.mixup_Q, u_NB[PART]))
        part_B = part_B * (u_NB[MIX] < self.mix)
        height_B, width_B = (part_B.sqrt() * self.height).round(), (part_B.sqrt() * self.width).round()
        top_B = whole(u_NB[CENTRE_Y], self.height) - (height_B / 2).floor()
        left_B = whole(u_NB[CENTRE_X], self.width) - (width_B / 2).floor()
        bottom_B, right_B = (top_B + height_B).clamp(max=self.height), (left_B + width_B).clamp(max=self.width)
        top_B, left_B = top_B.clamp(min=0), left_B.clamp(min=0)
        covered_B = (bottom_B - top_B) * (right_B - left_B) / (self.height * self.width)
        covered_B1HW = self.rectangles(top_B, bottom_B, left_B, right_B)
        part_B1HW = torch.where(cut_B[:, None, None, None], covered_B1HW.float(), part_B[:, None, None, None])
        return part_B1HW, 1 - torch.where(cut_B, covered_B, part_B)

    def rectangles(self, top_B: Tensor, bottom_B: Tensor, left_B: Tensor, right_B: Tensor) -> Tensor:
        """Which pixels lie in each one's rectangle, the lower and the right bound not in it: [B, 1, H, W]."""
        y_H = torch.arange(self.height, device=top_B.device)
        x_W = torch.arange(self.width, device=top_B.device)
        in_rows_BH = (y_H >= top_B[:, None]) & (y_H < bottom_B[:, None])
        in_columns_BW = (x_W >= left_B[:, None]) & (x_W < right_B[:, None])
        return (in_rows_BH[:, :, None] & in_columns_BW[:, None, :])[:, None]


def crop_and_flip(pixels_BHWC: Tensor, keys_B: Tensor, settings: CropSettings) -> Tensor:
    """A part of each image with a black edge around it, or the mirror image of that part: [B, H, W, C]."""
    (images, height, width, _), edge, device = pixels_BHWC.shape, settings.crop, pixels_BHWC.device
    left_B, top_B, flipped_B = drawn_crop(keys_B, settings)
    padded_BHWC = F.pad(pixels_BHWC, (0, 0, edge, edge, edge, edge))
    x_W = torch.arange(width, device=device)
    from_x_BW = left_B[:, None] + torch.where(flipped_B[:, None], width - 1 - x_W, x_W)
    from_y_BH = top_B[:, None] + torch.arange(height, device=device)
    image_B = torch.arange(images, device=device)
    return padded_BHWC[image_B[:, None, None], from_y_BH[:, :, None], from_x_BW[:, None, :]]


def drawn_crop(keys_B: Tensor, settings: CropSettings) -> tuple[Tensor, Tensor, Tensor]:
    """Where in the image with its edge the part begins, left and top, and whether it is mirrored: each [B]."""
    u_NB = uniforms(keys_B, 1 + max(TOP, LEFT, FLIP))
    places = 2 * settings.crop + 1
    return whole(u_NB[LEFT], places), whole(u_NB[TOP], places), u_NB[FLIP] < settings.flip


def _kernels(pixels_BHWC: Tensor, settings: MovingAugmentation) -> Any:
    """Those for a GPU, where they can be used."""
    if not (FUSED and pixels_BHWC.is_cuda):
        return None
    try:
        from regard.data import fused_augmentation
    except ImportError:  # without Triton
        return None
    return fused_augmentation if fused_augmentation.fits(pixels_BHWC, settings) else None


def beta_quantiles(a: float) -> Tensor:
    """Beta(a, a) at even steps of its distribution function, from 0 to 1: [Q]. All 0 where a is 0."""
    steps_Q = np.linspace(0, 1, QUANTILES + 1)
    return torch.from_numpy(betaincinv(a, a, steps_Q) if a > 0 else np.zeros_like(steps_Q)).float()


def quantile(table_Q: Tensor, uniform_B: Tensor) -> Tensor:
    """What share `uniform` of the numbers lie below, straight between the entries of the table: [B]."""
    at_B = uniform_B * (len(table_Q) - 1)
    before_B = at_B.long()
    return torch.lerp(table_Q[before_B], table_Q[before_B + 1], at_B - before_B)
