"""Readout: from the output of the last block to logits, and the same for each term of a sum (logit attribution).

    h = steps(pool(norm(x)))        logits = h Wᵀ + b

Every step is linear once the divisors of its norms and its gates are held fixed at their actual values. So if
x = Σ terms, a logit is exactly the sum of what each term adds to it. The last term collects the constants: the biases.

Shapes: B rows · X terms, the last for constants · T positions · A answers · D width · W words or classes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.norm import RMSNorm

Pool = Literal["position", "first", "mean", "both"]


def through_norm(terms_XTD: Tensor, norm: nn.Module, x_TD: Tensor) -> Tensor:
    """The terms after a norm of their sum x. Each is divided by the standard deviation (or RMS) of x, not its own."""
    if isinstance(norm, nn.Identity):
        return terms_XTD
    if isinstance(norm, RMSNorm):
        return terms_XTD * (x_TD.square().mean(-1, keepdim=True) + float(norm.eps or 0)).rsqrt() * norm.weight
    assert isinstance(norm, nn.LayerNorm)
    std_T1 = (x_TD.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    centred_XTD = terms_XTD - terms_XTD.mean(-1, keepdim=True)
    return with_constant(centred_XTD / std_T1 * norm.weight, norm.bias)


def through_linear(terms_XTD: Tensor, layer: nn.Linear) -> Tensor:
    return with_constant(terms_XTD @ layer.weight.T, layer.bias)


def with_constant(terms_XTD: Tensor, bias_D: Tensor | None) -> Tensor:
    """Add a bias, which belongs to no part, to the last term."""
    if bias_D is None:
        return terms_XTD
    return torch.cat([terms_XTD[:-1], terms_XTD[-1:] + bias_D])


class Step:
    """A module between the stack and the head."""

    def __call__(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def carry(self, terms_XTD: Tensor, x_TD: Tensor) -> Tensor:
        """The terms of x after this step."""
        raise NotImplementedError


@dataclass(frozen=True)
class Normed(Step):
    norm: nn.Module

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(x)
        return y

    def carry(self, terms_XTD: Tensor, x_TD: Tensor) -> Tensor:
        return through_norm(terms_XTD, self.norm, x_TD)


@dataclass(frozen=True)
class Mapped(Step):
    layer: nn.Linear

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y

    def carry(self, terms_XTD: Tensor, x_TD: Tensor) -> Tensor:
        return through_linear(terms_XTD, self.layer)


class Gelu(Step):
    """gelu(x) = x · Φ(x): linear in x with the gates Φ(x) held fixed."""

    def __call__(self, x: Tensor) -> Tensor:
        return F.gelu(x)

    def carry(self, terms_XTD: Tensor, x_TD: Tensor) -> Tensor:
        return terms_XTD * torch.special.ndtr(x_TD)


@dataclass(frozen=True)
class Readout:
    norm: nn.Module  # after the last block
    head: Any  # a Linear: its rows are the vectors of words or classes
    pool: Pool = "position"  # each answer is read at its own position, at the first, from the mean, or from both
    before: int = 0  # positions that the mean excludes
    positions: Sequence[int] = ()  # of the answers, for pool "position"
    steps: Sequence[Step] = ()
    finish: Callable[[Tensor, Tensor], Tensor] | None = None  # (logits, h) → final logits, such as with copies added

    def __call__(self, x_BTD: Tensor) -> Tensor:
        """The logits of all answers, from the output of a block: [B, A, W]."""
        h_BAD = self.hidden(x_BTD)
        logits_BAW: Tensor = self.head(h_BAD)
        return logits_BAW if self.finish is None else self.finish(logits_BAW, h_BAD)

    def before_finish(self, x_BTD: Tensor) -> Tensor:
        """The logits of the head alone, to which the parts sum."""
        logits_BAW: Tensor = self.head(self.hidden(x_BTD))
        return logits_BAW

    def hidden(self, x_BTD: Tensor) -> Tensor:
        """The input of the head: [B, A, D]."""
        h_BAD = self.pooled(self.norm(x_BTD))
        for step in self.steps:
            h_BAD = step(h_BAD)
        return h_BAD

    def pooled(self, x_BTD: Tensor) -> Tensor:
        """[B, A, D]; for pool "both", the first position and the mean are concatenated: [B, A, 2D]."""
        if self.pool == "position":
            return x_BTD[:, list(self.positions)]
        first_B1D, mean_B1D = x_BTD[:, :1], x_BTD[:, self.before :].mean(1, keepdim=True)
        if self.pool == "both":
            return torch.cat([first_B1D, mean_B1D], dim=-1)
        return first_B1D if self.pool == "first" else mean_B1D

    def parts(self, terms_XTD: Tensor, x_TD: Tensor, answer: int, token: int) -> Tensor:
        """What each term of x, the output of the last block, adds to the logit of a token before `finish`: [X]."""
        terms_XTD = self.pooled(through_norm(terms_XTD, self.norm, x_TD))
        h_AD = self.pooled(self.norm(x_TD[None]))[0]
        for step in self.steps:
            terms_XTD, h_AD = step.carry(terms_XTD, h_AD), step(h_AD)
        row_D, bias = self.head.weight[token], self.head.bias
        parts_X = terms_XTD[:, answer] @ row_D
        if bias is not None:
            parts_X = torch.cat([parts_X[:-1], parts_X[-1:] + bias[token]])
        cap = getattr(self.head, "cap", 0.0)
        if cap:  # c · tanh(z / c): every part is scaled by the same factor
            total = parts_X.sum()
            parts_X = parts_X * (cap * torch.tanh(total / cap) / total)
        return parts_X


@dataclass(frozen=True)
class SpanReadout(Readout):
    """The start and end of a span: two answers, whose classes are the positions.

    logits_at = norm(x)_t · w_a          a: start, end
    """

    def __call__(self, x_BTD: Tensor) -> Tensor:
        return self.before_finish(x_BTD)

    def before_finish(self, x_BTD: Tensor) -> Tensor:
        logits_BT2: Tensor = self.head(self.norm(x_BTD))
        return logits_BT2.transpose(1, 2)

    def pooled(self, x_BTD: Tensor) -> Tensor:
        return x_BTD

    def parts(self, terms_XTD: Tensor, x_TD: Tensor, answer: int, token: int) -> Tensor:
        terms_XD = through_norm(terms_XTD, self.norm, x_TD)[:, token]
        bias = None if self.head.bias is None else self.head.bias[answer]
        return with_constant(terms_XD @ self.head.weight[answer], bias)
