"""How images move, and with them their masks and boxes.

A motion tells where each point of a new image comes from, in pixels from the upper left corner; the centre of the
first pixel is at (½, ½):

    (x, y)_old = A (x, y)_new + t          one [A t] for each image: [B, 2, 3]

Pixels are taken from there in between (bilinear), masks from the nearest pixel, and the corners of boxes go the other
way, (x, y)_new = A⁻¹ ((x, y)_old − t). Motions follow one another by multiplication. Nothing waits for the device or
changes shape: boxes are padded to a fixed number, and a flag tells which are there.

Shapes: B images · C channels · H height · W width · N boxes of an image, padded
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

LEAST_LEFT = 0.25  # of a box's area: with less of it inside the image, it is dropped
LEAST_SIDE = 1.0  # pixels


# ---------------------------------------------------------------- motions


def scaled_by(zoom_B: Tensor, height: int, width: int) -> Tensor:
    """Everything this many times as large, around the centre: [B, 2, 3]."""
    around_B23 = torch.zeros(len(zoom_B), 2, 3, device=zoom_B.device)
    around_B23[:, 0, 0] = around_B23[:, 1, 1] = 1 / zoom_B
    return from_centre(around_B23, height, width)


def moved_by(left_B: Tensor, top_B: Tensor, flipped_B: Tensor, width: int) -> Tensor:
    """A part of the image that begins at (left, top), or its mirror image: [B, 2, 3]."""
    nothing_B, one_B = torch.zeros_like(left_B), torch.ones_like(left_B)
    x_B3 = torch.stack([torch.where(flipped_B, -1, 1), nothing_B, left_B + flipped_B * width], dim=-1)
    y_B3 = torch.stack([nothing_B, one_B, top_B], dim=-1)
    return torch.stack([x_B3, y_B3], dim=1).float()


def from_centre(around_B23: Tensor, height: int, width: int) -> Tensor:
    """A motion given for points counted from the centre of the image, for those counted from its corner."""
    # Plain numbers, no tensor made of them: that would wait for the device.
    x, y = width / 2, height / 2
    moved_B2 = around_B23[..., 2] - around_B23[..., 0] * x - around_B23[..., 1] * y
    shift_B2 = torch.stack([moved_B2[:, 0] + x, moved_B2[:, 1] + y], dim=-1)
    return torch.cat([around_B23[..., :2], shift_B2[..., None]], dim=-1)


def one_after_another(first_B23: Tensor, second_B23: Tensor) -> Tensor:
    """The motion that is as the first, and then the second: what the second asks for comes through the first."""
    # Written out: no matrix product, which a GPU may compute with fewer bits.
    turned_B22 = (first_B23[:, :, :2, None] * second_B23[:, None, :, :2]).sum(2)
    shift_B2 = (first_B23[:, :, :2] * second_B23[:, None, :, 2]).sum(-1) + first_B23[:, :, 2]
    return torch.cat([turned_B22, shift_B2[..., None]], dim=-1)


# ---------------------------------------------------------------- what moves


def move_pixels(x_BCHW: Tensor, motion_B23: Tensor, outside: float = 0.0) -> Tensor:
    """Pixels from in between others: float [B, C, H, W]. What comes from outside the image has this level."""
    height, width = x_BCHW.shape[2:]
    from_x_BHW, from_y_BHW = _origins(motion_B23, height, width)
    # `grid_sample` counts from −1 at one edge of the image to 1 at the other, and takes 0 from outside.
    grid_BHW2 = torch.stack([from_x_BHW * (2 / width) - 1, from_y_BHW * (2 / height) - 1], dim=-1)
    moved_BCHW = F.grid_sample(x_BCHW - outside, grid_BHW2, mode="bilinear", padding_mode="zeros", align_corners=False)
    return moved_BCHW + outside


def move_masks(mask_BHW: Tensor, motion_B23: Tensor, outside: int) -> Tensor:
    """Every pixel has the class of the one it comes from: [B, H, W], of the mask's own type."""
    height, width = mask_BHW.shape[1:]
    from_x_BHW, from_y_BHW = (origin.floor().long() for origin in _origins(motion_B23, height, width))
    inside_BHW = (from_x_BHW >= 0) & (from_x_BHW < width) & (from_y_BHW >= 0) & (from_y_BHW < height)
    pixel_BHW = from_y_BHW.clamp(0, height - 1) * width + from_x_BHW.clamp(0, width - 1)
    moved_BHW = mask_BHW.flatten(1).gather(1, pixel_BHW.flatten(1)).view_as(mask_BHW)
    return moved_BHW.masked_fill(~inside_BHW, outside)


def move_boxes(
    boxes_BN4: Tensor,
    there_BN: Tensor,
    motion_B23: Tensor,
    height: int,
    width: int,
    least_left: float = LEAST_LEFT,
    least_side: float = LEAST_SIDE,
) -> tuple[Tensor, Tensor]:
    """Boxes x0, y0, x1, y1 around the moved corners, cut at the edges of the image; and which are still there.

    A box is dropped, its corners all 0, when less than a share of its area, or of a side, is left inside.
    """
    (a_B11, b_B11, left_B11), (c_B11, d_B11, top_B11) = _rows(motion_B23)
    x0_BN, y0_BN, x1_BN, y1_BN = boxes_BN4.unbind(-1)
    x_BN4 = torch.stack([x0_BN, x1_BN, x1_BN, x0_BN], dim=-1) - left_B11
    y_BN4 = torch.stack([y0_BN, y0_BN, y1_BN, y1_BN], dim=-1) - top_B11
    determinant_B11 = a_B11 * d_B11 - b_B11 * c_B11
    new_x_BN4 = (d_B11 * x_BN4 - b_B11 * y_BN4) / determinant_B11
    new_y_BN4 = (a_B11 * y_BN4 - c_B11 * x_BN4) / determinant_B11
    x0_BN, x1_BN = new_x_BN4.amin(-1), new_x_BN4.amax(-1)
    y0_BN, y1_BN = new_y_BN4.amin(-1), new_y_BN4.amax(-1)
    area_BN = (x1_BN - x0_BN) * (y1_BN - y0_BN)
    cut_x0_BN, cut_x1_BN = x0_BN.clamp(0, width), x1_BN.clamp(0, width)
    cut_y0_BN, cut_y1_BN = y0_BN.clamp(0, height), y1_BN.clamp(0, height)
    wide_BN, high_BN = cut_x1_BN - cut_x0_BN, cut_y1_BN - cut_y0_BN
    large_BN = (wide_BN >= least_side) & (high_BN >= least_side) & (wide_BN * high_BN >= least_left * area_BN)
    there_BN = there_BN & large_BN
    cut_BN4 = torch.stack([cut_x0_BN, cut_y0_BN, cut_x1_BN, cut_y1_BN], dim=-1)
    return cut_BN4.masked_fill(~there_BN[..., None], 0.0), there_BN


def _origins(motion_B23: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Where the centre of each pixel comes from: x and y, each [B, H, W]."""
    y_H1 = torch.arange(height, device=motion_B23.device)[:, None] + 0.5
    x_W = torch.arange(width, device=motion_B23.device) + 0.5
    (a, b, left), (c, d, top) = _rows(motion_B23)
    return a * x_W + b * y_H1 + left, c * x_W + d * y_H1 + top


def _rows(motion_B23: Tensor) -> list[list[Tensor]]:
    """The six numbers of each motion, row by row: each [B, 1, 1]."""
    return [[motion_B23[:, row, column, None, None] for column in range(3)] for row in range(2)]
