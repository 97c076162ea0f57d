"""The gradient of a micro-batch; and the captured CUDA graph computes what the plain code computes."""

from dataclasses import dataclass
from typing import Self

import pytest
import torch

from regard.hardware import Hardware
from regard.models.causal import Causal
from regard.settings import CausalModel, SystemSettings
from regard.training.graph import Backward
from regard.training.loss import cross_entropy


@dataclass
class Rows:
    tokens: torch.Tensor

    def tensors(self) -> list[torch.Tensor]:
        return [self.tokens]

    def to(self, device: torch.device) -> Self:
        return type(self)(self.tokens.to(device))


def rows(seed: int) -> Rows:
    return Rows(torch.randint(1, 20, (4, 9), generator=torch.Generator().manual_seed(seed)))


def prepared(device: str, dropout: float = 0.0) -> tuple[Causal, Backward]:
    torch.manual_seed(1)
    hardware = Hardware.choose(SystemSettings(device=device, precision="float32", compile="no"))
    model = Causal(CausalModel(layers=2, width=16, heads=2, feedforward=32, dropout=dropout), 20).to(hardware.device)
    return model, Backward(
        model, lambda batch: cross_entropy(model(batch.tokens[:, :-1]), batch.tokens[:, 1:]), hardware
    )


def test_gradients_of_a_loss_over_all_targets_add_up():
    model, backward = prepared("cpu")
    losses = [backward(rows(seed), targets=64) for seed in (1, 2)]
    summed = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    both = torch.cat([rows(1).tokens, rows(2).tokens])
    loss = backward(Rows(both), targets=64)
    torch.testing.assert_close(sum(losses), loss)
    for mine, parameter in zip(summed, model.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_replaying_a_graph_adds_the_same_gradient_as_plain_code():
    model, backward = prepared("cuda")
    backward(rows(1), 100)  # captured on this batch, replayed on the next
    model.zero_grad(set_to_none=False)
    loss = backward(rows(2), 32)
    replayed = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    plain = backward.compute(rows(2).to(loss.device), torch.tensor(1 / 32, device=loss.device))
    torch.testing.assert_close(loss, plain, atol=1e-5, rtol=0)
    for mine, parameter in zip(replayed, model.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad, atol=1e-5, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_capturing_a_graph_draws_no_random_numbers():
    """A resumed run captures in a step in which an uninterrupted one replays."""
    _, backward = prepared("cuda", dropout=0.5)
    state = torch.cuda.get_rng_state()
    backward(rows(1), 100)
    torch.cuda.set_rng_state(state)
    first = [parameter.grad.clone() for parameter in backward.model.parameters()]
    for parameter in backward.model.parameters():
        parameter.grad.zero_()
    backward(rows(1), 100)
    for mine, parameter in zip(first, backward.model.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad, atol=1e-6, rtol=0)
