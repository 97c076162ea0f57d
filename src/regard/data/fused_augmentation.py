"""Augmentation on a GPU in few kernels: one for each round of RandAugment, and one that mixes.

The formulas are those of `augmentation.py` and `image_operations.py`, where they are written out in some 450 small
operations on all images. Here a program has one channel of one image, and does only what that image drew. Nothing is
contracted (`enable_fp_fusion`): levels are rounded to whole ones, and a last bit can tip one over.

Shapes: B images · C channels · H height · W width · P pixels of a channel, filled up to a power of 2 · Q quantiles
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.settings import MovingAugmentation

MOST_PIXELS = 4096  # that one program can hold
LEVELS: tl.constexpr = tl.constexpr(256)


def fits(pixels_BHWC: Tensor, settings: MovingAugmentation) -> bool:
    _, height, width, channels = pixels_BHWC.shape
    small = height * width <= MOST_PIXELS and channels in (1, 3)
    return small and pixels_BHWC.dtype == torch.uint8 and settings.scale == 0


def changed(
    pixels_BHWC: Tensor,
    keys_B: Tensor,
    settings: MovingAugmentation,
    first_draw: int,
    erased_area: tuple[float, float],
    erased_shape: float,
) -> Tensor:
    """Each image by itself, with nothing mixed in: levels 0 … 255, float32 [B, C, H, W].

    `first_draw`: the random number from which on there are three for each round.
    """
    images, height, width, channels = pixels_BHWC.shape
    x_BCHW, keys_B = pixels_BHWC.permute(0, 3, 1, 2), keys_B.contiguous()
    rounds = max(1, settings.operations)
    for index in range(rounds):
        first, last = index == 0, index == rounds - 1
        # Between rounds levels are whole: a byte is enough.
        y_BCHW = pixels_BHWC.new_empty(images, channels, height, width, dtype=torch.float32 if last else torch.uint8)
        _change[(images, channels)](
            x_BCHW, keys_B, y_BCHW, *x_BCHW.stride(),
            settings.flip, settings.strength, settings.erase, *erased_area, erased_shape,
            EDGE=settings.crop if first else 0, FLIPS=first and settings.flip > 0, OPERATES=settings.operations > 0,
            ERASES=last and settings.erase > 0, DRAW=first_draw + 3 * index, CHANNELS=channels, HEIGHT=height,
            WIDTH=width, **_options(height * width),
        )  # fmt: skip
        x_BCHW = y_BCHW
    return x_BCHW


def mixed(
    both_BCHW: Tensor, keys_B: Tensor, mixup_Q: Tensor, cutmix_Q: Tensor, mix: float, chance_of_cut: float
) -> tuple[Tensor, Tensor]:
    """The first half of these images, each with its partner of the second: 0 … 1, and the share that is its own."""
    images, (channels, height, width) = len(keys_B), both_BCHW.shape[1:]
    x_BCHW, share_B = torch.empty_like(both_BCHW[:images]), torch.empty_like(keys_B, dtype=torch.float32)
    _mix[(images, channels)](
        both_BCHW, keys_B.contiguous(), mixup_Q, cutmix_Q, x_BCHW, share_B, images, mix, chance_of_cut,
        QUANTILES=len(mixup_Q) - 1, HEIGHT=height, WIDTH=width, **_options(height * width),
    )  # fmt: skip
    return x_BCHW, share_B


def _options(pixels: int) -> dict[str, Any]:
    block = triton.next_power_of_2(pixels)
    return {"PIXELS": block, "num_warps": min(16, max(4, block // 256)), "enable_fp_fusion": False}


# ---------------------------------------------------------------- one image


@triton.jit
def _change(
    pixels, keys, out, of_image, of_channel, of_row, of_column, flip, strength, erase, smallest, largest, narrowest,
    EDGE: tl.constexpr, FLIPS: tl.constexpr, OPERATES: tl.constexpr, ERASES: tl.constexpr, DRAW: tl.constexpr,
    CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Crop and flip, one operation of RandAugment, and erase: what of it is asked for."""
    image, channel = tl.program_id(0).to(tl.int64), tl.program_id(1)
    key = tl.load(keys + image).to(tl.uint64, bitcast=True)
    source = pixels + image * of_image
    top, left = tl.full([], 0, tl.int32), tl.full([], 0, tl.int32)
    flipped = tl.full([], 0, tl.int1)
    if EDGE > 0:
        top = (_uniform(key, 0) * (2 * EDGE + 1)).to(tl.int32) - EDGE
        left = (_uniform(key, 1) * (2 * EDGE + 1)).to(tl.int32) - EDGE
    if FLIPS:
        flipped = _uniform(key, 2) < flip
    at = tl.arange(0, PIXELS)
    y, x = at // WIDTH, at % WIDTH
    exists = at < HEIGHT * WIDTH
    cut = (top, left, flipped, of_row, of_column)
    own = source + channel * of_channel
    v = _levels(own, y, x, exists, cut, HEIGHT, WIDTH)
    if OPERATES:
        choice = (_uniform(key, DRAW) * 14).to(tl.int32)
        size = strength * _uniform(key, DRAW + 1)
        amount = tl.where(_uniform(key, DRAW + 2) < 0.5, size, -size)
        factor = 1 + amount * 0.9
        new = v
        if choice < 5:  # geometry: rotate, shear-x, shear-y, translate-x, translate-y
            angle = tl.where(choice == 0, amount, 0.0) * 0.5235987755982988
            cos, sin = tl.cos(angle), tl.sin(angle)
            from_y, from_x = y + (0.5 - HEIGHT / 2), x + (0.5 - WIDTH / 2)
            shear_x, shear_y = tl.where(choice == 1, amount, 0.0) * 0.3, tl.where(choice == 2, amount, 0.0) * 0.3
            along_x = tl.where(choice == 3, amount, 0.0) * (0.3125 * WIDTH)
            along_y = tl.where(choice == 4, amount, 0.0) * (0.3125 * HEIGHT)
            to_x = (cos * from_x + (shear_x - sin) * from_y + along_x) * (2 / WIDTH)
            to_y = ((shear_y + sin) * from_x + cos * from_y + along_y) * (2 / HEIGHT)
            # From −1 … 1 between the edges to pixels, as `grid_sample` does.
            to_x = ((to_x + 1) * WIDTH - 1) * 0.5
            to_y = ((to_y + 1) * HEIGHT - 1) * 0.5
            x_0, y_0 = tl.floor(to_x).to(tl.int32), tl.floor(to_y).to(tl.int32)
            right, below = to_x - x_0, to_y - y_0
            new = tl.zeros_like(v) + 128.0
            for corner in tl.static_range(4):
                at_x, at_y = x_0 + corner % 2, y_0 + corner // 2
                share = (right if corner % 2 else 1 - right) * (below if corner // 2 else 1 - below)
                inside = exists & (at_x >= 0) & (at_x < WIDTH) & (at_y >= 0) & (at_y < HEIGHT)
                there = _levels(own, at_y, at_x, inside, cut, HEIGHT, WIDTH)
                new += tl.where(inside, there - 128.0, 0.0) * share  # what comes from outside is grey
        elif choice == 5:  # brightness
            new = v * factor
        elif choice == 6:  # contrast
            light = _grey(source, y, x, exists, cut, of_channel, CHANNELS, HEIGHT, WIDTH)
            new = _between(_mean(light, exists, HEIGHT * WIDTH), v, factor)
        elif choice == 7:  # colour
            light = _grey(source, y, x, exists, cut, of_channel, CHANNELS, HEIGHT, WIDTH)
            new = _between(light, v, factor)
        elif choice == 8:  # sharpness
            inner = exists & (y > 0) & (y < HEIGHT - 1) & (x > 0) & (x < WIDTH - 1)
            total = 4 * v
            for near in tl.static_range(9):
                total += _levels(own, y + (near // 3 - 1), x + (near % 3 - 1), inner, cut, HEIGHT, WIDTH)
            new = _between(tl.where(inner, _rounded(tl.div_rn(total, 13.0)), v), v, factor)
        elif choice == 9:  # posterize
            lost = _rounded(tl.abs(amount) * 4).to(tl.int32)
            new = ((v.to(tl.int32) >> lost) << lost).to(tl.float32)
        elif choice == 10:  # solarize
            new = tl.where(v >= 256 * (1 - tl.abs(amount)), 255 - v, v)
        elif choice == 11:  # autocontrast
            darkest = tl.min(tl.where(exists, v, 255.0), 0)
            lightest = tl.max(tl.where(exists, v, 0.0), 0)
            # The inverse first: torch divides a number by a tensor so.
            stretched = (v - darkest) * (tl.div_rn(1.0, tl.maximum(lightest - darkest, 1.0)) * 255)
            new = tl.where(lightest > darkest, stretched, v)
        elif choice == 12:  # equalize
            level = v.to(tl.int32)
            count = tl.histogram(level, LEVELS, mask=exists)
            of_lightest = tl.sum((exists & (v == tl.max(tl.where(exists, v, 0.0), 0))).to(tl.int32), 0)
            step = (HEIGHT * WIDTH - of_lightest) // 255
            darker = tl.gather(tl.cumsum(count, 0) - count, level, 0)
            spread = ((darker + step // 2) // tl.maximum(step, 1)).to(tl.float32)
            new = tl.where(step > 0, spread, v)
        v = tl.minimum(tl.maximum(_rounded(new), 0.0), 255.0)
    if ERASES:
        area = (smallest + (largest - smallest) * _uniform(key, 4)) * (HEIGHT * WIDTH)
        shape = _uniform(key, 5)
        ratio = narrowest + (1 - narrowest) * tl.abs(2 * shape - 1)
        tall = tl.sqrt_rn(area * tl.where(shape < 0.5, tl.div_rn(1.0, ratio), ratio))
        tall = tl.maximum(tall, tl.div_rn(area, WIDTH * 1.0))
        tall = tl.minimum(tl.maximum(_rounded(tall), 1.0), HEIGHT * 1.0)
        wide = tl.minimum(tl.maximum(_rounded(tl.div_rn(area, tall)), 1.0), WIDTH * 1.0)
        first_y = (_uniform(key, 6) * (HEIGHT + 1 - tall)).to(tl.int32)
        first_x = (_uniform(key, 7) * (WIDTH + 1 - wide)).to(tl.int32)
        if _uniform(key, 3) < erase:
            covered = (y >= first_y) & (y < first_y + tall) & (x >= first_x) & (x < first_x + wide)
            v = tl.where(covered, _mean(v, exists, HEIGHT * WIDTH), v)
    tl.store(out + (image * CHANNELS + channel) * (HEIGHT * WIDTH) + at, v.to(out.dtype.element_ty), mask=exists)


@triton.jit
def _levels(place, y, x, asked, cut, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Those of pixels of the cut, or its mirror image; what lies outside the image is black."""
    top, left, flipped, of_row, of_column = cut
    from_y, from_x = y + top, tl.where(flipped, WIDTH - 1 - x, x) + left
    inside = asked & (from_y >= 0) & (from_y < HEIGHT) & (from_x >= 0) & (from_x < WIDTH)
    return tl.load(place + from_y * of_row + from_x * of_column, mask=inside, other=0).to(tl.float32)


@triton.jit
def _grey(
    place, y, x, asked, cut, of_channel, CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """How light each pixel looks, in whole levels."""
    red = _levels(place, y, x, asked, cut, HEIGHT, WIDTH)
    if CHANNELS == 3:
        green = _levels(place + of_channel, y, x, asked, cut, HEIGHT, WIDTH)
        blue = _levels(place + 2 * of_channel, y, x, asked, cut, HEIGHT, WIDTH)
        red = _rounded(0.299 * red + 0.587 * green + 0.114 * blue)
    return red


@triton.jit
def _mean(v, exists, COUNT: tl.constexpr):
    return tl.div_rn(tl.sum(tl.where(exists, v, 0.0).to(tl.int32), 0).to(tl.float32), COUNT * 1.0)


@triton.jit
def _between(start, end, share):
    """start + share · (end − start), from the nearer of the two, as `torch.lerp` does it."""
    return tl.where(tl.abs(share) < 0.5, start + share * (end - start), end - (end - start) * (1 - share))


@triton.jit
def _rounded(x):
    """To the nearest whole number, halves to the even one: beyond 2²³ floats have no other."""
    return (x + 12582912.0) - 12582912.0


# ---------------------------------------------------------------- two images


@triton.jit
def _mix(
    both, keys, mixup, cutmix, out, shares, images, mix, chance_of_cut,
    QUANTILES: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """A channel of an image with that of its partner: blended, or in a rectangle."""
    image, channel = tl.program_id(0).to(tl.int64), tl.program_id(1)
    key = tl.load(keys + image).to(tl.uint64, bitcast=True)
    cut = _uniform(key, 9) < chance_of_cut
    drawn = _uniform(key, 10) * QUANTILES
    entry = drawn.to(tl.int32)
    table = mixup + entry
    if cut:
        table = cutmix + entry
    part = _between(tl.load(table), tl.load(table + 1), drawn - entry)
    part = tl.where(_uniform(key, 8) < mix, part, 0.0)
    at = tl.arange(0, PIXELS)
    y, x = at // WIDTH, at % WIDTH
    exists = at < HEIGHT * WIDTH
    parts = tl.zeros([PIXELS], tl.float32) + part
    if cut:
        root = tl.sqrt_rn(part)
        tall, wide = _rounded(root * HEIGHT), _rounded(root * WIDTH)
        top = tl.floor(_uniform(key, 11) * HEIGHT) - tl.floor(tall / 2)
        left = tl.floor(_uniform(key, 12) * WIDTH) - tl.floor(wide / 2)
        bottom, right = tl.minimum(top + tall, HEIGHT * 1.0), tl.minimum(left + wide, WIDTH * 1.0)
        top, left = tl.maximum(top, 0.0), tl.maximum(left, 0.0)
        part = tl.div_rn((bottom - top) * (right - left), HEIGHT * WIDTH * 1.0)
        parts = ((y >= top) & (y < bottom) & (x >= left) & (x < right)).to(tl.float32)
    if channel == 0:
        tl.store(shares + image, 1 - part)
    place = channel * (HEIGHT * WIDTH) + at
    size = tl.num_programs(1) * (HEIGHT * WIDTH)
    own = tl.load(both + image * size + place, mask=exists, other=0.0)
    other = tl.load(both + (images + image) * size + place, mask=exists, other=0.0)
    tl.store(out + image * size + place, tl.div_rn(_between(own, other, parts), 255.0), mask=exists)


# ---------------------------------------------------------------- random numbers, as in `keys.py`


@triton.jit
def _uniform(key, N: tl.constexpr):
    """The random number N of a key, counted from 0."""
    bits = key + ((N + 1) * 0x9E3779B97F4A7C15) % 0x10000000000000000
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB
    bits = bits ^ (bits >> 31)
    return (bits >> 40).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08  # 2⁻²⁴
