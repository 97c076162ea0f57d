"""Recurrence and the attentions around it, against torch's own and against the formulas."""

import pytest
import torch
from torch import nn

from regard.layers import additive
from regard.layers.additive import AdditiveAttention
from regard.layers.attention import Attention
from regard.layers.context import Context, Memory
from regard.layers.local import LocalAttention
from regard.layers.recurrent import Gru, Lstm, Recurrent, Rnn
from regard.settings import ModelSettings

B, T, S, D = 3, 9, 5, 8


def settings(**changes) -> ModelSettings:
    return ModelSettings(**{"width": D, "heads": 2, "positions": "none"} | changes)


def local_settings(window: int, **changes) -> ModelSettings:
    return settings(mixer="local", local={"window": window}, **changes)


every_cell = pytest.mark.parametrize("kind", [Rnn, Lstm, Gru])


@every_cell
def test_both_directions_equal_torchs_bidirectional_layer(kind: type[Recurrent]):
    torch.manual_seed(1)
    ours = kind(settings(), causal=False)
    theirs = kind.cell(D, D, batch_first=True, bidirectional=True)
    for name, weight in ours.forwards.named_parameters():
        getattr(theirs, name).data.copy_(weight)
        getattr(theirs, f"{name}_reverse").data.copy_(getattr(ours.backwards, name))
    lengths = torch.tensor([9, 4, 1])
    x, segments = torch.randn(B, T, D), (torch.arange(T) < lengths[:, None]).long()
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    found = ours(x, Context.build(segments, torch.arange(T).expand(B, T), causal=False))
    real = segments.bool()
    torch.testing.assert_close(found[real], ours.to_out(expected)[real], atol=1e-6, rtol=0)


@every_cell
def test_a_decoder_starts_from_what_the_source_ended_with(kind: type[Recurrent]):
    torch.manual_seed(2)
    layer = kind(settings(), causal=True, decoder=True)
    x, summary = torch.randn(B, T, D), torch.randn(B, D)
    memory = Memory(torch.randn(B, S, D), torch.ones(B, 1, T, S, dtype=torch.bool), summary)
    first = torch.tanh(layer.from_memory(summary))[None]
    state = tuple(part.contiguous() for part in first.split(D, -1)) if kind is Lstm else first
    expected = layer.to_out(layer.forwards(x, state)[0])
    found = layer(x, Context.build(None, torch.arange(T)[None], True, memory))
    torch.testing.assert_close(found, expected)


def test_additive_attention_is_the_formula():
    torch.manual_seed(3)
    layer = AdditiveAttention(settings())
    x, states = torch.randn(B, T, D), torch.randn(B, S, D)
    mask = torch.rand(B, 1, T, S) > 0.3
    mask[..., 0] = True
    found = layer(x, Context.build(None, torch.arange(T)[None], True, Memory(states, mask)))
    for b in range(B):
        for i in range(T):
            seen = mask[b, 0, i].nonzero()[:, 0].tolist()
            scores = [
                layer.energy.weight[0]
                @ torch.tanh(layer.to_query.weight @ x[b, i] + layer.to_query.bias + layer.to_key.weight @ states[b, j])
                for j in seen
            ]
            weights = torch.stack(scores).softmax(0)
            gathered = sum(weight * states[b, j] for weight, j in zip(weights, seen, strict=True))
            torch.testing.assert_close(found[b, i], layer.to_out(gathered), atol=1e-5, rtol=0)


def test_additive_attention_in_parts_gives_the_same(monkeypatch):
    torch.manual_seed(3)
    layer = AdditiveAttention(settings())
    x, states = torch.randn(B, T, D, requires_grad=True), torch.randn(B, S, D)
    context = Context.build(None, torch.arange(T)[None], True, Memory(states, torch.ones(B, 1, T, S, dtype=torch.bool)))

    def outcome() -> list[torch.Tensor]:
        y = layer(x, context)
        return [y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])]

    at_once = outcome()
    monkeypatch.setattr(additive, "LARGEST_SUMS", 2 * states.numel())  # two queries at a time
    for found, wanted in zip(outcome(), at_once, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 2, 4, 9, 20])
@pytest.mark.parametrize("packed", [True, False])
def test_local_attention_equals_attention_with_a_band_for_a_mask(causal, window, packed):
    torch.manual_seed(4)
    local = LocalAttention(local_settings(window, positions="rotary", key_value_heads=1), causal)
    full = Attention(settings(positions="rotary", key_value_heads=1), causal)
    full.load_state_dict(local.state_dict())
    segments = torch.tensor([[1, 1, 1, 1, 2, 2, 2, 0, 0], [1] * 9, [1, 2, 3, 3, 3, 3, 3, 3, 0]]) if packed else None
    positions = torch.arange(T).expand(B, T)
    x = torch.randn(B, T, D)
    context = Context.build(segments, positions, causal, masked=False)
    distance = torch.arange(T)[:, None] - torch.arange(T)
    band = (distance < window) & (distance > (-1 if causal else -window))
    if packed:
        band = band & (segments[:, :, None] == segments[:, None])
        band = band | (segments == 0)[:, :, None]
        band = band[:, None]
    else:
        band = band[None, None]
    expected = full(x, Context(segments, positions, False, band))
    found = local(x, context)
    real = segments != 0 if packed else torch.ones(B, T, dtype=torch.bool)
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=0)
    assert found.isfinite().all()


def test_the_window_cache_does_not_grow():
    local = LocalAttention(local_settings(4), causal=True)
    state = local.start(B, 10_000, torch.zeros(1))
    assert state.keys_NHLK.shape[2] == 4


def test_a_window_as_long_as_a_row_is_remarked_upon():
    (remark,) = LocalAttention.remarks(local_settings(9), length=9)
    assert "window = 9" in remark and "local attention is then attention" in remark
    assert LocalAttention.remarks(local_settings(9), length=10) == []
