"""Rollout: rows sum to one, and follow attention through the layers."""

from __future__ import annotations

import pytest
import torch

from regard.explain.rollout import attention_maps, rollout
from regard.explain.trace import trace
from regard.models.swin import Swin
from regard.models.vision import VisionTransformer
from regard.settings import ImageModel


def test_rows_of_the_rollout_sum_to_one() -> None:
    weights = torch.randn(5, 3, 17, 17, dtype=torch.float64).softmax(-1)
    assert torch.allclose(rollout(weights).sum(-1), torch.ones(17, dtype=torch.float64), atol=1e-12)


def test_attention_to_oneself_alone_rolls_out_to_the_identity() -> None:
    assert torch.equal(rollout(torch.eye(4).expand(3, 2, 4, 4)), torch.eye(4))


def test_two_layers_that_hand_on_reach_two_tokens_back() -> None:
    before = torch.zeros(3, 3)
    before[0, 0] = before[1, 0] = before[2, 1] = 1  # each looks at the one before it
    found = rollout(before.expand(2, 1, 3, 3))
    assert found[2].tolist() == [0.25, 0.5, 0.25]


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_maps_are_over_the_grid_of_patches_and_equal_the_models_own_attention(pooling: str) -> None:
    torch.manual_seed(0)
    settings = ImageModel(
        layers=2,
        width=16,
        heads=2,
        feedforward=16,
        patch=2,
        pooling=pooling,
        positions="learned",
        norm="pre",
        registers=1,
    )
    model = VisionTransformer(settings, 4, 6, 1, 3).eval()
    image = torch.randn(1, 4, 6)
    maps = attention_maps(model, image)
    assert maps.rollout_RS.shape == (2, 3) and [each.shape for each in maps.layers_HRS] == [(2, 2, 3)] * 2
    assert (maps.rollout_RS >= 0).all() and maps.rollout_RS.sum() < 1  # the rest stays with tokens beside the patches
    x = model.trunk.embedding(image[None])
    block = model.trunk.blocks[0]
    q, k, _ = block.mixer._own(block.mixer_norm(x), torch.arange(x.shape[1])[None])
    weights = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1)[0]
    first = model.patches.before
    readers = weights[:, 0, first:] if pooling == "first" else weights[:, first:, first:].mean(1)
    assert torch.allclose(maps.layers_HRS[0], readers.view(2, 2, 3), atol=1e-6)


SWIN = ImageModel(stages=[2, 1], width=16, heads=2, feedforward=16, patch=1, window=2, positions="none", norm="pre")


def test_of_a_swin_windows_are_followed_through_shifts_and_merging() -> None:
    torch.manual_seed(1)
    model = Swin(SWIN, 4, 8, 1, 3).eval()
    maps = attention_maps(model, torch.randn(1, 4, 8))
    assert [each.shape for each in maps.layers_HRS] == [(2, 4, 8), (2, 4, 8), (4, 2, 4)]
    for each in [maps.rollout_RS[None], *maps.layers_HRS]:
        assert torch.allclose(each.sum((1, 2)), torch.ones(len(each)), atol=1e-5)


def test_of_a_swin_the_rollout_is_the_product_over_its_patches() -> None:
    """By hand: attention among the patches of the image, written as matrices, merging one of them."""
    torch.manual_seed(2)
    model = Swin(SWIN, 4, 4, 1, 3).eval()
    image = torch.randn(1, 4, 4)
    first, second, last = (found.weights_BHTS[0].mean(0) for found in trace(model, lambda: model(image[None])).values())
    merging = torch.zeros(4, 16)
    for row in range(4):
        for column in range(4):
            merging[row // 2 * 2 + column // 2, row * 4 + column] = 0.25
    half = [0.5 * weights + 0.5 * torch.eye(len(weights)) for weights in (first, second, last)]
    expected = (half[2] @ merging @ half[1] @ half[0]).mean(0).view(4, 4)
    assert torch.allclose(attention_maps(model, image).rollout_RS, expected, atol=1e-6)
