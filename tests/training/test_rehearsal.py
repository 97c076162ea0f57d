"""What is rehearsed while data is read: a small step of the same kind as in training, and nothing of it stays."""

import copy

import pytest
import torch

from regard import registry
from regard.hardware import Hardware
from regard.run import read_recipe
from regard.settings import SystemSettings
from regard.training.rehearsal import kernels_ahead, rehearse


def task(recipe: str, *overrides: str):
    settings = read_recipe(recipe, overrides)
    return registry.load("tasks", settings.task)(settings, None, Hardware.choose(SystemSettings(device="cpu")))


@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [
        ("demo", []),
        ("multi30k", ["model.width=32", "tokenizer.vocabulary=300"]),
        ("shakespeare-cpu", []),
        ("digits", []),
        ("cifar10", ["model.width=32", "images.size=8"]),
    ],
)
def test_a_small_model_takes_a_step_of_the_same_loss(recipe, overrides):
    copied = copy.copy(task(recipe, *overrides))
    assert rehearse(copied)
    gradients = [weight.grad for weight in copied.model.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
    blocks = [module for module in copied.model.modules() if type(module).__name__ == "Block"]
    stacks = 2 if hasattr(copied, "translate") else 1
    assert len(blocks) == 2 * stacks


def test_tasks_without_a_rehearsal_have_none():
    assert not rehearse(task("reverse"))


def test_on_a_cpu_nothing_is_rehearsed():
    demo, state = task("demo"), torch.get_rng_state()
    with kernels_ahead(demo):
        pass
    assert torch.equal(torch.get_rng_state(), state)
    assert not hasattr(demo, "model")
