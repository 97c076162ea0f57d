"""Blocks in fused kernels against the same blocks in float64."""

import copy

import pytest
import torch

from regard.layers.embedding import Embedding
from regard.models import trunk as module
from regard.models.causal import Causal
from regard.settings import CausalModel

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
WORDS = 40


def model(**changes: object) -> Causal:
    settings = {
        "layers": 2, "width": 128, "heads": 2, "feedforward": 256, "norm": "pre", "dropout": 0.0, "activation": "gelu",
        "positions": "learned", "initialisation": "gpt2", "scale_embeddings": False, "norm_epsilon": 1e-3,
    }  # fmt: skip
    torch.manual_seed(1)
    made = Causal(CausalModel(**settings | changes), WORDS).train()
    with torch.no_grad():  # biases and norms too
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def results(of: Causal, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """What the trunk gives, and the gradients of all its weights."""
    of.zero_grad()
    out = of.hidden(tokens)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out.device)
    (out.double() * weights).sum().backward()
    return {"out": out.detach(), **{name: weight.grad for name, weight in of.trunk.named_parameters()}}


def fused(of: Causal, tokens: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    from regard.layers import fused_stack

    used = []
    read = fused_stack.read
    monkeypatch.setattr(fused_stack, "read", lambda *given: used.append(1) or read(*given))
    monkeypatch.setattr(module, "FUSED", True)
    with torch.autocast("cuda", torch.bfloat16):
        found = results(of, tokens)
    assert used, "the fused kernels were not taken"
    return found


def test_on_a_cpu_nothing_is_fused(monkeypatch):
    tokens, plain = torch.randint(0, WORDS, (2, 9)), model()
    expected = results(plain, tokens)
    monkeypatch.setattr(module, "FUSED", True)
    assert all(torch.equal(found, expected[name]) for name, found in results(plain, tokens).items())


@cuda
@pytest.mark.parametrize("stream", [None, torch.bfloat16])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activation": "gelu-tanh", "bias": False, "feedforward_bias": False},
        {"activation": "relu", "positions": "rotary", "query_key_norm": True},
        {"width": 384, "heads": 3, "feedforward": 640},
    ],
)
def test_outputs_and_gradients_are_those_of_the_blocks(changes, stream, monkeypatch):
    tokens = torch.randint(0, WORDS, (3, 37), device="cuda")
    mine = model(**changes).cuda()
    exact = results(copy.deepcopy(mine).double(), tokens)
    monkeypatch.setattr(Embedding, "stream", stream)
    with torch.autocast("cuda", torch.bfloat16):
        plain = results(mine, tokens)
    for name, found in fused(mine, tokens, monkeypatch).items():
        wanted = exact[name]
        far, usual = ((one.double() - wanted).norm() / wanted.norm() for one in (found, plain[name]))
        assert far <= 2 * usual + 0.01, name


@cuda
def test_the_same_bytes_every_time(monkeypatch):
    tokens, mine = torch.randint(0, WORDS, (3, 300), device="cuda"), model().cuda()
    first = fused(mine, tokens, monkeypatch)
    again = fused(mine, tokens, monkeypatch)
    # The table of the embedding is not of the blocks, and its gradient is added up in any order.
    assert all(torch.equal(found, again[name]) for name, found in first.items() if "embedding" not in name)


@cuda
@pytest.mark.parametrize(
    "changes", [{"dropout": 0.1}, {"norm": "post"}, {"norm_kind": "rms"}, {"gated": True}, {"layer_scale": 0.1}]
)
def test_other_blocks_are_left_as_they_are(changes, monkeypatch):
    from regard.layers import fused_stack

    other = model(**changes).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        x = torch.randn(2, 5, 128, device="cuda")
        assert not fused_stack.fits(other.trunk.blocks, other.trunk.norm, x)
        assert fused_stack.fits(model().cuda().trunk.blocks, model().trunk.norm, x)
