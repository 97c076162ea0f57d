"""Copying: the formula word by word and position by position, its gradient, its masks, and sources that come and go."""

from __future__ import annotations

import math

import pytest
import torch

from regard.layers.copying import Copying, CopySource, _Added, first_places
from regard.training.replayed import WARM_UP, Replayed

B, T, S, D, W = 2, 4, 7, 6, 9
# Two sentences share the first row, and a word that is in both.
WORDS = torch.tensor([[5, 3, 5, 5, 8, 5, 3], [4, 4, 7, 6, 7, 0, 0]])


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(2)


def seen() -> torch.Tensor:
    """Half the positions of row 0 see its first four words, the others the rest; row 1 sees all but its filling."""
    seen_BTS = torch.zeros(B, T, S, dtype=torch.bool)
    seen_BTS[0, :2, :4] = seen_BTS[0, 2:, 4:] = seen_BTS[1, :, :5] = True
    return seen_BTS


def example(dtype: torch.dtype = torch.float64) -> tuple[Copying, torch.Tensor, torch.Tensor, CopySource]:
    copying = Copying(D).to(dtype)
    source = copying.source(2 * torch.randn(B, S, D, dtype=dtype), WORDS, seen())
    return copying, 3 * torch.randn(B, T, W, dtype=dtype), 2 * torch.randn(B, T, D, dtype=dtype), source


def by_hand(copying: Copying, logits: torch.Tensor, x: torch.Tensor, source: CopySource) -> torch.Tensor:
    """P(w) ∝ exp(z_w) + Σ_{j: x_j = w} exp(c_j), one number after the other."""
    found = torch.zeros_like(logits)
    for b in range(B):
        for t in range(T):
            query = copying.to_query(x[b, t])
            for w in range(W):
                total = math.exp(logits[b, t, w])
                for j in range(S):
                    if source.seen_BTS[b, t, j] and WORDS[b, j] == w:
                        total += math.exp(float(query @ source.keys_BSD[b, j]) / math.sqrt(D))
                found[b, t, w] = math.log(total)
    return found


@torch.no_grad()
def test_it_is_the_formula():
    copying, logits, x, source = example()
    found = copying(logits, x, source)
    torch.testing.assert_close(found, by_hand(copying, logits, x, source), atol=1e-10, rtol=0)
    assert (found[0, :2, 8] == logits[0, :2, 8]).all(), "of another sentence of the row"
    assert (found[0, 2:, 8] > logits[0, 2:, 8]).all()
    torch.testing.assert_close(copying.float()(logits.float(), x.float(), as_float(source)), found.float())


def as_float(source: CopySource) -> CopySource:
    return CopySource(source.keys_BSD.float(), source.words_BS, source.first_BS, source.seen_BTS)


def test_its_gradient_is_that_of_the_formula():
    scores = torch.randn(B, T, S, dtype=torch.float64).masked_fill(~seen(), -torch.inf).requires_grad_()
    logits = torch.randn(B, T, W, dtype=torch.float64, requires_grad=True)
    one_hot_BSW = torch.nn.functional.one_hot(WORDS, W).double()
    weights = torch.randn(B, T, W, dtype=torch.float64)
    plain = (logits.exp() + scores.exp() @ one_hot_BSW).log()
    found = _Added.apply(logits, scores, WORDS, first_places(WORDS))
    for mine, wanted in zip(
        torch.autograd.grad((weights * found.sin()).sum(), [logits, scores]),
        torch.autograd.grad((weights * plain.sin()).sum(), [logits, scores]),
        strict=True,
    ):
        torch.testing.assert_close(mine, wanted, atol=1e-9, rtol=0)


def test_all_its_weights_learn():
    copying, logits, x, _ = example()
    memory, x = torch.randn(B, S, D, dtype=torch.float64, requires_grad=True), x.requires_grad_()

    def loss(x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        return copying(logits, x, copying.source(memory, WORDS, seen())).log_softmax(-1)[..., 5].sum()

    assert torch.autograd.gradcheck(loss, (x, memory), atol=1e-4)
    loss(x, memory).backward()
    assert all(weight.grad.abs().max() > 1e-3 for weight in copying.parameters())


@pytest.mark.parametrize("of_words", [-300.0, 0.0, 300.0])
@pytest.mark.parametrize("of_copies", [-300.0, 0.0, 300.0])
def test_numbers_of_any_size_are_exact_in_float32(of_words, of_copies):
    logits = (of_words + 5 * torch.randn(B, T, W)).requires_grad_()
    scores = (of_copies + 5 * torch.randn(B, T, S)).masked_fill(~seen(), -torch.inf).requires_grad_()
    found = _Added.apply(logits, scores, WORDS, first_places(WORDS))
    copies = scores[..., None].masked_fill(torch.nn.functional.one_hot(WORDS, W)[:, None] == 0, -torch.inf)
    wanted = torch.cat([logits[..., None, :], copies], 2).double().logsumexp(2)
    torch.testing.assert_close(found.double(), wanted, atol=1e-4, rtol=0)
    found.log_softmax(-1).sum().backward()
    assert logits.grad.isfinite().all() and scores.grad.isfinite().all()


@torch.no_grad()
def test_where_nothing_is_seen_nothing_changes():
    copying, logits, x, source = example(torch.float32)
    source.seen_BTS = torch.zeros(B, 1, S, dtype=torch.bool)
    assert torch.equal(copying(logits, x, source), logits)


@torch.no_grad()
def test_of_a_source_that_has_left_its_slot_nothing_is_copied():
    copying, logits, x, source = example(torch.float32)
    slots = CopySource.empty(3, S + 2, source.keys_BSD)
    slots.enter(torch.tensor([2, 0]), CopySource(source.keys_BSD, WORDS, source.first_BS, torch.ones(B, 1, S) > 0))
    shorter = copying.source(torch.randn(1, 3, D), torch.tensor([[8, 3, 8]]), torch.ones(1, 1, 3) > 0)
    slots.enter(torch.tensor([2]), shorter)
    found = copying(torch.cat([logits, logits[:1]]), torch.cat([x, x[:1]]), slots)
    torch.testing.assert_close(found[2:], copying(logits[:1], x[:1], shorter))
    unmoved = CopySource(source.keys_BSD[1:], WORDS[1:], source.first_BS[1:], torch.ones(1, 1, S) > 0)
    torch.testing.assert_close(found[:1], copying(logits[:1], x[:1], unmoved))
    assert torch.equal(found[1], logits[1]), "an empty slot"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gpu_replays_it_and_finds_the_same_bytes_every_time(dtype):
    words = torch.randint(0, 6, (3, 300))  # many positions of the same word
    logits, scores = torch.randn(3, 20, 40), 3 * torch.randn(3, 20, 300)
    inputs = [x.to("cuda", dtype if x is logits else torch.float32).requires_grad_() for x in (logits, scores)]
    on_gpu = words.cuda()

    def run() -> list[torch.Tensor]:
        found = _Added.apply(*inputs, on_gpu, first_places(on_gpu))
        return [found.detach(), *torch.autograd.grad(found.float().log_softmax(-1)[..., 2].sum(), inputs)]

    torch.use_deterministic_algorithms(True)
    try:
        replayed = Replayed(run)
        rounds = [[x.clone() for x in replayed()] for _ in range(WARM_UP + 3)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert replayed.graph is not None
    assert all(torch.equal(x, y) for later in rounds for x, y in zip(later, rounds[0], strict=True))
    exact = [x.detach().double().cpu().requires_grad_() for x in inputs]
    found = _Added.apply(*exact, words, first_places(words))
    wanted = [found.detach(), *torch.autograd.grad(found.log_softmax(-1)[..., 2].sum(), exact)]
    for mine, other in zip(rounds[0], wanted, strict=True):
        torch.testing.assert_close(mine.double().cpu(), other, atol=1e-4 if dtype == torch.float32 else 0.05, rtol=0.02)
