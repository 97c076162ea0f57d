"""What a detector learns: which proposals stand for which objects, and how far they are from them.

    dense   a cell stands for the object whose middle it is near to, and in whose box its own centre lies (Tian et al.,
            2019); of several for the smallest; an object without such a cell has the nearest one. So large objects
            count hardly more than small ones. All other cells are background. What a cell says of its object's class
            is to be how well its own box fits: then, of several boxes of an object, the surest is the best one
            (Li et al., 2020).
                loss = Σ cells, classes  |y − p|^γ cross-entropy(p, y)  +  w Σ objects' cells  (1 − GIoU)
                p = σ(logit)        y = IoU for the object's class, 0 for all others and for background
    set     every object has one query: the assignment that costs least in all (Hungarian). All others say "nothing".
                loss = Σ queries  cross-entropy (nothing: · 0.1)  +  Σ objects  5 |box − its box| + 2 (1 − GIoU)

Both are sums over the objects of a batch and over all proposals, so that any split of the batch gives the same.

Shapes: B images · L proposals (cells) · Q queries · M objects of an image, padded · K classes · 4: x0, y0, x1, y1
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.models.overlap import area, generalised_overlap, overlap

NOTHING = -1  # the class of padding
GAMMA = 2.0
BOX_WEIGHT = 2.0
SET_WEIGHTS = {"class": 1.0, "distance": 5.0, "overlap": 2.0}
NEAR = 1.5  # cells, in each direction
NO_OBJECT = 0.1  # the weight of queries that stand for nothing: most do


# ---------------------------------------------------------------- dense


def dense_loss(
    logits_BLK: Tensor, found_BL4: Tensor, centres_L2: Tensor, cell_2: Tensor, classes_BM: Tensor, boxes_BM4: Tensor
) -> Tensor:
    """Nothing in it waits for the device or changes shape."""
    object_BL, taken_BL = assign(centres_L2, cell_2, boxes_BM4, classes_BM != NOTHING)
    target_BL4 = boxes_BM4.gather(1, object_BL[..., None].expand(-1, -1, 4))
    class_BL = classes_BM.gather(1, object_BL)
    kinds_K = torch.arange(logits_BLK.shape[-1], device=logits_BLK.device)
    # Where nothing is assigned, a box is compared with itself: its GIoU is 1, and it learns nothing.
    target_BL4 = torch.where(taken_BL[..., None], target_BL4, found_BL4.detach())
    fits_BL = overlap(found_BL4.detach(), target_BL4) * taken_BL
    wanted_BLK = torch.where(class_BL[..., None] == kinds_K, fits_BL[..., None], 0.0)
    apart_BL = (1 - generalised_overlap(found_BL4, target_BL4)) * taken_BL
    return focal(logits_BLK, wanted_BLK).sum() + BOX_WEIGHT * apart_BL.sum()


def focal(logits: Tensor, wanted: Tensor) -> Tensor:
    """Of independent classes; what is nearly right, and that is most of the background, hardly counts."""
    surprise = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    return (wanted - logits.sigmoid()).abs() ** GAMMA * surprise


@torch.no_grad()
def assign(centres_L2: Tensor, cell_2: Tensor, boxes_BM4: Tensor, there_BM: Tensor) -> tuple[Tensor, Tensor]:
    """The object that each cell stands for, and whether it stands for any: [B, L], [B, L].

    Of objects of the same size, the first has the cell; of cells at the same distance, the first is taken.
    """
    inside_BML = ((centres_L2 > boxes_BM4[..., None, :2]) & (centres_L2 < boxes_BM4[..., None, 2:])).all(-1)
    middle_BM2 = (boxes_BM4[..., :2] + boxes_BM4[..., 2:]) / 2
    away_BML2 = middle_BM2[..., None, :] - centres_L2
    inside_BML = inside_BML & (away_BML2.abs() < NEAR * cell_2).all(-1)
    nearest_BM = away_BML2.square().sum(-1).argmin(-1)
    cells_L = torch.arange(len(centres_L2), device=boxes_BM4.device)
    inside_BML = torch.where(inside_BML.any(-1, keepdim=True), inside_BML, nearest_BM[..., None] == cells_L)
    inside_BML = inside_BML & there_BM[..., None]
    size_BML = area(boxes_BM4)[..., None].masked_fill(~inside_BML, torch.inf)
    return size_BML.argmin(1), inside_BML.any(1)


# ---------------------------------------------------------------- set


def set_loss(logits_BQK: Tensor, found_BQ4: Tensor, size_4: Tensor, classes_BM: Tensor, boxes_BM4: Tensor) -> Tensor:
    """The last class is "nothing". The matching is computed by the CPU, so every update waits for the device."""
    query_BM = match(logits_BQK, found_BQ4, size_4, classes_BM, boxes_BM4)
    nothing = logits_BQK.shape[-1] - 1
    matched_BM = query_BM >= 0
    target_BQ = torch.full(logits_BQK.shape[:2], nothing, device=logits_BQK.device)
    image, number = matched_BM.nonzero(as_tuple=True)
    query = query_BM[image, number]
    target_BQ[image, query] = classes_BM[image, number]
    weight_K = torch.ones(nothing + 1, device=logits_BQK.device)
    weight_K[nothing] = NO_OBJECT
    surprise = F.cross_entropy(logits_BQK.flatten(0, 1), target_BQ.flatten(), weight_K, reduction="sum")
    found_X4, true_X4 = found_BQ4[image, query], boxes_BM4[image, number]
    distance_X = ((found_X4 - true_X4) / size_4).abs().sum(-1)
    apart_X = 1 - generalised_overlap(found_X4, true_X4)
    weights = SET_WEIGHTS
    return weights["class"] * surprise + (weights["distance"] * distance_X + weights["overlap"] * apart_X).sum()


@torch.no_grad()
def match(logits_BQK: Tensor, found_BQ4: Tensor, size_4: Tensor, classes_BM: Tensor, boxes_BM4: Tensor) -> Tensor:
    """The query of each object, -1 for padding: [B, M]. With more objects than queries, some objects have none."""
    from scipy.optimize import linear_sum_assignment

    found_BQ14, true_B1M4 = found_BQ4[:, :, None], boxes_BM4[:, None]
    likely_BQM = logits_BQK.softmax(-1).gather(2, classes_BM.clamp(0)[:, None].expand(-1, logits_BQK.shape[1], -1))
    distance_BQM = ((found_BQ14 - true_B1M4) / size_4).abs().sum(-1)
    cost_BQM = (
        SET_WEIGHTS["distance"] * distance_BQM
        - SET_WEIGHTS["overlap"] * generalised_overlap(found_BQ14, true_B1M4)
        - SET_WEIGHTS["class"] * likely_BQM
    ).nan_to_num(1e6)
    query_BM = torch.full_like(classes_BM, -1, device="cpu")
    there_BM = (classes_BM != NOTHING).cpu()
    for image, cost_QM in enumerate(cost_BQM.cpu()):
        objects = there_BM[image].nonzero()[:, 0]
        queries, chosen = linear_sum_assignment(cost_QM[:, objects].numpy())
        query_BM[image, objects[torch.from_numpy(chosen)]] = torch.from_numpy(queries)
    return query_BM.to(classes_BM.device)
