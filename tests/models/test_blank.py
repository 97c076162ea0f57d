"""A model for trained weights is built without random numbers, and is otherwise the model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard import registry
from regard.models.blank import Blank
from regard.recipes import resolve
from regard.training.folder import RunFolder

TINY = ["model.layers=2", "model.width=16", "model.heads=2", "model.feedforward=16"]


def build(*settings: str) -> nn.Module:
    made = resolve("reverse", [*TINY, "synthetic.length=10", "synthetic.vocabulary=8", *settings])
    return registry.load("tasks", made.task)(made, RunFolder("nowhere")).build()


@pytest.mark.parametrize("mixer", registry.names("mixers"))
def test_a_blank_model_has_the_shapes_and_the_buffers_of_the_model(mixer):
    settings = [f"model.mixer={mixer}", "model.positions=learned"] if mixer == "attention" else [f"model.mixer={mixer}"]
    torch.manual_seed(1)
    state = torch.get_rng_state()
    with Blank():
        blank = build(*settings)
    assert torch.equal(torch.get_rng_state(), state)  # nothing was drawn
    real = build(*settings)
    assert {n: p.shape for n, p in blank.named_parameters()} == {n: p.shape for n, p in real.named_parameters()}
    buffers = dict(real.named_buffers())
    assert dict(blank.named_buffers()).keys() == buffers.keys()
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in blank.named_buffers())


def test_numbers_of_a_generator_are_drawn():
    """They are the same every time, and so a part of the model."""
    expected = torch.randn(4, generator=torch.Generator().manual_seed(3))
    with Blank():
        assert torch.equal(torch.randn(4, generator=torch.Generator().manual_seed(3)), expected)
        filled = torch.empty(4).normal_(generator=torch.Generator().manual_seed(3))
    assert torch.equal(filled, torch.empty(4).normal_(generator=torch.Generator().manual_seed(3)))


@pytest.mark.parametrize("low", [-2.0, 1.0])
def test_numbers_between_bounds_are_not_drawn_until_they_fit(low):
    """What is in memory that nobody has filled may fit never."""
    weight, state = torch.full((3, 4), 100.0), torch.get_rng_state()
    with Blank():
        assert nn.init.trunc_normal_(weight, a=low) is weight
    assert torch.equal(weight, torch.full((3, 4), 100.0)) and torch.equal(torch.get_rng_state(), state)
    with Blank():
        nn.init.trunc_normal_(weight, a=low, generator=torch.Generator().manual_seed(3))
    assert low <= weight.min() < weight.max() <= 2.0
