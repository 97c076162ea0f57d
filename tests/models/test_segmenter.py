"""Heads that give every pixel a class."""

import pytest
import torch

from regard.models.segmenter import AddedStages, ClassTokenHead, LinearHead, SegmentingSwin, SegmentingViT
from regard.settings import SegmentationModel
from regard.training.optimizer import no_decay

SIZES = {"layers": 2, "width": 16, "heads": 2, "feedforward": 32, "norm": "pre", "dropout": 0.0}
SWIN = {**SIZES, "stages": [2, 2, 2], "window": 2, "positions": "none", "patch": 2}
TWO_STAGES = {**SWIN, "stages": [2, 2]}


def settings(**changes) -> SegmentationModel:
    return SegmentationModel(**{**SIZES, "patch": [2, 4], "positions": "learned", **changes})


def images(count=3, height=8, width=24, channels=3):
    return torch.randn(count, channels, height, width, generator=torch.Generator().manual_seed(1))


def test_each_patch_gives_its_own_pixels():
    head = LinearHead(settings(), (4, 6), classes=5)
    x = torch.randn(3, 24, 16)
    logits = head(x)
    assert logits.shape == (3, 8, 24, 5)
    weight, bias = head.project.weight.view(2, 4, 5, 16), head.project.bias.view(2, 4, 5)
    for row, column in [(0, 0), (3, 13), (7, 23), (4, 8)]:
        patch = (row // 2) * 6 + column // 4
        expected = x[:, patch] @ weight[row % 2, column % 4].T + bias[row % 2, column % 4]
        torch.testing.assert_close(logits[:, row, column], expected)


def test_masks_are_scalar_products_with_the_tokens_of_the_classes():
    torch.manual_seed(1)
    head = ClassTokenHead(settings(head="class-tokens", patch=1), (4, 6), classes=5).eval().double()
    x = torch.randn(3, 24, 16, dtype=torch.float64)
    logits = head(x)
    assert logits.shape == (3, 4, 6, 5)  # with patches of one pixel, nothing is in between
    other = [1, 0, 4, 2, 3]
    with torch.no_grad():
        head.classes_KD.copy_(head.classes_KD[other].clone())
    torch.testing.assert_close(head(x), logits[..., other])  # classes have no order of their own
    seen = {}
    head.over_classes.register_forward_hook(lambda module, given, made: seen.update(products=given[0]))
    head(x)
    assert (seen["products"].abs() <= 1 + 1e-5).all() and seen["products"].std() > 0.05
    assert any(weight is head.classes_KD for weight in no_decay(head))


def test_stages_are_added_on_the_grid_of_the_first():
    torch.manual_seed(1)
    added = AddedStages(settings(**SWIN), (4, 8))
    stages = [torch.randn(2, 32, 16), torch.randn(2, 8, 32), torch.randn(2, 2, 64)]
    total = added(stages)
    assert total.shape == (2, 32, 16)
    alone = added([stages[0], torch.zeros_like(stages[1]), torch.zeros_like(stages[2])])
    nothing = added([torch.zeros_like(stage) for stage in stages])
    # Stage by stage: what each adds does not depend on the others; a constant map stays constant when enlarged.
    first = added.project[0](added.norms[0](stages[0])) - added.project[0](added.norms[0](torch.zeros(2, 32, 16)))
    torch.testing.assert_close(alone - nothing, first)
    coarse = torch.randn(2, 1, 64).expand(2, 2, 64)
    constant = added([torch.zeros(2, 32, 16), torch.zeros(2, 8, 32), coarse])
    torch.testing.assert_close(constant, constant[:, :1].expand_as(constant))


@pytest.mark.parametrize("positions", ["learned", "sinusoidal-2d", "rotary", "none"])
def test_positions_are_those_of_patches(positions):
    chosen = settings(positions=positions)
    assert not list(chosen.check_parts())
    torch.manual_seed(1)
    model = SegmentingViT(chosen, 8, 24, 3, 5).eval()
    torch.nn.init.normal_(model.to_classes.project.weight)
    one, flipped = images(), images().flip(2, 3)
    turned = model(flipped).flip(1, 2)
    same = torch.allclose(model(one)[:, ::2, ::4], turned[:, ::2, ::4], atol=1e-3)
    assert not same


@pytest.mark.parametrize("head", ["linear", "class-tokens"])
@pytest.mark.parametrize("stages", [False, True])
def test_every_weight_learns(head, stages):
    torch.manual_seed(1)
    if stages:
        model = SegmentingSwin(settings(**TWO_STAGES, head=head), 8, 24, 3, 5)
    else:
        model = SegmentingViT(settings(head=head, registers=2), 8, 24, 3, 5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    logits = model(images())
    assert logits.shape == (3, 8, 24, 5)
    (logits * torch.randn_like(logits)).sum().backward()
    unused = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not unused


def test_at_first_all_classes_are_alike():
    for model in (SegmentingViT(settings(), 8, 24, 3, 5), SegmentingSwin(settings(**TWO_STAGES), 8, 24, 3, 5)):
        logits = model(images())
        torch.testing.assert_close(logits, torch.zeros_like(logits))
