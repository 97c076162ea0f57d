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

# By passes: numbers of a row that are read at a time, and how many of them share a lane and are added up together.
LARGEST_BLOCK, INNER = {1: 4096, 2: 1024}, {1: 4, 2: 2}
LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)  # exponentials are quickest for powers of two


def softmax_gradient_(
    z_PCV: Tensor, labels_C: Tensor, words: int, ignore: int, smoothing: float, cap: float, consistency: float
) -> tuple[Tensor, Tensor]:
    """The summed loss of logits, which are overwritten with their gradient."""
    passes, positions, row = z_PCV.shape
    assert z_PCV.is_contiguous()
    losses_C = torch.empty(positions, dtype=torch.float32, device=z_PCV.device)
    inner = INNER[passes]
    block = min(LARGEST_BLOCK[passes], max(32 * inner, triton.next_power_of_2(row)))
    warps = max(1, block // inner // 256)  # so that a thread has all numbers of a lane, and reads eight neighbours
    options = {"CAPPED": cap > 0, "SMOOTHED": smoothing > 0, "BLOCK": block, "INNER": inner, "num_warps": warps}
    numbers = (words, row, ignore, smoothing, cap if cap else 1.0)
    if passes == 1:
        _one_pass[(positions,)](z_PCV, labels_C, losses_C, *numbers, **options)
    else:
        _two_passes[(positions,)](z_PCV[0], z_PCV[1], labels_C, losses_C, *numbers, consistency / 4, **options)
    return losses_C.sum(), z_PCV


# ---------------------------------------------------------------- one pass


@triton.jit
def _one_pass(
    z, labels, losses, words, row, ignore, smoothing, cap,
    CAPPED: tl.constexpr, SMOOTHED: tl.constexpr, BLOCK: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    position = tl.program_id(0).to(tl.int64)
    z += position * row
    label = tl.load(labels + position)
    whole = words // BLOCK * BLOCK  # what is left needs a mask
    if label == ignore:
        tl.store(losses + position, 0.0)
        _clear(z, row, BLOCK)
    else:
        LANES: tl.constexpr = BLOCK // INNER
        highest = tl.full([LANES], -1e30, tl.float32)
        total = tl.zeros([LANES], tl.float32)
        plain = tl.zeros([LANES], tl.float32)
        for start in range(0, whole, BLOCK):
            highest, total, plain = _seen(
                z, start, words, cap, highest, total, plain, False, CAPPED, SMOOTHED, BLOCK, INNER
            )
        if whole < words:
            highest, total, plain = _seen(
                z, whole, words, cap, highest, total, plain, True, CAPPED, SMOOTHED, BLOCK, INNER
            )
        normaliser, _ = _normaliser(highest, total)
        of_label = _bent(tl.load(z + label).to(tl.float32), cap, CAPPED)
        tl.store(losses + position, normaliser - (1 - smoothing) * of_label - smoothing * (tl.sum(plain) / words))
        tl.debug_barrier()  # nothing is overwritten before all have read it
        even = smoothing / words
        for start in range(0, whole, BLOCK):
            at = start + tl.arange(0, BLOCK)
            a = _bent(tl.load(z + at).to(tl.float32), cap, CAPPED)
            g = _slope(tl.exp2((a - normaliser) * LOG2E) - even, a, cap, CAPPED)
            tl.store(z + at, g.to(z.dtype.element_ty))
        for start in range(whole, row, BLOCK):
            at = start + tl.arange(0, BLOCK)
            a = _bent(tl.load(z + at, mask=at < words, other=0.0).to(tl.float32), cap, CAPPED)
            g = _slope(tl.exp2((a - normaliser) * LOG2E) - even, a, cap, CAPPED)
            tl.store(z + at, tl.where(at < words, g, 0.0).to(z.dtype.element_ty), mask=at < row)
        tl.debug_barrier()
        g = tl.exp2((of_label - normaliser) * LOG2E) - even - (1 - smoothing)
        tl.store(z + label, _slope(g, of_label, cap, CAPPED).to(z.dtype.element_ty))


@triton.jit
def _seen(
    z, start, words, cap, highest, total, plain,
    LAST: tl.constexpr, CAPPED: tl.constexpr, SMOOTHED: tl.constexpr, BLOCK: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """What every lane has seen, with some logits more: the highest, Σ e^(z − highest), and their plain sum."""
    LANES: tl.constexpr = BLOCK // INNER
    at = start + tl.arange(0, INNER)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    if LAST:
        a = _bent(tl.load(z + at, mask=at < words, other=0.0).to(tl.float32), cap, CAPPED)
        if SMOOTHED:
            plain += tl.sum(tl.where(at < words, a, 0.0), 0)
        a = tl.where(at < words, a, -float("inf"))
    else:
        a = _bent(tl.load(z + at).to(tl.float32), cap, CAPPED)
        if SMOOTHED:
            plain += tl.sum(a, 0)
    higher = tl.maximum(highest, tl.max(a, 0))
    total = total * tl.exp2((highest - higher) * LOG2E) + tl.sum(tl.exp2((a - higher[None, :]) * LOG2E), 0)
    return higher, total, plain


# ---------------------------------------------------------------- two passes, for R-Drop


@triton.jit
def _two_passes(
    z, y, labels, losses, words, row, ignore, smoothing, cap, weight,
    CAPPED: tl.constexpr, SMOOTHED: tl.constexpr, BLOCK: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """`weight`: of KL(p‖q) + KL(q‖p)."""
    position = tl.program_id(0).to(tl.int64)
    z += position * row
    y += position * row
    label = tl.load(labels + position)
    whole = words // BLOCK * BLOCK
    if label == ignore:
        tl.store(losses + position, 0.0)
        _clear(z, row, BLOCK)
        _clear(y, row, BLOCK)
    else:
        LANES: tl.constexpr = BLOCK // INNER
        high_p, high_q = tl.full([LANES], -1e30, tl.float32), tl.full([LANES], -1e30, tl.float32)
        total_p, total_q = tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.float32)
        apart_p, apart_q = tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.float32)
        plain = tl.zeros([LANES], tl.float32)
        for start in range(0, whole, BLOCK):
            high_p, total_p, apart_p, high_q, total_q, apart_q, plain = _both_seen(
                z, y, start, words, cap, high_p, total_p, apart_p, high_q, total_q, apart_q, plain,
                False, CAPPED, SMOOTHED, BLOCK, INNER,
            )  # fmt: skip
        if whole < words:
            high_p, total_p, apart_p, high_q, total_q, apart_q, plain = _both_seen(
                z, y, whole, words, cap, high_p, total_p, apart_p, high_q, total_q, apart_q, plain,
                True, CAPPED, SMOOTHED, BLOCK, INNER,
            )  # fmt: skip
        normaliser_p, share_p = _normaliser(high_p, total_p)
        normaliser_q, share_q = _normaliser(high_q, total_q)
        kl_pq = tl.sum(apart_p * share_p) - normaliser_p + normaliser_q
        kl_qp = -tl.sum(apart_q * share_q) - normaliser_q + normaliser_p
        a_label = _bent(tl.load(z + label).to(tl.float32), cap, CAPPED)
        b_label = _bent(tl.load(y + label).to(tl.float32), cap, CAPPED)
        surprise = normaliser_p + normaliser_q - (1 - smoothing) * (a_label + b_label)
        surprise -= smoothing * (tl.sum(plain) / words)
        tl.store(losses + position, 0.5 * surprise + weight * (kl_pq + kl_qp))
        tl.debug_barrier()  # nothing is overwritten before all have read it
        even = 0.5 * smoothing / words
        for start in range(0, row, BLOCK):
            at = start + tl.arange(0, BLOCK)
            a = _bent(tl.load(z + at, mask=at < words, other=0.0).to(tl.float32), cap, CAPPED)
            b = _bent(tl.load(y + at, mask=at < words, other=0.0).to(tl.float32), cap, CAPPED)
            of_p, of_q = _of_both(a, b, normaliser_p, normaliser_q, kl_pq, kl_qp, weight)
            of_p = tl.where(at < words, _slope(of_p - even, a, cap, CAPPED), 0.0)
            of_q = tl.where(at < words, _slope(of_q - even, b, cap, CAPPED), 0.0)
            tl.store(z + at, of_p.to(z.dtype.element_ty), mask=at < row)
            tl.store(y + at, of_q.to(y.dtype.element_ty), mask=at < row)
        tl.debug_barrier()
        of_p, of_q = _of_both(a_label, b_label, normaliser_p, normaliser_q, kl_pq, kl_qp, weight)
        less = even + 0.5 * (1 - smoothing)
        tl.store(z + label, _slope(of_p - less, a_label, cap, CAPPED).to(z.dtype.element_ty))
        tl.store(y + label, _slope(of_q - less, b_label, cap, CAPPED).to(y.dtype.element_ty))


@triton.jit
def _both_seen(
    z, y, start, words, cap, high_p, total_p, apart_p, high_q, total_q, apart_q, plain,
    LAST: tl.constexpr, CAPPED: tl.constexpr, SMOOTHED: tl.constexpr, BLOCK: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """As `_seen`, of both; and Σ e^(z − highest) (z − y) of each."""
    LANES: tl.constexpr = BLOCK // INNER
    at = start + tl.arange(0, INNER)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    if LAST:
        a = _bent(tl.load(z + at, mask=at < words, other=0.0).to(tl.float32), cap, CAPPED)
        b = _bent(tl.load(y + at, mask=at < words, other=0.0).to(tl.float32), cap, CAPPED)
    else:
        a = _bent(tl.load(z + at).to(tl.float32), cap, CAPPED)
        b = _bent(tl.load(y + at).to(tl.float32), cap, CAPPED)
    difference = a - b
    if LAST:
        if SMOOTHED:
            plain += tl.sum(tl.where(at < words, a + b, 0.0), 0)
        a, b = tl.where(at < words, a, -float("inf")), tl.where(at < words, b, -float("inf"))
    elif SMOOTHED:
        plain += tl.sum(a + b, 0)
    higher_p, higher_q = tl.maximum(high_p, tl.max(a, 0)), tl.maximum(high_q, tl.max(b, 0))
    shrunk_p, shrunk_q = tl.exp2((high_p - higher_p) * LOG2E), tl.exp2((high_q - higher_q) * LOG2E)
    p, q = tl.exp2((a - higher_p[None, :]) * LOG2E), tl.exp2((b - higher_q[None, :]) * LOG2E)
    total_p, apart_p = total_p * shrunk_p + tl.sum(p, 0), apart_p * shrunk_p + tl.sum(p * difference, 0)
    total_q, apart_q = total_q * shrunk_q + tl.sum(q, 0), apart_q * shrunk_q + tl.sum(q * difference, 0)
    return higher_p, total_p, apart_p, higher_q, total_q, apart_q, plain


@triton.jit
def _of_both(a, b, normaliser_p, normaliser_q, kl_pq, kl_qp, weight):
    """∂/∂z of both passes, but for what is subtracted for the label and the smoothing."""
    log_p, log_q = a - normaliser_p, b - normaliser_q
    p, q = tl.exp2(log_p * LOG2E), tl.exp2(log_q * LOG2E)
    delta = log_p - log_q
    of_p = 0.5 * p + weight * (p * (delta - kl_pq) + p - q)
    of_q = 0.5 * q + weight * (q * (-delta - kl_qp) + q - p)
    return of_p, of_q


# ---------------------------------------------------------------- both


@triton.jit
def _bent(a, cap, CAPPED: tl.constexpr):
    """Logits, which a cap bends."""
    if CAPPED:
        a = cap * (2 / (1 + tl.exp(-2 * a / cap)) - 1)
    return a


@triton.jit
def _slope(g, a, cap, CAPPED: tl.constexpr):
    """The gradient of logits before they were bent to a."""
    if CAPPED:
        g *= 1 - (a / cap) * (a / cap)
    return g


@triton.jit
def _normaliser(highest, total):
    """log Σ e^z from what every lane has seen; and what to multiply sums of a lane with to get shares of p."""
    top = tl.max(highest)
    shrunk = tl.exp(highest - top)
    everything = tl.sum(total * shrunk)
    return top + tl.log(everything), shrunk / everything


@triton.jit
def _clear(z, row, BLOCK: tl.constexpr):
    for start in range(0, row, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(z + at, tl.zeros([BLOCK], tl.float32).to(z.dtype.element_ty), mask=at < row)
