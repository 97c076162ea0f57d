"""The loss of a head in chunks, its gradients computed with it, against autograd through whole logits in float64."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regard.data.batch import Batch
from regard.layers.head import Head
from regard.training import head_loss as module
from regard.training.head_loss import _Loss, head_loss, logits_loss
from regard.training.loss import training_loss

WORDS, WIDTH = 11, 4
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # the kernels on a CPU, slowly
gpu = pytest.mark.skipif(not torch.cuda.is_available() and not INTERPRETED, reason="needs a CUDA device")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
losses = pytest.mark.parametrize(
    ("smoothing", "cap", "consistency"),
    [(0.0, 0.0, 0.0), (0.1, 0.0, 0.0), (0.1, 2.0, 0.0), (0.0, 0.0, 3.0), (0.1, 2.0, 3.0), (0.2, 0.0, 1.0)],
)


class OtherPadding(Batch):
    nothing = -1


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four positions of one pass at a time, in float32."""
    monkeypatch.setattr(module, "AT_A_TIME", {"cpu": 4 * WORDS * 4, "cuda": 4 * 64 * 4})
    monkeypatch.setattr(module, "FEWEST_ROWS", 2)
    monkeypatch.setattr(module, "SMALL", 0)


def example(consistency: float, bias: bool = True, cap: float = 0.0, kind: type[Batch] = Batch) -> tuple[Any, ...]:
    """A head, the vectors it reads (another dropout in the second pass of R-Drop), and a batch of 3 rows of 7."""
    torch.manual_seed(1)
    labels = torch.randint(1, WORDS, (3, 7))
    labels[1, 3:] = labels[2, 0] = kind.nothing
    head = Head(WIDTH, WORDS, bias=bias, cap=cap).double()
    hidden = (2 * torch.randn(6 if consistency else 3, 7, WIDTH)).double().requires_grad_()
    return head, hidden, kind(labels)


def found_by(loss: torch.Tensor, head: Head, hidden: torch.Tensor) -> list[torch.Tensor]:
    weights = [weight for weight in head.parameters() if weight.requires_grad]
    return [loss.detach(), *torch.autograd.grad(0.3 * loss, [hidden, *weights])]


@losses
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [Batch, OtherPadding])
def test_loss_and_gradients_are_those_of_whole_logits(smoothing, cap, consistency, bias, kind):
    head, hidden, batch = example(consistency, bias, cap, kind)
    whole = training_loss(lambda _: head(hidden), batch, smoothing, consistency)
    chunked = head_loss(lambda _: hidden, head, batch, smoothing, consistency)
    for mine, wanted in zip(found_by(chunked, head, hidden), found_by(whole, head, hidden), strict=True):
        torch.testing.assert_close(mine, wanted.double(), atol=1e-6, rtol=1e-6)


@losses
def test_few_logits_on_a_cpu_are_computed_whole(smoothing, cap, consistency, monkeypatch):
    head, hidden, batch = example(consistency, cap=cap)
    monkeypatch.setattr(module, "SMALL", WORDS * hidden[..., 0].numel())
    whole = training_loss(lambda _: head(hidden), batch, smoothing, consistency)
    found = head_loss(lambda _: hidden, head, batch, smoothing, consistency)
    assert all(map(torch.equal, found_by(found, head, hidden), found_by(whole, head, hidden)))


@losses
def test_logits_that_come_from_elsewhere_have_the_same_loss_and_gradient(smoothing, cap, consistency):
    head, hidden, batch = example(consistency)

    def logits_of(_: Batch) -> torch.Tensor:
        return head(hidden).sin()

    whole = training_loss(logits_of, batch, smoothing, consistency)
    found = logits_loss(logits_of, batch, smoothing, consistency)
    for mine, wanted in zip(found_by(found, head, hidden), found_by(whole, head, hidden), strict=True):
        torch.testing.assert_close(mine, wanted.double(), atol=1e-6, rtol=1e-6)


def test_gradients_in_float64_are_exact_to_its_precision():
    """`training_loss` above rounds to float32; here nothing does."""
    head, hidden, batch = example(0.0, bias=False)
    found = found_by(head_loss(lambda _: hidden, head, batch, 0.1, 0.0), head, hidden)
    log_p = head(hidden).log_softmax(-1)[batch.labels != 0]
    labels = batch.labels[batch.labels != 0]
    exact = -(0.9 * log_p.gather(1, labels[:, None]).sum() + 0.1 * log_p.mean(-1).sum())
    torch.testing.assert_close(found, found_by(exact, head, hidden), atol=1e-13, rtol=1e-13)


@losses
def test_logits_of_all_rows_never_stand_in_memory(smoothing, cap, consistency):
    head, hidden, batch = example(consistency, cap=cap)
    head, hidden = head.float(), hidden.detach().float().requires_grad_()
    with largest_logits() as rows:
        head_loss(lambda _: hidden, head, batch, smoothing, consistency).backward()
    assert 0 < max(rows) <= 4 < hidden[..., 0].numel()


class _Shapes(TorchDispatchMode):
    def __init__(self, rows: list[int]):
        super().__init__()
        self.rows = rows

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.dim() > 1 and out.shape[-1] == WORDS:
            self.rows.append(out.numel() // WORDS)
        return out


@contextlib.contextmanager
def largest_logits() -> Iterator[list[int]]:
    """How many rows every tensor over the vocabulary has that is made meanwhile."""
    rows: list[int] = []
    with _Shapes(rows):
        yield rows


def test_padding_has_no_influence_even_where_it_is_not_finite():
    head, hidden, batch = example(0.0)
    expected = found_by(head_loss(lambda _: hidden, head, batch, 0.1, 0.0), head, hidden)
    broken = hidden.detach().clone()
    broken[1, 3:] = torch.inf
    broken.requires_grad_()
    loss = head_loss(lambda _: broken, head, batch, 0.1, 0.0)
    assert loss == expected[0]
    (gradient,) = torch.autograd.grad(0.3 * loss, broken)
    assert not gradient[1, 3:].any()
    assert torch.equal(gradient[0], expected[1][0])


def test_only_what_learns_gets_a_gradient():
    head, hidden, batch = example(0.0)
    head.weight.requires_grad_(False)
    loss, of_hidden, of_bias = found_by(head_loss(lambda _: hidden, head, batch, 0.0, 0.0), head, hidden)
    head.weight.requires_grad_(True)
    expected = found_by(head_loss(lambda _: hidden, head, batch, 0.0, 0.0), head, hidden)
    assert all(map(torch.equal, (loss, of_hidden, of_bias), (*expected[:2], expected[3])))
    with torch.no_grad():
        alone = head_loss(lambda _: hidden, head, batch, 0.0, 0.0)
    assert torch.equal(alone, expected[0])
    assert not alone.requires_grad


@losses
def test_under_autocast_products_are_in_half_precision_and_sums_are_not(smoothing, cap, consistency):
    head, hidden, batch = example(consistency, cap=cap)
    exact = found_by(head_loss(lambda _: hidden, head, batch, smoothing, consistency), head, hidden)
    head, hidden = head.float(), hidden.detach().float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        loss = head_loss(lambda _: hidden, head, batch, smoothing, consistency)
    found = found_by(loss, head, hidden)
    assert [tensor.dtype for tensor in found] == [torch.float32] * 4
    for mine, wanted in zip(found, exact, strict=True):
        difference = (mine - wanted).norm() / wanted.norm()
        assert 1e-6 < difference < 0.02  # bfloat16 has eight bits


def test_the_vocabulary_is_filled_up_without_influence():
    """On a GPU rows are longer than the vocabulary."""
    torch.manual_seed(3)
    logits, labels = torch.randn(2, 5, WORDS), torch.randint(1, WORDS, (5,))
    of = _Loss(0, 0.1, 0.0, 2.0)
    filled = torch.cat([logits, torch.full((2, 5, 64 - WORDS), 100.0)], dim=-1)
    loss, gradient = of.of(filled, labels, WORDS)
    expected, expected_gradient = of.written_out(logits, labels)
    assert torch.equal(loss, expected)
    assert torch.equal(gradient[..., :WORDS], expected_gradient)
    assert not gradient[..., WORDS:].any()


# ---------------------------------------------------------------- on a GPU


@gpu
@losses
@pytest.mark.parametrize("words", [50, 1000, 10_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_computes_what_is_written_out(words, dtype, smoothing, cap, consistency):
    from regard.training.fused_softmax import softmax_gradient_

    torch.manual_seed(words)
    passes, row = (2 if consistency else 1), -(-words // 64) * 64
    logits = (3 * torch.randn(passes, 40, row)).to(dtype).to(DEVICE)
    labels = torch.randint(1, words, (40,)).to(DEVICE)
    labels[::7] = 0
    of = _Loss(0, smoothing, cap, consistency)
    expected, expected_gradient = of.written_out(logits[..., :words].double(), labels)
    loss, gradient = softmax_gradient_(logits.clone(), labels, words, 0, smoothing, cap, consistency)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-3)
    assert not gradient[..., words:].any()
    rounding = 2e-5 if dtype == torch.float32 else 5e-3
    difference = gradient[..., :words].double() - expected_gradient
    assert difference.norm() <= rounding * expected_gradient.norm()


@cuda
@losses
def test_on_a_gpu_loss_and_gradients_are_the_same_and_the_same_bytes_every_time(
    smoothing, cap, consistency, monkeypatch
):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    head, hidden, batch = example(consistency, cap=cap)
    exact = found_by(head_loss(lambda _: hidden, head, batch, smoothing, consistency), head, hidden)
    head, hidden = head.float().cuda(), hidden.detach().float().cuda().requires_grad_()
    batch = batch.to(torch.device("cuda"))
    torch.use_deterministic_algorithms(True, warn_only=False)
    try:
        twice = [
            found_by(head_loss(lambda _: hidden, head, batch, smoothing, consistency), head, hidden) for _ in range(2)
        ]
    finally:
        torch.use_deterministic_algorithms(False)
    for mine, again, wanted in zip(*twice, exact, strict=True):
        assert torch.equal(mine, again)
        assert (mine.cpu() - wanted).norm() <= 3e-3 * wanted.norm()  # products in tf32
