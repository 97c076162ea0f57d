"""Optimizers without the compiler: the same numbers, and it is not loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from regard.training.muon import Muon
from regard.training.uncompiled import uncompiled


def trained(kind, **options) -> list[torch.Tensor]:
    """A weight after three steps, the second half of them by an optimizer that continues from the first one's state."""
    weight = torch.nn.Parameter(torch.randn(6, 4, generator=torch.Generator().manual_seed(1)))
    optimizer = kind([weight], **options)
    for step in range(3):
        weight.grad = torch.sin(weight.detach() * (step + 1))
        optimizer.step()
        assert weight.requires_grad
        if step == 1:
            state = optimizer.state_dict()
            optimizer = kind([weight], **options)
            optimizer.load_state_dict(state)
    optimizer.zero_grad(set_to_none=False)
    return [weight.detach(), weight.grad, *optimizer.state[weight].values()]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.Adam, {"lr": 0.1, "fused": True}),
        (torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.5, "fused": True}),
        (Muon, {"lr": 0.1}),
    ],
)
def test_an_optimizer_without_the_compiler_computes_the_same_bits(kind, options):
    for one, other in zip(trained(kind, **options), trained(uncompiled(kind), **options), strict=True):
        assert torch.equal(one, other)


def test_the_compiler_is_not_loaded_for_an_optimizer():
    code = """if True:
        import sys, torch
        from regard.settings import TrainingSettings
        from regard.training.optimizer import Optimizer
        model = torch.nn.Linear(4, 4)
        optimizer = Optimizer(model, TrainingSettings())
        model(torch.ones(2, 4)).sum().backward()
        before = model.weight.clone()
        optimizer.step(0.1)
        print(bool((model.weight != before).all()), "torch._dynamo" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
