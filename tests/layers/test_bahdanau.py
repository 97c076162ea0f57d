"""Bahdanau's decoder against the formulas of the paper, one position and one source word at a time."""

import pytest
import torch
from torch import Tensor, nn

from regard.layers.bahdanau import RecurrentSearch
from regard.layers.block import Block
from regard.layers.context import Context, Memory
from regard.settings import TranslationModel

B, T, S, D = 3, 6, 5, 8


def settings(mixer: str = "gru", **changes) -> TranslationModel:
    basis = {"width": D, "heads": 2, "feedforward": 0, "dropout": 0.0, "mixer": mixer, "cross": "bahdanau"}
    return TranslationModel(**basis | changes)


def a_source(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Source states, which of them are words, what a decoder starts from, and its inputs."""
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] * 4 + [False]])
    return torch.randn(B, S, D, dtype=dtype), real, torch.randn(B, D, dtype=dtype), torch.randn(B, T, D, dtype=dtype)


def context_of(states: Tensor, real: Tensor, summary: Tensor) -> Context:
    memory = Memory(states, real[:, None, None].expand(B, 1, T, S), summary)
    return Context.build(None, torch.arange(T)[None], True, memory)


def published(
    layer: RecurrentSearch, states: Tensor, real: Tensor, summary: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    """The paper's appendix, one sentence, target word and source word at a time: y [B, T, D] and α [B, T, S]."""
    W_a, b_a = layer.alignment.to_query.parameters()
    U_a, v_a = layer.alignment.to_key.weight, layer.alignment.energy.weight[0]
    W_s, b_s = layer.from_memory.parameters()
    U_o, V_o, C_o = layer.to_pairs.weight.split(D, dim=1)
    cell = layer.cell
    (W_r, W_z, W), (C_r, C_z, C) = (part.chunk(3) for part in cell.weight_ih.split(D, dim=1))
    (b_r, b_z, b), (d_r, d_z, d) = cell.bias_ih.chunk(3), cell.bias_hh.chunk(3)
    U_r, U_z, U = cell.weight_hh.chunk(3)
    outputs, alphas = [], []
    for row in range(B):
        h = [states[row, j] for j in range(S) if real[row, j]]
        s = torch.tanh(W_s @ summary[row] + b_s)
        for word in x[row]:
            e = torch.stack([v_a @ torch.tanh(W_a @ s + b_a + U_a @ h_j) for h_j in h])
            alpha = e.exp() / e.exp().sum()
            c = sum(alpha_j * h_j for alpha_j, h_j in zip(alpha, h, strict=True))
            r = torch.sigmoid(W_r @ word + C_r @ c + b_r + U_r @ s + d_r)
            z = torch.sigmoid(W_z @ word + C_z @ c + b_z + U_z @ s + d_z)
            new = torch.tanh(W @ word + C @ c + b + r * (U @ s + d))
            s = (1 - z) * new + z * s
            t = U_o @ s + V_o @ word + C_o @ c + layer.to_pairs.bias
            t = torch.stack([torch.maximum(t[2 * k], t[2 * k + 1]) for k in range(D)])
            outputs.append(layer.to_out(t))
            alphas.append(torch.cat([alpha, alpha.new_zeros(S - len(h))]))
    return torch.stack(outputs).view(B, T, D), torch.stack(alphas).view(B, T, S)


def test_it_computes_what_the_paper_says():
    torch.manual_seed(1)
    layer = RecurrentSearch(settings())
    states, real, summary, x = a_source()
    context = context_of(states, real, summary)
    with torch.no_grad():
        expected, alpha = published(layer, states, real, summary, x)
        torch.testing.assert_close(layer(x, context), expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(layer.trace(x, context).weights_BHTS[:, 0], alpha, atol=1e-5, rtol=0)
    assert expected.std() > 0.1


def test_its_cell_is_torchs_with_both_inputs_side_by_side():
    torch.manual_seed(1)
    layer, cell = RecurrentSearch(settings()), nn.GRUCell(2 * D, D)
    cell.load_state_dict(layer.cell.state_dict())
    states, real, summary, x = a_source()
    state = layer.start(B, T, x, Memory(states, real[:, None, None], summary))
    s = torch.tanh(layer.from_memory(summary))
    for i in range(T):
        c = layer.alignment.look(s, state.memory)
        s = cell(torch.cat([x[:, i], c], dim=-1), s)
        layer.step(x[:, i], state)
        torch.testing.assert_close(state.cell, s, atol=1e-6, rtol=0)


def test_its_gradients_are_those_of_the_paper():
    torch.manual_seed(1)
    layer = RecurrentSearch(settings()).double()
    states, real, summary, x = (each.requires_grad_(each.is_floating_point()) for each in a_source(torch.float64))
    direction = torch.randn(B, T, D, dtype=torch.float64)
    inputs = [states, summary, x, *layer.parameters()]
    found = torch.autograd.grad((layer(x, context_of(states, real, summary)) * direction).sum(), inputs)
    expected = torch.autograd.grad((published(layer, states, real, summary, x)[0] * direction).sum(), inputs)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-10, rtol=0)
        assert theirs.abs().max() > 1e-3


@pytest.mark.parametrize("mixer", ["rnn", "lstm", "gru"])
def test_gradients_are_those_of_finite_differences(mixer):
    torch.manual_seed(2)
    layer = RecurrentSearch(settings(mixer)).double()
    states, real, summary, x = (each.requires_grad_(each.is_floating_point()) for each in a_source(torch.float64))

    def run(states, summary, x):
        return layer(x, context_of(states, real, summary))

    assert torch.autograd.gradcheck(run, (states, summary, x), atol=1e-6, fast_mode=True)


def changed_where(form: str, at: int) -> Tensor:
    """For each position, whether its weights over the source change when the word read at `at` does: [T]."""
    torch.manual_seed(3)
    block = Block(settings(cross=form), causal=True, decoder=True).eval()
    part = block.mixer if form == "bahdanau" else block.cross
    states, real, summary, x = a_source()
    context = context_of(states, real, summary)
    other = x.clone()
    other[:, at] += 1.0
    seen = []
    with torch.no_grad():
        for inputs in (x, other):
            # After the recurrence the query is made of what the block's mixer gave.
            queries = inputs if form == "bahdanau" else block.mixer_norm(inputs + block.mixer(inputs, context))
            seen.append(part.trace(queries, context).weights_BHTS[:, 0])
    return (seen[0] - seen[1]).abs().amax((0, 2)) > 1e-6


@pytest.mark.parametrize("at", range(T))
def test_the_query_is_the_state_before_the_word(at):
    """A word enters s_i, not s_{i−1}: as published it changes what is looked at only from the next word on."""
    assert changed_where("bahdanau", at).tolist() == [i > at for i in range(T)]
    assert changed_where("additive", at).tolist() == [i >= at for i in range(T)]


def test_scores_follow_the_state_before_and_nothing_else():
    """With s_{i−1} held, another s_i gives the same scores; with s_i held, another s_{i−1} gives others."""
    torch.manual_seed(4)
    layer = RecurrentSearch(settings())
    states, real, summary, x = a_source()
    memory = Memory(states, real[:, None, None], summary)
    with torch.no_grad():
        first, second = (layer.start(B, T, x, memory) for _ in range(2))
        looked = [layer.alignment.look(each.cell, each.memory) for each in (first, second)]
        layer.step(x[:, 0], first)
        layer.step(x[:, 1], second)  # another word: another state after it, though both looked at the same
        assert torch.equal(*looked)
        assert (first.cell - second.cell).abs().max() > 0.01
        after = [layer.alignment.look(each.cell, each.memory) for each in (first, second)]
    assert (after[0] - after[1]).abs().max() > 1e-4


@pytest.mark.parametrize("mixer", ["rnn", "lstm", "gru"])
def test_the_trace_written_out_at_once_equals_position_by_position(mixer):
    torch.manual_seed(5)
    layer = RecurrentSearch(settings(mixer))
    states, real, summary, x = a_source()
    context = context_of(states, real, summary)
    with torch.no_grad():
        trace, output = layer.trace(x, context), layer(x, context)
    torch.testing.assert_close(trace.output_BTD, output, atol=1e-5, rtol=0)
    assert trace.across
    assert trace.weights_BHTS.shape == (B, 1, T, S)
    assert (trace.weights_BHTS[:, 0].transpose(1, 2)[~real] == 0).all()


def test_what_does_not_recur_cannot_be_fed_a_source():
    assert list(settings().check_parts()) == []
    for mixer in ("attention", "hyena", "local"):
        [problem] = settings(mixer).for_length(T).check_parts()
        assert "feeds a recurrence" in problem.reason
        assert problem.advice == "use model.mixer = rnn or lstm or gru, or another cross"
