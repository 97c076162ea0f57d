"""The block against torch's own encoder and decoder layers, and its options."""

import pytest
import torch
from torch import nn

from regard.layers.block import Block, make_blocks
from regard.layers.context import Context, Memory
from regard.layers.feedforward import FeedForward
from regard.settings import TranslationModel

B, T, S, D, H, F = 2, 6, 5, 16, 4, 32


def settings(**changes) -> TranslationModel:
    return TranslationModel(**{"width": D, "heads": H, "feedforward": F, "positions": "none", "dropout": 0.0} | changes)


def context(causal: bool, memory: Memory | None = None) -> Context:
    return Context.build(torch.ones(B, T, dtype=torch.long), torch.arange(T).expand(B, T), causal, memory)


def copy_attention(ours, theirs) -> None:
    theirs.in_proj_weight.copy_(ours.to_qkv.weight)
    theirs.in_proj_bias.copy_(ours.to_qkv.bias)
    theirs.out_proj.weight.copy_(ours.to_out.weight)
    theirs.out_proj.bias.copy_(ours.to_out.bias)


def copy_feedforward(ours, theirs) -> None:
    theirs.linear1.load_state_dict(ours.expand.state_dict())
    theirs.linear2.load_state_dict(ours.contract.state_dict())


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_block_equals_torch(norm, activation):
    torch.manual_seed(1)
    block = Block(settings(norm=norm, activation=activation)).eval()
    layer = nn.TransformerEncoderLayer(D, H, F, 0.0, activation, batch_first=True, norm_first=norm == "pre").eval()
    x = torch.randn(B, T, D)
    with torch.no_grad():
        copy_attention(block.mixer, layer.self_attn)
        copy_feedforward(block.feedforward, layer)
        torch.testing.assert_close(block(x, context(False)), layer(x), atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_decoder_block_equals_torch(norm):
    torch.manual_seed(2)
    block = Block(settings(norm=norm), causal=True, decoder=True).eval()
    layer = nn.TransformerDecoderLayer(D, H, F, 0.0, batch_first=True, norm_first=norm == "pre").eval()
    x, memory = torch.randn(B, T, D), torch.randn(B, S, D)
    with torch.no_grad():
        copy_attention(block.mixer, layer.self_attn)
        copy_attention(block.cross, layer.multihead_attn)
        copy_feedforward(block.feedforward, layer)
        ours = block(x, context(True, Memory(memory, torch.ones(B, 1, T, S, dtype=torch.bool))))
        mask = nn.Transformer.generate_square_subsequent_mask(T)
        torch.testing.assert_close(ours, layer(x, memory, tgt_mask=mask), atol=1e-5, rtol=0)


def test_gated_feedforward_is_the_formula():
    torch.manual_seed(4)
    layer = FeedForward(settings(activation="silu", gated=True))
    x = torch.randn(B, T, D)
    w, v = layer.expand.weight.chunk(2)
    b, c = layer.expand.bias.chunk(2)
    expected = layer.contract(torch.nn.functional.silu(x @ w.T + b) * (x @ v.T + c))
    torch.testing.assert_close(layer(x), expected, atol=1e-5, rtol=0)


def test_dropout_acts_in_training_only():
    torch.manual_seed(5)
    block = Block(settings(dropout=0.5))
    x = torch.randn(B, T, D)
    block.eval()
    assert torch.equal(block(x, context(False)), block(x, context(False)))
    block.train()
    assert not torch.equal(block(x, context(False)), block(x, context(False)))


def test_layer_scale_multiplies_what_each_part_adds():
    torch.manual_seed(6)
    block = Block(settings(norm="pre", layer_scale=0.5)).eval()
    x = torch.randn(B, T, D)
    mixed = x + 0.5 * block.mixer(block.mixer_norm(x), context(False))
    expected = mixed + 0.5 * block.feedforward(block.feedforward_norm(mixed))
    torch.testing.assert_close(block(x, context(False)), expected)
    assert sum(p.numel() for name, p in block.named_parameters() if "scales" in name) == 2 * D


@pytest.mark.parametrize("part", ["mixer", "feedforward"])
def test_stochastic_depth_leaves_a_part_out_for_some_rows_and_keeps_the_mean(part):
    torch.manual_seed(7)
    rows, skipped = 4000, 0.25
    block = Block(settings(norm="pre", feedforward=F if part == "feedforward" else 0), skipped=skipped)
    if part == "feedforward":
        nn.init.zeros_(block.mixer.to_out.weight)
        nn.init.zeros_(block.mixer.to_out.bias)
    x = torch.randn(1, T, D).expand(rows, T, D)
    every_row = Context.build(None, torch.arange(T)[None], False)
    added = block.eval()(x[:1], every_row) - x[:1]
    found = block.train()(x, every_row) - x
    left_out = found.abs().amax((1, 2)) < 1e-6
    assert abs(left_out.float().mean() - skipped) < 0.03  # over four standard deviations
    torch.testing.assert_close(found[~left_out], (added / (1 - skipped)).expand_as(found[~left_out]), atol=1e-4, rtol=0)


def test_deeper_blocks_are_skipped_more_often():
    blocks = make_blocks(settings(stochastic_depth=0.3), 4)
    assert torch.allclose(torch.stack([1 - block.survival for block in blocks]), torch.tensor([0, 0.1, 0.2, 0.3]))
