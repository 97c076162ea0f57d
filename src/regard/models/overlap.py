"""How much boxes overlap.

    overlap (IoU)      = intersection / union                                        0 … 1
    generalised (GIoU) = IoU − (hull − union) / hull        hull: the box around both; −1 … 1 (Rezatofighi et al., 2019)

Boxes that do not touch all have an IoU of 0; their GIoU still says how far apart they are, so it can be learned from.

Shapes: 4: x0, y0, x1, y1; the rest broadcasts
"""

from __future__ import annotations

import torch
from torch import Tensor

SMALLEST = 1e-7  # no area is taken for less: two boxes without any have no overlap


def overlap(one_4: Tensor, other_4: Tensor) -> Tensor:
    intersection, union, _ = _areas(one_4, other_4)
    return intersection / union


def generalised_overlap(one_4: Tensor, other_4: Tensor) -> Tensor:
    intersection, union, hull = _areas(one_4, other_4)
    return intersection / union - (hull - union) / hull


def _areas(one_4: Tensor, other_4: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the intersection, of the union, and of the box around both."""
    both_2 = (torch.minimum(one_4[..., 2:], other_4[..., 2:]) - torch.maximum(one_4[..., :2], other_4[..., :2])).clamp(
        0
    )
    around_2 = torch.maximum(one_4[..., 2:], other_4[..., 2:]) - torch.minimum(one_4[..., :2], other_4[..., :2])
    intersection = both_2[..., 0] * both_2[..., 1]
    union = (area(one_4) + area(other_4) - intersection).clamp(SMALLEST)
    return intersection, union, (around_2[..., 0] * around_2[..., 1]).clamp(SMALLEST)


def area(box_4: Tensor) -> Tensor:
    return (box_4[..., 2] - box_4[..., 0]) * (box_4[..., 3] - box_4[..., 1])
