"""The loss of a head, some rows at a time: the logits of a whole batch never stand in memory.

    z = x Wᵀ + b            L: the loss of `loss.py`, smoothing and R-Drop included; g = ∂L/∂z
    ∂L/∂x = g W             ∂L/∂W = gᵀ x             ∂L/∂b = Σ g

The gradient of some logits needs nothing but these logits. So all gradients are computed with the loss itself, before
the next rows, and no product is done twice; the backward pass only scales them.

With p = softmax(z), one-hot labels y and smoothing ε over the W words,

    g = p − (1 − ε) y − ε / W

and for the two passes p, q of R-Drop, with δ = log p − log q, the divergence D = KL(p‖q) + KL(q‖p) adds

    ∂D/∂z₁ = p (δ − KL(p‖q)) + p − q         ∂D/∂z₂ = q (−δ − KL(q‖p)) + q − p

Shapes: P passes (1, or 2 for R-Drop) · N positions · C positions at a time, R = P·C rows · D model width
        · W words in the vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.layers.head import Head
from regard.training.loss import AnyBatch, loss_of_logits

# Bytes of logits at a time. On a GPU at most this, and a small share of its memory; on a CPU what its caches hold.
AT_A_TIME = {"cuda": 1 << 32, "cpu": 1 << 22}
SHARE_OF_MEMORY = 32
SMALL = 1 << 18  # logits of a batch that a CPU computes whole: more operations would take longer than they save
FEWEST_ROWS = 256  # at a time: with fewer, the gradient of W is passed over too often
ALIGNED = 64  # on a GPU, products are fast for a vocabulary of a multiple of this


def head_loss(
    hidden_of: Callable[[AnyBatch], Tensor], head: Head, batch: AnyBatch, smoothing: float, consistency: float
) -> Tensor:
    """`training_loss` of what the head makes of `hidden_of` a batch, [..., D]."""
    passes = 2 if consistency else 1
    hidden = hidden_of(batch.twice() if consistency else batch)
    if not hidden.is_cuda and len(head.weight) * hidden[..., 0].numel() <= SMALL:
        return loss_of_logits(head(hidden), batch, smoothing, consistency)
    x_PND = hidden.reshape(passes, -1, hidden.shape[-1])
    of = _Loss(batch.nothing, smoothing, head.cap, consistency)
    loss: Tensor = _HeadLoss.apply(x_PND, head.weight, head.bias, batch.labels.flatten(), of, torch.is_grad_enabled())
    return loss


def logits_loss(
    logits_of: Callable[[AnyBatch], Tensor], batch: AnyBatch, smoothing: float, consistency: float
) -> Tensor:
    """`training_loss` of logits that do not come from a head alone: all are in memory, but nothing beside them is."""
    logits = logits_of(batch.twice() if consistency else batch)
    z_PNW = logits.reshape(2 if consistency else 1, -1, logits.shape[-1])
    loss: Tensor = _LogitsLoss.apply(z_PNW, batch.labels.flatten(), _Loss(batch.nothing, smoothing, 0.0, consistency))
    return loss


@dataclass(frozen=True)
class _Loss:
    """Which loss, of rows of logits."""

    ignore: int
    smoothing: float
    cap: float
    consistency: float

    def of(self, z_PCV: Tensor, labels_C: Tensor, words: int) -> tuple[Tensor, Tensor]:
        """The loss, summed, and the gradient of these logits, which may take their place in memory.

        V: the vocabulary's `words` and what they are filled up with, which has no influence.
        """
        if fused := _fused(z_PCV):
            return fused.softmax_gradient_(
                z_PCV, labels_C, words, self.ignore, self.smoothing, self.cap, self.consistency
            )
        loss, g_PCW = self.written_out(z_PCV[..., :words], labels_C)
        return loss, F.pad(g_PCW, (0, z_PCV.shape[-1] - words)).to(z_PCV.dtype)

    def written_out(self, z_PCW: Tensor, labels_C: Tensor) -> tuple[Tensor, Tensor]:
        """The same in torch's own operations."""
        passes, _, words = z_PCW.shape
        ignored_C = labels_C == self.ignore
        if self.cap:
            bent_PCW = torch.tanh(z_PCW / self.cap)
            z_PCW = self.cap * bent_PCW
        log_p_PCW = z_PCW.log_softmax(-1, dtype=_exact(z_PCW.dtype))
        labels_PC1 = labels_C.masked_fill(ignored_C, 0)[None, :, None].expand(passes, -1, 1)
        likely_PC = (1 - self.smoothing) * log_p_PCW.gather(-1, labels_PC1)[..., 0]
        if self.smoothing:
            likely_PC = likely_PC + self.smoothing * log_p_PCW.mean(-1)
        loss = -likely_PC.masked_fill(ignored_C, 0).sum() / passes
        if passes == 1:
            g_PCW = log_p_PCW.exp_()
        else:
            apart_PCW = log_p_PCW - log_p_PCW.flip(0)
            p_PCW = log_p_PCW.exp_()
            divergence_PC1 = (p_PCW * apart_PCW).sum(-1, keepdim=True)
            weight = self.consistency / 4
            loss = loss + weight * divergence_PC1[..., 0].masked_fill(ignored_C, 0).sum()
            g_PCW = 0.5 * p_PCW + weight * (p_PCW * (apart_PCW - divergence_PC1) + p_PCW - p_PCW.flip(0))
        if self.smoothing:
            g_PCW -= self.smoothing / words / passes
        g_PCW.scatter_(-1, labels_PC1, g_PCW.gather(-1, labels_PC1) - (1 - self.smoothing) / passes)
        if self.cap:
            g_PCW *= 1 - bent_PCW.square()
        if g_PCW.is_cuda:
            g_PCW.masked_fill_(ignored_C[:, None], 0)
        else:
            g_PCW.index_fill_(1, ignored_C.nonzero()[:, 0], 0)  # only these rows are touched
        return loss, g_PCW


class _LogitsLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z_PNW: Tensor, labels_N: Tensor, loss: _Loss) -> Tensor:
        copy_PNW = z_PNW.detach().clone(memory_format=torch.contiguous_format)
        total, g_PNW = loss.of(copy_PNW, labels_N, z_PNW.shape[-1])
        ctx.save_for_backward(g_PNW)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.saved_tensors[0] * gradient, None, None


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_PND: Tensor, weight_WD: Tensor, bias_W: Tensor | None, labels_N: Tensor, loss: _Loss, learns: bool
    ) -> Tensor:
        """`learns`: gradients will be asked for."""
        device, words = x_PND.device, len(weight_WD)
        dtype = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else weight_WD.dtype
        ctx.type_of_x = x_PND.dtype
        with torch.autocast(device.type, enabled=False):
            filled = -words % ALIGNED if device.type == "cuda" else 0
            weight_VD = F.pad(weight_WD.detach().to(dtype), (0, 0, 0, filled))
            bias_V = F.pad(bias_W.detach().to(dtype), (0, filled)) if bias_W is not None else None
            x_PND = x_PND.detach().to(dtype)
            total = torch.zeros((), dtype=_exact(dtype), device=device)
            gradients = _Gradients(x_PND, weight_VD, *(learns and needed for needed in ctx.needs_input_grad[:3]))
            for rows in _chunks(x_PND, weight_VD):
                x_RD = x_PND[:, rows].flatten(0, 1)
                z_RV = F.linear(x_RD, weight_VD, bias_V)
                part, g_PCV = loss.of(z_RV.unflatten(0, (len(x_PND), -1)), labels_N[rows], words)
                total += part
                gradients.add(rows, x_RD, g_PCV.flatten(0, 1))
        ctx.save_for_backward(*gradients.found(words))
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x_PND, weight_WD, bias_W = ctx.saved_tensors
        x_PND = x_PND.to(ctx.type_of_x) * gradient if x_PND is not None else None
        weight_WD, bias_W = (found * gradient if found is not None else None for found in (weight_WD, bias_W))
        return x_PND, weight_WD, bias_W, None, None, None


class _Gradients:
    """Of x, W and b, added up over chunks; those of the weights in full precision."""

    def __init__(self, x_PND: Tensor, weight_VD: Tensor, of_x: bool, of_weight: bool, of_bias: bool):
        self.weight_VD, self.of_weight, self.of_bias = weight_VD, of_weight, of_bias
        self.x_PND = torch.empty_like(x_PND) if of_x else None
        self.for_weight_VD: Tensor | None = None
        self.for_bias_V: Tensor | None = None

    def add(self, rows: slice, x_RD: Tensor, g_RV: Tensor) -> None:
        """What these rows contribute."""
        if self.x_PND is not None:
            of_rows = self.x_PND[:, rows]
            of_rows.copy_((g_RV @ self.weight_VD).view_as(of_rows))
        if self.of_weight:
            self.for_weight_VD = _plus_product(self.for_weight_VD, g_RV.T, x_RD)
        if self.of_bias:
            sum_V = g_RV.sum(0, dtype=_exact(g_RV.dtype))
            self.for_bias_V = sum_V if self.for_bias_V is None else self.for_bias_V + sum_V

    def found(self, words: int) -> tuple[Tensor | None, ...]:
        weights = (found[:words] if found is not None else None for found in (self.for_weight_VD, self.for_bias_V))
        return (self.x_PND, *weights)


def _plus_product(total: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """total + a b, in place."""
    if total is None:
        return (a @ b).to(_exact(a.dtype))
    return total.addmm_(a, b) if total.dtype == a.dtype else total.add_(a @ b)


def _chunks(x_PND: Tensor, weight_VD: Tensor) -> Iterator[slice]:
    """Positions whose logits are computed together: all of about the same number."""
    passes, positions, _ = x_PND.shape
    bytes_of_one = passes * len(weight_VD) * weight_VD.element_size()
    at_a_time = AT_A_TIME.get(x_PND.device.type, AT_A_TIME["cpu"])
    if x_PND.is_cuda:
        at_a_time = min(at_a_time, torch.cuda.get_device_properties(x_PND.device).total_memory // SHARE_OF_MEMORY)
    most = max(FEWEST_ROWS, at_a_time // bytes_of_one)
    count = max(1, -(-positions // most))
    size = -(-positions // count)
    size += -size % FEWEST_ROWS  # products are fastest for round numbers
    return (slice(first, min(first + size, positions)) for first in range(0, positions, size))


def _exact(dtype: torch.dtype) -> torch.dtype:
    """What sums are kept in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _fused(z: Tensor) -> Any:
    """The kernels for a GPU, where they can be used."""
    if not z.is_cuda or z.dtype == torch.float64:
        return None
    try:
        from regard.training import fused_softmax
    except ImportError:  # without Triton
        return None
    return fused_softmax
