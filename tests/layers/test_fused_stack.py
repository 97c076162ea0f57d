"""Blocks in fused kernels against the same blocks in float64.

The kernels run on a GPU, or with TRITON_INTERPRET=1, slowly, on a CPU.
"""

import copy
import os

import pytest
import torch
from torch.nn import functional as F

from regard.layers.embedding import Embedding
from regard.models import stack as module
from regard.models.causal import Causal
from regard.models.seq2seq import Seq2Seq
from regard.settings import CausalModel, TranslationModel

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
gpu = pytest.mark.skipif(not torch.cuda.is_available() and not INTERPRETED, reason="needs a CUDA device")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.float16  # of the two types the one that tells more
WORDS = 40
SETTINGS = {
    "layers": 2, "width": 128, "heads": 2, "feedforward": 256, "norm": "pre", "dropout": 0.0, "activation": "gelu",
    "scale_embeddings": False, "norm_epsilon": 1e-3,
}  # fmt: skip


def filled(made: torch.nn.Module) -> torch.nn.Module:
    """In biases and norms too."""
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made.train()


def model(**changes: object) -> Causal:
    torch.manual_seed(1)
    settings = SETTINGS | {"positions": "learned", "initialisation": "gpt2"} | changes
    return filled(Causal(CausalModel(**settings), WORDS))


def translator(**changes: object) -> Seq2Seq:
    torch.manual_seed(1)
    return filled(Seq2Seq(TranslationModel(**SETTINGS | changes), WORDS, WORDS))


def results(of: Causal | Seq2Seq, *inputs: torch.Tensor, mean: bool = False) -> dict[str, torch.Tensor]:
    """What is given to the head, and the gradients of all weights."""
    of.zero_grad()
    out = of.hidden(*inputs)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out.device)
    ((out.double() * weights).sum() / (out[..., 0].numel() if mean else 1)).backward()
    found = {name: weight.grad for name, weight in of.named_parameters() if weight.grad is not None}
    return {"out": out.detach(), **found}


def fused(of: Causal | Seq2Seq, monkeypatch: pytest.MonkeyPatch, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    from regard.layers.fused import stack

    used = []

    def kernels(blocks, norm, x):
        assert stack.fits(blocks, norm, x), "the fused kernels were not taken"
        used.append(1)
        return stack

    with monkeypatch.context() as patch, torch.autocast(DEVICE, HALF):
        patch.setattr(module, "_fused", kernels)
        found = results(of, *inputs)
    assert used
    return found


def compare(mine, monkeypatch: pytest.MonkeyPatch, *inputs: torch.Tensor, stream: torch.dtype | None = None) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "FUSED", False)
        exact = results(copy.deepcopy(mine).double(), *inputs)
        monkeypatch.setattr(Embedding, "stream", stream)
        with torch.autocast(DEVICE, HALF):
            plain = results(mine, *inputs)
    found = fused(mine, monkeypatch, *inputs)
    assert found.keys() == exact.keys()
    for name, one in found.items():
        wanted = exact[name]
        far, usual = ((one.double() - wanted).norm() / wanted.norm() for one in (one, plain[name]))
        assert far <= 2 * usual + 0.01, name


def test_on_a_cpu_nothing_is_fused(monkeypatch):
    tokens, plain = torch.randint(0, WORDS, (2, 9)), model()
    expected = results(plain, tokens)
    monkeypatch.setattr(module, "FUSED", True)
    assert all(torch.equal(found, expected[name]) for name, found in results(plain, tokens).items())


@gpu
@pytest.mark.parametrize("stream", [None, HALF])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "post", "activation": "relu"},
        {"activation": "gelu-tanh", "bias": False, "feedforward_bias": False},
        {"activation": "relu", "positions": "rotary", "query_key_norm": True},
        {"activation": "relu2", "norm_kind": "rms", "query_key_norm": True, "key_value_heads": 1},
        {"activation": "silu", "positions": "rotary", "norm": "post", "norm_kind": "rms"},
        {"width": 384, "heads": 3, "feedforward": 640, "positions": "sinusoidal"},
    ],
)
def test_outputs_and_gradients_are_those_of_the_blocks(changes, stream, monkeypatch):
    tokens = torch.randint(0, WORDS, (3, 37)).to(DEVICE)
    compare(model(**changes).to(DEVICE), monkeypatch, tokens, stream=stream)


@gpu
@pytest.mark.parametrize("changes", [{}, {"norm": "post"}, {"query_key_norm": True, "norm_kind": "rms"}])
def test_translators_too(changes, monkeypatch):
    def side(length: int) -> list[torch.Tensor]:
        tokens = torch.randint(0, WORDS, (3, length)).to(DEVICE)
        positions = torch.arange(length, device=DEVICE).expand(3, -1)
        segments = (1 + 2 * positions // length).masked_fill(positions == length - 1, 0)  # two texts, and nothing
        return [tokens, segments, positions]

    compare(translator(**changes).to(DEVICE), monkeypatch, *side(19), *side(23))


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9),
    reason="needs a CUDA device with products in eight bits",
)
@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "post", "activation": "relu"},
        {"activation": "relu2", "norm_kind": "rms", "query_key_norm": True, "key_value_heads": 1},
        {"positions": "rotary", "bias": False, "feedforward_bias": False},
        {"cross": True},
    ],
)
def test_products_in_eight_bits_are_as_far_off_as_these_are_coarser(changes, dropout):
    if "cross" in changes:
        mine = translator(dropout=dropout).to(DEVICE)
        places = torch.arange(48, device=DEVICE).expand(3, -1)
        side = [torch.randint(0, WORDS, (3, 48), device=DEVICE), 1 + places // 20, places]
        inputs = [*side, *side]
    else:
        mine, inputs = model(**changes, dropout=dropout).to(DEVICE), [torch.randint(0, WORDS, (3, 48)).to(DEVICE)]
    found = []
    for eight in (False, True, True):
        torch.manual_seed(3)
        with torch.autocast(DEVICE, torch.bfloat16), module.eight_bits(eight):
            found.append(results(mine, *inputs, mean=True))
    usual, eight, again = found
    far = {name: ((eight[name] - one).double().norm() / one.double().norm()).item() for name, one in usual.items()}
    assert far["out"] > 0.02, "products were not in eight bits"
    # A number rounded by at most 1/16 or 1/8 is off by that / √3 in the mean. Every product adds two such operands on
    # the way there and two on the way back; norms and softmax may make twice of it.
    products = 14 if "cross" in changes else 8
    assert max(far.values()) < 2 * (products * (3 / 16**2 + 1 / 8**2) / 3) ** 0.5
    assert all(torch.equal(eight[name], again[name]) for name in far if "embedding" not in name)


@gpu
def test_the_same_bytes_every_time(monkeypatch):
    tokens = torch.randint(0, WORDS, (3, 300 if DEVICE == "cuda" else 20), device=DEVICE)
    mine = model(dropout=0.2, feedforward_dropout=0.3, stochastic_depth=0.4).to(DEVICE)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(fused(mine, monkeypatch, tokens))
    # The table of the embedding is not of the blocks, and its gradient is added up in any order.
    names = [name for name in found[0] if "embedding" not in name]
    assert all(torch.equal(found[0][name], found[1][name]) for name in names)
    assert not torch.equal(found[0]["out"], found[2]["out"])


@gpu
@pytest.mark.parametrize("norm", [torch.nn.LayerNorm, "rms"])
@pytest.mark.parametrize("post", [False, True])
def test_what_dropout_leaves_out_has_no_gradient(norm, post):
    from regard.layers.fused.product import Product
    from regard.layers.fused.residual import Dropped, add_norm
    from regard.layers.norm import RMSNorm

    width, p, survival = 96, 0.25, 0.5
    norm = (RMSNorm if norm == "rms" else norm)(width, eps=1e-3).to(DEVICE)
    x = torch.zeros(8, 50, width, device=DEVICE, requires_grad=True)
    y = torch.ones(8, 50, width, device=DEVICE, dtype=HALF).requires_grad_()
    bias = torch.ones(width, device=DEVICE, requires_grad=True)
    dropped = Dropped(p, torch.tensor(survival, device=DEVICE), torch.tensor([5], device=DEVICE))
    with torch.autocast(DEVICE, HALF):
        plain = add_norm(x, Product(y), bias, norm, dropped)[0].detach()
        s, (n, _) = add_norm(x, Product(y), bias, norm, dropped, post)
    mask = plain / 2  # what 1 + 1 was multiplied with
    rows = mask.flatten(1).max(1).values
    assert sorted(set(rows.tolist())) == [0.0, pytest.approx(1 / (1 - p) / survival)], "rows are left out as a whole"
    kept = mask[rows > 0] > 0
    assert abs(kept.float().mean() - (1 - p)) < 4 * (p * (1 - p) / kept.numel()) ** 0.5
    assert abs(torch.corrcoef(torch.stack([kept[..., :-1].flatten(), kept[..., 1:].flatten()]).float())[0, 1]) < 0.03
    # Against autograd, with the same numbers left out.
    weights = torch.randn(2, *x.shape, device=DEVICE)
    found = torch.autograd.grad((s * weights[0] + n.float() * weights[1]).sum(), (x, y, bias, norm.weight))
    again = x + mask * (y.float() + bias)
    of_norm = norm(again)
    wanted = ((of_norm if post else again) * weights[0] + of_norm * weights[1]).sum()
    for one, other in zip(found, torch.autograd.grad(wanted, (x, y, bias, norm.weight)), strict=True):
        assert (one.float() - other.float()).norm() < 0.01 * other.float().norm()


@gpu
def test_dropout_inside_the_feed_forward():
    from regard.layers.fused.activation import activate
    from regard.layers.fused.product import Product

    h = torch.randn(300, 256, device=DEVICE, dtype=HALF).requires_grad_()
    bias = torch.randn(256, device=DEVICE, requires_grad=True)
    seed = torch.tensor([3], device=DEVICE)
    a = activate(Product(h), bias, "gelu", 0.5, seed).half
    mask = torch.where(a == 0, 0.0, 2.0)
    assert abs((a == 0).float().mean() - 0.5) < 0.02
    wanted = F.gelu(h.float() + bias) * mask
    torch.testing.assert_close(a.float(), wanted, atol=1e-3, rtol=0.01)
    weights = torch.randn_like(wanted)
    found = torch.autograd.grad((a.float() * weights).sum(), (h, bias))
    for one, other in zip(found, torch.autograd.grad((wanted * weights).sum(), (h, bias)), strict=True):
        assert (one.float() - other.float()).norm() < 0.01 * other.float().norm()


@gpu
@pytest.mark.parametrize("changes", [{"gated": True}, {"layer_scale": 0.1}, {"mixer": "hyena"}, {"feedforward": 200}])
def test_other_blocks_are_left_as_they_are(changes):
    from regard.layers.fused import stack

    assert CausalModel(**SETTINGS).fused and not CausalModel(**SETTINGS | changes).fused, "settings say the same"
    other, usual = model(**changes).to(DEVICE).trunk, model().to(DEVICE).trunk
    with torch.autocast(DEVICE, HALF):
        x = torch.randn(2, 5, 128, device=DEVICE)
        assert not stack.fits(other.blocks, other.norm, x)
        assert stack.fits(usual.blocks, usual.norm, x)
        with torch.no_grad():
            assert not stack.fits(usual.blocks, usual.norm, x)
    assert not stack.fits(usual.blocks, usual.norm, x), "in full precision nothing is fused"
