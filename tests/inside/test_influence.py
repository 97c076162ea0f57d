"""Influence: the norms of the blocks of a Jacobian."""

import dataclasses

import pytest
import torch
from torch.autograd.functional import jacobian

from regard.errors import UsageError
from regard.inside.influence import _through_stacks, directions, jacobian_norms
from regard.inside.sites import watching
from regard.inside.trace import trace


def norms(function, x_SD):
    """Of a function to [T, D], by torch: [T, S]."""
    return jacobian(function, x_SD).square().sum((1, 3)).sqrt()


def through_stack(subject, first, last):
    def function(x_SD):
        end = f"{last}.{len(subject.stack(last).blocks) - 1}"
        with watching(subject, keep=[end], edits={f"{first}.embedding": lambda _: x_SD[None]}) as seen:
            subject.model.eval()
            subject.forward(1)
        return seen[end][0]

    return function


@pytest.mark.parametrize("kind", ["language-hyena", "language-gru", "language-local", "vit"])
def test_influence_of_a_stack_is_the_norm_of_its_jacobian(make, kind):
    traced = trace(make(kind))
    for stack in traced.stacks:
        expected_TS = norms(through_stack(traced.subject, stack.name, stack.name), stack.layers[0].before_TD)
        influence = traced.influence(stack.name)
        torch.testing.assert_close(torch.from_numpy(influence.values), expected_TS, atol=1e-4, rtol=1e-4)
        assert influence.notes["exact"] and influence.labels == (stack.stack.pieces, stack.stack.pieces)


def test_a_decoder_depends_on_its_source(make):
    traced = trace(make("translator-additive"))
    expected_TS = norms(through_stack(traced.subject, "encoder", "decoder"), traced["encoder"].layers[0].before_TD)
    influence = traced.influence("decoder", source="encoder")
    torch.testing.assert_close(torch.from_numpy(influence.values), expected_TS, atol=1e-4, rtol=1e-4)
    assert influence.values.min() > 0 and not traced.influence("encoder", source="decoder").values.any()


@pytest.mark.parametrize("kind", ["language-hyena", "language-capped", "language-local", "translator-bahdanau"])
def test_influence_of_a_mixer_is_the_norm_of_its_jacobian(make, kind):
    traced = trace(make(kind))
    part = traced.last.layers[1].part("mixer")
    scale_D = 1 if part.scale_D is None else part.scale_D
    expected_TS = norms(lambda x_SD: part.module(x_SD[None], part.context)[0] * scale_D, part.read_TD)
    influence = traced.influence(part=part.name)
    torch.testing.assert_close(torch.from_numpy(influence.values), expected_TS, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["translator", "translator-additive"])
def test_influence_of_cross_attention_is_with_respect_to_the_source(make, kind):
    traced = trace(make(kind))
    part = traced.last.layers[0].part("cross")

    def function(memory_SD):
        memory = dataclasses.replace(part.context.memory, states_BSD=memory_SD[None])
        return part.module(part.read_TD[None], dataclasses.replace(part.context, memory=memory))[0]

    expected_TS = norms(function, part.context.memory.states_BSD[0])
    influence = traced.influence(part=part.name)
    torch.testing.assert_close(torch.from_numpy(influence.values), expected_TS, atol=1e-4, rtol=1e-4)
    assert influence.labels[1] == traced["encoder"].stack.pieces


@pytest.mark.parametrize(
    "kind", ["language", "language-post-norm", "language-local", "language-grouped", "language-hyena", "language-gru"]
)
def test_later_positions_have_no_influence_in_a_causal_model(make, kind):
    traced = trace(make(kind))
    for influence in (traced.influence(), traced.influence(part="layers.0.mixer")):
        values = torch.from_numpy(influence.values)
        assert values.triu(1).abs().max() < 1e-6 < values.diagonal().min()
    if kind == "language-local":
        assert values.tril(-3).abs().max() == 0 < values.diagonal(-2).min()  # a window of 3


def test_without_a_mask_every_position_depends_on_every_other(make):
    assert trace(make("masked")).influence().values.min() > 1e-4


def test_probes_are_orthonormal_and_unbiased(make):
    traced = trace(make("language"))
    exact_TS = torch.from_numpy(traced.influence().values)
    pass_ = _through_stacks(traced, "layers", "layers")
    basis = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(2))).Q
    squares = torch.stack([jacobian_norms(pass_, 6, q_PD, at_once=64).square() for q_PD in basis.split(4)])
    torch.testing.assert_close(squares.mean(0).sqrt(), exact_TS, atol=1e-4, rtol=1e-4)
    q_PD = directions(4, 32, seed=7)
    torch.testing.assert_close(q_PD @ q_PD.T, torch.eye(4), atol=1e-6, rtol=0)
    influence = traced.influence(probes=4, seed=7)
    assert (influence.notes["exact"], influence.notes["probes"], influence.notes["seed"]) == (False, 4, 7)
    torch.testing.assert_close(
        torch.from_numpy(influence.values), jacobian_norms(pass_, 6, q_PD, at_once=5), atol=1e-5, rtol=1e-4
    )


def test_unknown_names_are_refused(make):
    traced = trace(make("language"))
    for options, words in [
        ({"stack": "encoder"}, "not a stack"),
        ({"probes": 0}, "0 probes are not enough"),
        ({"probes": 1.5}, "number of probes is 1.5"),
        ({"part": "layers.0.feedforward"}, "Influence is not defined for"),
        ({"stack": "layers", "part": "layers.0.mixer"}, "Both a part and a stack"),
    ]:
        with pytest.raises(UsageError, match=words):
            traced.influence(**options)
