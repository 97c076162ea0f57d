"""Attention against torch's own, and against the formula written out."""

import itertools
import math

import pytest
import torch
from torch.nn import functional as F

from regard.layers.attention import Attention, MemoryKeys
from regard.layers.context import Context, Memory, same_segment
from regard.settings import ModelSettings

B, T, S, D, H = 3, 7, 9, 24, 4


def settings(**changes) -> ModelSettings:
    return ModelSettings(**{"width": D, "heads": H, "positions": "none"} | changes)


def one_segment(length: int, causal: bool, memory: Memory | None = None) -> Context:
    positions = torch.arange(length).expand(B, length)
    return Context.build(torch.ones(B, length, dtype=torch.long), positions, causal, memory)


def torch_attention(attention: Attention, x, memory, allowed):
    """torch.nn.functional.multi_head_attention_forward with the same weights; it wants [T, B, D]."""
    bias = attention.to_qkv.bias if attention.to_qkv.bias is not None else torch.zeros(3 * D)
    blocked = ~allowed.expand(B, H, x.shape[1], memory.shape[1]).reshape(B * H, x.shape[1], memory.shape[1])
    output, weights = F.multi_head_attention_forward(
        x.transpose(0, 1),
        memory.transpose(0, 1),
        memory.transpose(0, 1),
        D,
        H,
        attention.to_qkv.weight,
        bias,
        None,
        None,
        False,
        0.0,
        attention.to_out.weight,
        attention.to_out.bias,
        training=False,
        attn_mask=torch.zeros_like(blocked, dtype=torch.float).masked_fill(blocked, -torch.inf),
        average_attn_weights=False,
    )
    return output.transpose(0, 1), weights


@pytest.mark.parametrize(("bias", "causal"), list(itertools.product([True, False], [True, False])))
def test_self_attention_equals_torch(bias, causal):
    torch.manual_seed(1)
    attention = Attention(settings(bias=bias))
    x = torch.randn(B, T, D)
    context = one_segment(T, causal)
    expected, _ = torch_attention(attention, x, x, context.mask_B1TT)
    torch.testing.assert_close(attention(x, context), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("bias", [True, False])
def test_cross_attention_equals_torch(bias):
    torch.manual_seed(2)
    attention = Attention(settings(bias=bias), cross=True)
    x, memory = torch.randn(B, T, D), torch.randn(B, S, D)
    allowed = torch.rand(B, 1, T, S) > 0.3
    allowed[..., 0] = True
    expected, _ = torch_attention(attention, x, memory, allowed)
    actual = attention(x, one_segment(T, True, Memory(memory, allowed)))
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)


def test_packed_segments_equal_torch_with_a_block_mask():
    torch.manual_seed(3)
    attention = Attention(settings())
    x = torch.randn(B, T, D)
    segments = torch.tensor([[1, 1, 1, 2, 2, 3, 0], [1, 2, 2, 2, 2, 2, 2], [1, 1, 1, 1, 1, 1, 1]])
    context = Context.build(segments, torch.zeros_like(segments), causal=True)
    expected, _ = torch_attention(attention, x, x, context.mask_B1TT)
    torch.testing.assert_close(attention(x, context), expected, atol=1e-5, rtol=0)


def test_gradients_equal_torch():
    torch.manual_seed(4)
    attention = Attention(settings())
    x = torch.randn(B, T, D, requires_grad=True)
    context = one_segment(T, True)
    ours = torch.autograd.grad(attention(x, context).square().sum(), [x, *attention.parameters()])
    theirs = torch.autograd.grad(
        torch_attention(attention, x, x, context.mask_B1TT)[0].square().sum(), [x, *attention.parameters()]
    )
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(("key_width", "value_width"), [(5, 11), (16, 3), (6, 6)])
def test_key_and_value_widths_are_free(key_width, value_width):
    torch.manual_seed(5)
    attention = Attention(settings(key_width=key_width, value_width=value_width))
    x = torch.randn(B, T, D)
    wq, wk, wv = attention.to_qkv.weight.split(attention.widths)
    bq, bk, bv = attention.to_qkv.bias.split(attention.widths)
    heads = []
    for h in range(H):
        k, v = slice(h * key_width, (h + 1) * key_width), slice(h * value_width, (h + 1) * value_width)
        query, key, value = x @ wq[k].T + bq[k], x @ wk[k].T + bk[k], x @ wv[v].T + bv[v]
        heads.append((query @ key.transpose(1, 2) / math.sqrt(key_width)).softmax(-1) @ value)
    expected = attention.to_out(torch.cat(heads, -1))
    torch.testing.assert_close(attention(x, one_segment(T, False)), expected, atol=1e-5, rtol=0)


def test_a_prefill_projects_once():
    attention, x, calls = Attention(settings()), torch.randn(B, T, D), []
    attention.to_qkv.register_forward_hook(lambda *_: calls.append(1))
    attention.prefill(x, one_segment(T, True), attention.start(B, T, x))
    assert len(calls) == 1


def test_cross_step_gives_every_beam_its_own_sentence():
    torch.manual_seed(7)
    attention = Attention(settings(), cross=True)
    memory = torch.randn(B, S, D)
    segments = torch.ones(B, S, dtype=torch.long)
    segments[1, 5:] = 0
    beams = 4
    x = torch.randn(B, beams, D)
    stepped = attention.step(x.flatten(0, 1), MemoryKeys(attention, memory, segments)).view(B, beams, D)
    mask = same_segment(torch.ones(B, beams, dtype=torch.long), segments)
    expected = attention(x, one_segment(beams, False, Memory(memory, mask)))
    torch.testing.assert_close(stepped, expected, atol=1e-5, rtol=0)


def test_the_future_never_changes_the_past():
    torch.manual_seed(9)
    attention = Attention(settings())
    x = torch.randn(B, T, D)
    changed = x.clone()
    changed[:, 4:] = torch.randn(B, T - 4, D)
    context = one_segment(T, True)
    torch.testing.assert_close(attention(x, context)[:, :4], attention(changed, context)[:, :4], atol=0, rtol=0)


def test_padding_that_sees_nothing_stays_finite():
    attention = Attention(settings(), cross=True)
    target, source = torch.tensor([[1, 1, 0]]), torch.tensor([[1, 1, 1, 1]])
    memory = Memory(torch.randn(1, 4, D), same_segment(target, source))
    output = attention(torch.randn(1, 3, D), Context.build(target, torch.zeros_like(target), True, memory))
    assert output.isfinite().all()


def test_without_positions_attention_is_permutation_equivariant():
    torch.manual_seed(10)
    attention = Attention(settings())
    x = torch.randn(B, T, D)
    order = torch.randperm(T)
    context = one_segment(T, False)
    torch.testing.assert_close(attention(x, context)[:, order], attention(x[:, order], context), atol=1e-5, rtol=0)
