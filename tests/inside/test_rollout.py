"""Rollout: rows sum to one, and follow attention through the layers."""

from __future__ import annotations

import math

import pytest
import torch

from regard.errors import UsageError
from regard.inside.rollout import attention_maps, product, rollout_of_answer
from regard.inside.trace import trace


def test_rows_of_the_rollout_sum_to_one() -> None:
    weights = torch.randn(5, 3, 17, 17, dtype=torch.float64).softmax(-1)
    assert torch.allclose(product(weights).sum(-1), torch.ones(17, dtype=torch.float64), atol=1e-12)


def test_attention_to_itself_gives_the_identity() -> None:
    assert torch.equal(product(torch.eye(4).expand(3, 2, 4, 4)), torch.eye(4))


def test_two_layers_of_previous_token_heads_reach_two_tokens_back() -> None:
    before = torch.zeros(3, 3)
    before[0, 0] = before[1, 0] = before[2, 1] = 1  # each looks at the one before it
    assert product(before.expand(2, 1, 3, 3))[2].tolist() == [0.25, 0.5, 0.25]


def of_kinds(*kinds):
    return pytest.mark.parametrize("subject", kinds, indirect=True)


@of_kinds("vit", "vit-mean", "vit-both", "text-classifier-mean", "language", "masked", "captioner", "translator")
def test_rollout_is_the_product_of_the_attention_matrices(subject):
    traced = trace(subject)
    for stack in traced.stacks:
        expected_TT = torch.eye(len(stack.stack.pieces))
        for layer in stack.layers:
            identity_TT = torch.eye(len(expected_TT))
            taken_TT = layer.part("mixer").attention().weights_BHTS[0].mean(0) + identity_TT
            expected_TT = taken_TT / taken_TT.sum(-1, keepdim=True) @ expected_TT
        result = traced.rollout(stack.name)
        torch.testing.assert_close(torch.from_numpy(result.values), expected_TT, atol=1e-6, rtol=0)
        assert ("cross-attention" in result.notes["left_out"]) == (stack.name == "decoder")


@of_kinds("vit", "vit-mean", "vit-both", "text-classifier-mean", "language", "captioner", "swin")
def test_rollout_of_an_answer_starts_at_its_readout(subject):
    traced = trace(subject)
    rolled = traced.rollout().values
    mean = rolled[subject.last.before :].mean(0)
    expected, words = {
        "mean": (mean, "the mean of all"),
        "first": (rolled[0], "the class token"),
        "both": ((rolled[0] + mean) / 2, "the class token and the mean of all patches, half each"),
        "position": (rolled[-1], "position"),
    }[subject.readout.pool]
    result = rollout_of_answer(traced)
    torch.testing.assert_close(result.values, expected, atol=1e-6, rtol=0)
    assert result.values.sum() == pytest.approx(1, abs=1e-5)
    assert result.notes["read_from"].startswith(words)


@of_kinds("language-hyena", "language-gru", "translator-additive", "translator-bahdanau")
def test_models_without_attention_are_refused(subject):
    with pytest.raises(UsageError, match="Rollout is not defined for the"):
        trace(subject).rollout()


@of_kinds("vit", "vit-mean", "vit-both")
def test_maps_are_over_the_grid_of_patches(subject):
    maps = attention_maps(trace(subject))
    assert maps.rollout_RS.shape == (2, 3) and [each.shape for each in maps.layers_HRS] == [(4, 2, 3)] * 2
    patches = subject.model.eval().patches
    x_BTD = patches(torch.randn(1, 1, 8, 12, generator=torch.Generator().manual_seed(3)))
    block = subject.last.blocks[0]
    read_BTD = block.mixer_norm(x_BTD) if block.pre_norm else x_BTD
    q, k, _ = block.mixer._own(read_BTD, torch.arange(x_BTD.shape[1])[None])
    weights = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1)[0, ..., patches.before :]
    first, mean = weights[:, 0], weights[:, patches.before :].mean(1)
    seen = {"mean": mean, "first": first, "both": (first + mean) / 2}[subject.readout.pool]
    torch.testing.assert_close(maps.layers_HRS[0], seen.view(4, 2, 3), atol=1e-6, rtol=0)


@of_kinds("language")
def test_texts_have_no_maps(subject):
    with pytest.raises(UsageError, match="not an image"):
        attention_maps(trace(subject))


# ---------------------------------------------------------------- Swin, with dense matrices


def dense_attention(windows, x_TD: torch.Tensor) -> torch.Tensor:
    """Attention in windows as a matrix over the whole grid, from where patches stand: [H, T, T]."""
    side, window = windows.grid[1], windows.window[0]
    places = [divmod(number, side) for number in range(len(x_TD))]
    among = [tuple((at - by) // window for at, by in zip(place, windows.shift, strict=True)) for place in places]
    bias_HTT = torch.full((windows.heads, len(x_TD), len(x_TD)), -math.inf)
    for i, here in enumerate(places):
        for j, there in enumerate(places):
            if among[i] == among[j]:
                down, right = here[0] - there[0] + window - 1, here[1] - there[1] + window - 1
                bias_HTT[:, i, j] = windows.table[down * (2 * window - 1) + right]
    q, k, _ = windows.to_qkv(x_TD).view(len(x_TD), 3, windows.heads, -1).permute(1, 2, 0, 3)
    return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + bias_HTT).softmax(-1)


@of_kinds("swin", "swin-post-norm")
@torch.no_grad()
def test_rollout_of_a_swin_is_the_product_of_dense_matrices(subject):
    traced = trace(subject)
    expected_ET, maps = torch.eye(256), []
    for number, stage in enumerate(traced.stacks):
        side = stage.stack.grid[0]
        if number:  # 2 × 2 patches become one
            merging_EF = torch.zeros(side * side, 4 * side * side)
            for row in range(2 * side):
                for column in range(2 * side):
                    merging_EF[row // 2 * side + column // 2, row * 2 * side + column] = 0.25
            expected_ET = merging_EF @ expected_ET
        x_TD = stage.layers[0].before_TD
        for layer in stage.layers:
            block = layer.block
            weights_HTT = dense_attention(block.mixer, block.mixer_norm(x_TD) if block.pre_norm else x_TD)
            maps.append(weights_HTT.mean(1).view(-1, side, side))
            expected_ET = (0.5 * weights_HTT.mean(0) + 0.5 * torch.eye(side * side)) @ expected_ET
            x_TD = layer.after_TD
    torch.testing.assert_close(torch.from_numpy(traced.rollout().values), expected_ET, atol=1e-5, rtol=0)
    result = attention_maps(traced)
    torch.testing.assert_close(result.rollout_RS, expected_ET.mean(0).view(16, 16), atol=1e-5, rtol=0)
    for map_HRS, expected_HRS in zip(result.layers_HRS, maps, strict=True):
        torch.testing.assert_close(map_HRS, expected_HRS, atol=1e-5, rtol=0)
