"""The loss of rows of logits on a GPU, and their gradient in their place, in one kernel that passes over memory twice.

A row is read once for its normaliser, log Σ e^z, as a running maximum and a sum relative to it, and a second time to
be overwritten with its gradient. With two passes of R-Drop, a row of each is read at the same time, and the divergence
comes from sums of the same reading:

    KL(p‖q) = Σ p (z₁ − z₂) − log Σ e^z₁ + log Σ e^z₂

The formulas of the gradients are those of `head_loss.py`.

Shapes: P passes · C positions · V numbers of a row, of which the first are the vocabulary's
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LARGEST_BLOCK = 8192  # numbers of a row that are read at a time


def softmax_gradient_(
    z_PCV: Tensor, labels_C: Tensor, words: int, ignore: int, smoothing: float, cap: float, consistency: float
) -> tuple[Tensor, Tensor]:
    """The summed loss of logits, which are overwritten with their gradient."""
    passes, positions, row = z_PCV.shape
    assert z_PCV.is_contiguous()
    losses_C = torch.empty(positions, dtype=torch.float32, device=z_PCV.device)
    block = min(LARGEST_BLOCK // passes, triton.next_power_of_2(row))
    options = {"CAPPED": cap > 0, "BLOCK": block, "num_warps": 8 if block >= 2048 else 4}
    numbers = (words, row, ignore, smoothing, cap if cap else 1.0)
    if passes == 1:
        _one_pass[(positions,)](z_PCV, labels_C, losses_C, *numbers, **options)
    else:
        _two_passes[(positions,)](z_PCV[0], z_PCV[1], labels_C, losses_C, *numbers, consistency / 4, **options)
    return losses_C.sum(), z_PCV


@triton.jit
def _one_pass(z, labels, losses, words, row, ignore, smoothing, cap, CAPPED: tl.constexpr, BLOCK: tl.constexpr):
    position = tl.program_id(0).to(tl.int64)
    z += position * row
    label = tl.load(labels + position)
    if label == ignore:
        tl.store(losses + position, 0.0)
        _clear(z, row, BLOCK)
    else:
        # Four numbers of every lane at a time: its sum is rescaled only once for them.
        LANES: tl.constexpr = BLOCK // 4
        highest = tl.full([LANES], -1e30, tl.float32)
        total = tl.zeros([LANES], tl.float32)
        plain = tl.zeros([LANES], tl.float32)
        for start in range(0, words, BLOCK):
            at = start + tl.arange(0, 4)[:, None] * LANES + tl.arange(0, LANES)[None, :]
            a = _logits(z, at, words, row, cap, CAPPED)
            highest, shrunk = _raised(highest, tl.max(a, 0))
            total = total * shrunk + tl.sum(tl.exp(a - highest[None, :]), 0)
            plain += tl.sum(tl.where(at < words, a, 0.0), 0)
        normaliser, _ = _normaliser(highest, total)
        of_label = _logits(z, label, words, row, cap, CAPPED)
        mean = tl.sum(plain) / words
        tl.store(losses + position, normaliser - (1 - smoothing) * of_label - smoothing * mean)
        for start in range(0, row, BLOCK):
            at = start + tl.arange(0, BLOCK)
            a = _logits(z, at, words, row, cap, CAPPED)
            g = tl.exp(a - normaliser) - smoothing / words - tl.where(at == label, 1 - smoothing, 0.0)
            _store(z, at, g, a, words, row, cap, CAPPED)


@triton.jit
def _two_passes(
    z, y, labels, losses, words, row, ignore, smoothing, cap, weight, CAPPED: tl.constexpr, BLOCK: tl.constexpr
):
    """`weight`: of KL(p‖q) + KL(q‖p)."""
    position = tl.program_id(0).to(tl.int64)
    z += position * row
    y += position * row
    label = tl.load(labels + position)
    if label == ignore:
        tl.store(losses + position, 0.0)
        _clear(z, row, BLOCK)
        _clear(y, row, BLOCK)
    else:
        highest_p = tl.full([BLOCK], -1e30, tl.float32)
        highest_q = tl.full([BLOCK], -1e30, tl.float32)
        total_p, total_q = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
        apart_p, apart_q = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
        plain = tl.zeros([BLOCK], tl.float32)
        for start in range(0, words, BLOCK):
            at = start + tl.arange(0, BLOCK)
            inside = at < words
            a, b = _logits(z, at, words, row, cap, CAPPED), _logits(y, at, words, row, cap, CAPPED)
            difference = tl.where(inside, a - b, 0.0)
            highest_p, shrunk_p = _raised(highest_p, a)
            highest_q, shrunk_q = _raised(highest_q, b)
            p, q = tl.exp(a - highest_p), tl.exp(b - highest_q)
            total_p = total_p * shrunk_p + p
            total_q = total_q * shrunk_q + q
            apart_p = apart_p * shrunk_p + p * difference
            apart_q = apart_q * shrunk_q + q * difference
            plain += tl.where(inside, a + b, 0.0)
        normaliser_p, share_p = _normaliser(highest_p, total_p)
        normaliser_q, share_q = _normaliser(highest_q, total_q)
        kl_pq = tl.sum(apart_p * share_p) - normaliser_p + normaliser_q
        kl_qp = -tl.sum(apart_q * share_q) - normaliser_q + normaliser_p
        of_label = _logits(z, label, words, row, cap, CAPPED) + _logits(y, label, words, row, cap, CAPPED)
        mean = tl.sum(plain) / words
        surprise = normaliser_p + normaliser_q - (1 - smoothing) * of_label - smoothing * mean
        tl.store(losses + position, 0.5 * surprise + weight * (kl_pq + kl_qp))
        for start in range(0, row, BLOCK):
            at = start + tl.arange(0, BLOCK)
            a, b = _logits(z, at, words, row, cap, CAPPED), _logits(y, at, words, row, cap, CAPPED)
            p, q = tl.exp(a - normaliser_p), tl.exp(b - normaliser_q)
            delta = tl.where(at < words, (a - normaliser_p) - (b - normaliser_q), 0.0)
            wanted = smoothing / words + tl.where(at == label, 1 - smoothing, 0.0)
            of_p = 0.5 * (p - wanted) + weight * (p * (delta - kl_pq) + p - q)
            of_q = 0.5 * (q - wanted) + weight * (q * (-delta - kl_qp) + q - p)
            _store(z, at, of_p, a, words, row, cap, CAPPED)
            _store(y, at, of_q, b, words, row, cap, CAPPED)


@triton.jit
def _logits(z, at, words, row, cap, CAPPED: tl.constexpr):
    """In float32, bent where they are capped; beyond the vocabulary minus infinity.

    The whole row is read, whose length is a round number: so a thread reads several numbers at once.
    """
    a = tl.load(z + at, mask=at < row, other=0.0).to(tl.float32)
    if CAPPED:
        a = cap * (2 / (1 + tl.exp(-2 * a / cap)) - 1)
    return tl.where(at < words, a, -float("inf"))


@triton.jit
def _raised(highest, a):
    """The running maximum with these logits, and by what a sum relative to the one before is to be multiplied."""
    higher = tl.maximum(highest, a)
    return higher, tl.exp(highest - higher)


@triton.jit
def _normaliser(highest, total):
    """log Σ e^z from what every lane has seen; and what to multiply sums of a lane with to get shares of p."""
    top = tl.max(highest)
    shrunk = tl.exp(highest - top)
    everything = tl.sum(total * shrunk)
    return top + tl.log(everything), shrunk / everything


@triton.jit
def _store(z, at, g, a, words, row, cap, CAPPED: tl.constexpr):
    if CAPPED:
        g *= 1 - (a / cap) * (a / cap)
    tl.store(z + at, tl.where(at < words, g, 0.0).to(z.dtype.element_ty), mask=at < row)


@triton.jit
def _clear(z, row, BLOCK: tl.constexpr):
    for start in range(0, row, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(z + at, tl.zeros([BLOCK], tl.float32).to(z.dtype.element_ty), mask=at < row)
