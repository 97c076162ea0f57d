"""Of all boxes that a detector proposes, those that are kept.

Every box is proposed as every class, with a score. The surest are taken in their order, and one goes if it overlaps too
much with a surer one of its class that was kept (non-maximum suppression). Shapes are fixed, and nothing waits for the
device.

Shapes: B images · L proposals · K classes · P candidates of an image, the surest first · 4: x0, y0, x1, y1
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.models.overlap import overlap

CANDIDATES = 2  # for each box that may be found, so many are looked at


class Candidates(NamedTuple):
    boxes_BP4: Tensor
    scores_BP: Tensor
    classes_BP: Tensor
    kept_BP: Tensor  # whether
    proposals_BP: Tensor  # which of L


def surest(boxes_BL4: Tensor, scores_BLK: Tensor, most: int) -> Candidates:
    """At most so many of each image, all kept. Of equal scores, the first comes first."""
    classes = scores_BLK.shape[-1]
    scores_BP, at_BP = scores_BLK.flatten(1).sort(dim=1, descending=True, stable=True)
    scores_BP, at_BP = scores_BP[:, :most], at_BP[:, :most]
    proposals_BP = at_BP // classes
    boxes_BP4 = boxes_BL4.gather(1, proposals_BP[..., None].expand(-1, -1, 4))
    kept_BP = torch.ones_like(scores_BP, dtype=torch.bool)
    return Candidates(boxes_BP4, scores_BP, at_BP % classes, kept_BP, proposals_BP)


def suppress(candidates: Candidates, most_overlap: float) -> Candidates:
    """The same candidates, of which fewer are kept."""
    boxes_BP4, _, classes_BP, kept_BP, _ = candidates
    same_BPP = classes_BP[:, :, None] == classes_BP[:, None]
    clash_BPP = same_BPP & (overlap(boxes_BP4[:, :, None], boxes_BP4[:, None]) > most_overlap)
    clash_BPP = clash_BPP.triu(1)  # only with less sure ones
    kept_BP = kept_BP.clone()
    for surer in range(kept_BP.shape[1]):
        kept_BP &= ~(clash_BPP[:, surer] & kept_BP[:, surer, None])
    return candidates._replace(kept_BP=kept_BP)


def found(boxes_BL4: Tensor, scores_BLK: Tensor, most: int, most_overlap: float | None) -> Candidates:
    """What a detector finds; with an overlap, each object once."""
    if most_overlap is None:
        return surest(boxes_BL4, scores_BLK, most)
    kept = suppress(surest(boxes_BL4, scores_BLK, CANDIDATES * most), most_overlap)
    many_BP = kept.kept_BP.cumsum(1)
    return kept._replace(kept_BP=kept.kept_BP & (many_BP <= most))
