"""Which proposals stand for which objects, and what they cost: against loops and other libraries."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from sklearn.metrics import log_loss

from regard.decoding.suppression import found, suppress, surest
from regard.models.overlap import generalised_overlap, overlap
from regard.training import box_loss
from regard.training.box_loss import assign, dense_loss, focal, match, set_loss


def random_boxes(*shape: int, seed: int = 0, side: float = 32.0, longest: float = 12.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(*shape, 2, generator=generator) * (side - longest)
    return torch.cat([corner, corner + 0.5 + torch.rand(*shape, 2, generator=generator) * longest], dim=-1)


def iou(a: list[float], b: list[float]) -> float:
    """By counting the cells of a fine grid would be slow; by hand it is a few lines."""
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(0, wide) * max(0, high)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def test_overlaps_are_those_of_rasterised_boxes():
    boxes_N4 = random_boxes(40).mul(4).round().div(4)  # on a grid of quarters
    cells_NYX = torch.zeros(40, 140, 140, dtype=torch.bool)
    for cells_YX, box in zip(cells_NYX, (boxes_N4 * 4).long().tolist(), strict=True):
        cells_YX[box[1] : box[3], box[0] : box[2]] = True
    for one, other in itertools.combinations(range(40), 2):
        both = (cells_NYX[one] & cells_NYX[other]).sum()
        union = (cells_NYX[one] | cells_NYX[other]).sum()
        y, x = torch.nonzero(cells_NYX[one] | cells_NYX[other], as_tuple=True)
        hull = (y.max() - y.min() + 1) * (x.max() - x.min() + 1)
        expected = both / union
        torch.testing.assert_close(overlap(boxes_N4[one], boxes_N4[other]), expected, rtol=1e-4, atol=1e-6)
        whole = expected - (hull - union) / hull
        torch.testing.assert_close(generalised_overlap(boxes_N4[one], boxes_N4[other]), whole, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- assignment


FOUR = torch.tensor([4.0, 4.0])  # the sides of a cell


def centres(rows: int, columns: int, cell: float) -> torch.Tensor:
    return torch.tensor([[(x + 0.5) * cell, (y + 0.5) * cell] for y in range(rows) for x in range(columns)])


@pytest.mark.parametrize("longest", [0.6, 4.0, 20.0])
def test_a_cell_stands_for_the_smallest_object_whose_middle_is_near(longest):
    centres_L2, boxes_BM4 = centres(8, 8, 4.0), random_boxes(6, 5, seed=2, longest=longest)
    there_BM = torch.rand(6, 5, generator=torch.Generator().manual_seed(1)) < 0.7
    object_BL, taken_BL = assign(centres_L2, FOUR, boxes_BM4, there_BM)
    for image in range(6):
        wanted: dict[int, tuple[float, int]] = {}
        for number in torch.nonzero(there_BM[image])[:, 0].tolist():
            x0, y0, x1, y1 = boxes_BM4[image, number].tolist()
            middle = (x0 + x1) / 2, (y0 + y1) / 2
            inside = [
                n
                for n, (x, y) in enumerate(centres_L2.tolist())
                if x0 < x < x1 and y0 < y < y1 and max(abs(x - middle[0]), abs(y - middle[1])) < 6
            ]
            nearest = min(range(64), key=lambda n: math.dist(centres_L2[n].tolist(), middle))
            for cell in inside or [nearest]:
                wanted[cell] = min(wanted.get(cell, (math.inf, -1)), ((x1 - x0) * (y1 - y0), number))
        assert taken_BL[image].nonzero()[:, 0].tolist() == sorted(wanted)
        assert {cell: int(object_BL[image, cell]) for cell in wanted} == {cell: n for cell, (_, n) in wanted.items()}


def test_ties_go_to_the_first():
    twice_BM4 = torch.tensor([[[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 4.0]]])
    object_BL, taken_BL = assign(centres(2, 2, 4.0), FOUR, twice_BM4, torch.ones(1, 2, dtype=torch.bool))
    assert taken_BL.tolist() == [[True, False, False, False]] and object_BL[0, 0] == 0
    between_BM4 = torch.tensor([[[3.9, 3.9, 4.1, 4.1]]])  # as far from all four centres
    assert assign(centres(2, 2, 4.0), FOUR, between_BM4, torch.ones(1, 1, dtype=torch.bool))[1].tolist() == [
        [True, False, False, False]
    ]


def test_focal_loss_without_focus_is_the_cross_entropy(monkeypatch):
    logits, right = torch.randn(50), (torch.arange(50) % 3 == 0).float()
    monkeypatch.setattr(box_loss, "GAMMA", 0.0)
    expected = log_loss(right, logits.double().sigmoid())
    assert focal(logits, right).mean().item() == pytest.approx(expected, rel=1e-5)


def test_focal_loss_is_least_where_the_score_is_how_well_a_box_fits():
    wanted = torch.tensor([0.1, 0.5, 0.9])
    logits = torch.zeros(3, requires_grad=True)
    for _ in range(3000):
        (gradient,) = torch.autograd.grad(focal(logits, wanted).sum(), logits)
        logits = (logits - gradient).detach().requires_grad_()
    torch.testing.assert_close(logits.sigmoid(), wanted, atol=0.03, rtol=0)


def test_a_dense_head_that_is_right_costs_nothing_and_learns_where_it_is_wrong():
    centres_L2 = centres(4, 4, 8.0)
    boxes_BM4, classes_BM = torch.tensor([[[0.0, 0.0, 16.0, 16.0], [0, 0, 0, 0]]]), torch.tensor([[1, -1]])
    taken_BL = assign(centres_L2, 2 * FOUR, boxes_BM4, classes_BM >= 0)[1]
    found_BL4 = boxes_BM4[:, :1].expand(-1, 16, -1).clone().requires_grad_()
    logits_BLK = torch.full((1, 16, 3), -20.0)
    logits_BLK[..., 1] = torch.where(taken_BL, 20.0, -20.0)
    assert dense_loss(logits_BLK, found_BL4, centres_L2, 2 * FOUR, classes_BM, boxes_BM4) < 1e-6
    moved_BL4 = (found_BL4 + 3.0).detach().requires_grad_()
    loss = dense_loss(logits_BLK, moved_BL4, centres_L2, 2 * FOUR, classes_BM, boxes_BM4)
    taken, fits = int(taken_BL.sum()), overlap(moved_BL4[0, 0], boxes_BM4[0, 0]).detach()
    expected = 2 * taken * (1 - generalised_overlap(moved_BL4[0, 0], boxes_BM4[0, 0]))
    expected = expected + taken * focal(torch.tensor(20.0), fits)  # it is surer than its box is good
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert moved_BL4.grad is not None
    assert moved_BL4.grad.abs().sum(-1).ne(0).equal(taken_BL)  # only boxes of cells that stand for something
    nothing = dense_loss(logits_BLK - 40, moved_BL4, centres_L2, 2 * FOUR, torch.full((1, 2), -1), boxes_BM4)
    assert nothing.isfinite() and nothing < 1e-6


# ---------------------------------------------------------------- sets


def test_objects_are_matched_as_no_permutation_can_better():
    generator = torch.Generator().manual_seed(4)
    logits_BQK, found_BQ4 = torch.randn(3, 6, 4, generator=generator), random_boxes(3, 6, seed=5)
    boxes_BM4, classes_BM = random_boxes(3, 4, seed=6), torch.tensor([[0, 2, 1, 0], [1, -1, 2, -1], [-1, -1, -1, -1]])
    size_4 = torch.full((4,), 32.0)
    query_BM = match(logits_BQK, found_BQ4, size_4, classes_BM, boxes_BM4)
    assert ((query_BM >= 0) == (classes_BM >= 0)).all()
    for image in range(3):
        objects = (classes_BM[image] >= 0).nonzero()[:, 0].tolist()

        def cost(queries: tuple[int, ...], image: int = image, objects: list[int] = objects) -> float:
            total = 0.0
            for query, number in zip(queries, objects, strict=True):
                mine, true = found_BQ4[image, query], boxes_BM4[image, number]
                total += 5 * float(((mine - true) / 32).abs().sum()) - 2 * float(generalised_overlap(mine, true))
                total -= float(logits_BQK[image, query].softmax(-1)[classes_BM[image, number]])
            return total

        least = min(cost(queries) for queries in itertools.permutations(range(6), len(objects)))
        assert cost(tuple(query_BM[image, objects].tolist())) == pytest.approx(least, rel=1e-5)


def test_a_set_that_is_right_costs_nothing_in_any_order_and_more_objects_than_queries_are_borne():
    boxes_BM4, classes_BM = random_boxes(1, 3, seed=7), torch.tensor([[2, 0, -1]])
    order = [1, 0, 2]
    logits_BQK = torch.full((1, 3, 4), -20.0)
    for query, number in enumerate(order):
        logits_BQK[0, query, classes_BM[0, number]] = 20.0  # of padding, -1: the last class, nothing
    size_4 = torch.full((4,), 32.0)
    assert set_loss(logits_BQK, boxes_BM4[:, order], size_4, classes_BM, boxes_BM4) < 1e-5
    one = set_loss(logits_BQK[:, :1], boxes_BM4[:, 1:2], size_4, classes_BM, boxes_BM4)
    assert one < 1e-5


# ---------------------------------------------------------------- suppression


def test_suppression_is_that_of_a_loop():
    boxes_BL4 = random_boxes(3, 30, seed=8, longest=20.0)
    scores_BLK = torch.rand(3, 30, 2, generator=torch.Generator().manual_seed(9)).mul(20).round().div(20)  # with ties
    candidates = suppress(surest(boxes_BL4, scores_BLK, most=40), 0.3)
    for image in range(3):
        ordered = sorted((-scores_BLK[image, box, kind].item(), box, kind) for box in range(30) for kind in range(2))[
            :40
        ]
        kept: list[tuple[int, int]] = []
        for _, box, kind in ordered:
            mine = boxes_BL4[image, box].tolist()
            if all(kind != other or iou(mine, boxes_BL4[image, at].tolist()) <= 0.3 for at, other in kept):
                kept.append((box, kind))
        there = candidates.kept_BP[image]
        torch.testing.assert_close(candidates.boxes_BP4[image][there], boxes_BL4[image, [box for box, _ in kept]])
        assert candidates.classes_BP[image][there].tolist() == [kind for _, kind in kept]


def test_at_most_so_many_are_found():
    boxes_BL4, scores_BLK = random_boxes(2, 30, seed=1), torch.rand(2, 30, 3)
    assert found(boxes_BL4, scores_BLK, 7, 0.5).kept_BP.sum(1).tolist() == [7, 7]
    without = found(boxes_BL4, scores_BLK, 7, None)
    torch.testing.assert_close(without.scores_BP, scores_BLK.flatten(1).topk(7).values)
