"""How a number came about, in lines: each a sum of products, and what was done with the sum.

    value = then(Σ left · right + added)

All in float64, from the model's own float32 numbers. What a line gives may be used by the next one; the last line
gives the number.

Shapes: X terms · D width of a vector
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

TERMS, FEW = 10, 3  # that are shown of a sum
Cell = tuple[str, int | None, int, int]  # of a matrix: its name, the head, row and column


@dataclass(frozen=True)
class Line:
    symbol: str  # what it gives
    formula: str
    value: float
    left_X: Tensor | None = None
    right_X: Tensor | None = None  # None: the left numbers are summed as they are
    named: Callable[[int], str] = str
    # Where the left numbers come from, to be asked about in turn; None: of one that stands nowhere.
    at: Callable[[int], Cell | None] | None = None
    right_at: Callable[[int], Cell | None] | None = None  # and the right ones, where they are no weights of the model
    added: Sequence[tuple[str, float]] = field(default=())
    numbers: str = ""  # the formula with its numbers: what was done with the sum
    brief: bool = False  # of a mean or a variance, a few terms say enough

    def to_json(self, most: int) -> dict[str, Any]:
        """With the largest terms; of the rest, how many they are, and their sum."""
        content: dict[str, Any] = {"symbol": self.symbol, "formula": self.formula, "numbers": self.numbers}
        content |= {"terms": [], "count": 0, "rest": 0.0, "sum": None, "value": _finite(self.value)}
        content["added"] = [{"name": name, "value": value} for name, value in self.added]
        if self.left_X is None:
            return content
        product_X = self.products
        most = min(most, FEW) if self.brief and most <= TERMS else most
        order = product_X.abs().argsort(descending=True, stable=True)
        content["count"] = len(product_X)
        content["terms"] = [self._term(int(index), product_X) for index in order[:most]]
        content["rest"] = float(product_X[order[most:]].sum())
        content["sum"] = float(product_X.sum()) + sum(value for _, value in self.added)
        return content

    @property
    def products(self) -> Tensor:
        assert self.left_X is not None
        return self.left_X if self.right_X is None else self.left_X * self.right_X

    def _term(self, index: int, product_X: Tensor) -> dict[str, Any]:
        assert self.left_X is not None
        at, right_at = (where(index) if where else None for where in (self.at, self.right_at))
        return {
            "name": self.named(index),
            "left": float(self.left_X[index]),
            "right": None if self.right_X is None else float(self.right_X[index]),
            "product": float(product_X[index]),
            "at": None if at is None else list(at),
            "right_at": None if right_at is None else list(right_at),
        }


def summed(
    symbol: str,
    formula: str,
    left_X: Tensor,
    right_X: Tensor | None = None,
    added: Sequence[tuple[str, float]] = (),
    named: Callable[[int], str] = lambda index: str(index + 1),
    at: Callable[[int], Cell | None] | None = None,
    then: Callable[[float], float] | None = None,
    numbers: Callable[[float], str] | None = None,
    right_at: Callable[[int], Cell | None] | None = None,
    brief: bool = False,
) -> Line:
    """A sum; `then`: what is done with it, and `numbers` says so with the sum in it."""
    left_X = exact(left_X)
    right_X = None if right_X is None else exact(right_X)
    total = float((left_X if right_X is None else left_X * right_X).sum()) + sum(value for _, value in added)
    value = then(total) if then else total
    said = numbers(total) if numbers else ""
    return Line(symbol, formula, value, left_X, right_X, named, at, right_at, tuple(added), said, brief)


def product(
    symbol: str,
    formula: str,
    x_D: Tensor,
    weight_D: Tensor,
    bias: Tensor | None,
    at: Callable[[int], Cell | None] | None,
    scale: float | None = None,
    **options: Any,
) -> Line:
    """One number of a linear layer: Σ x_d W_d + b, which may be scaled by another."""
    added = [("b", float(bias))] if bias is not None else []
    if scale is not None:
        options |= {"then": lambda z: z * scale, "numbers": lambda z: f"{short(z)} · {short(scale)}"}
    return summed(symbol, formula, x_D, weight_D, added, at=at, **options)


def normalised(norm: nn.Module, x_D: Tensor, at: Callable[[int], Cell | None] | None, d: int) -> list[Line]:
    """Number d of a vector that is normalised."""
    x_D = exact(x_D)
    width = len(x_D)
    named: Any = norm
    gain = 1.0 if named.weight is None else float(named.weight[d])
    x = float(x_D[d])
    if not isinstance(norm, nn.LayerNorm):
        squares = summed(
            "mean of squares",
            "Σ x_d² / D",
            x_D,
            x_D,
            at=at,
            then=lambda total: total / width,
            numbers=lambda total: f"{short(total)} / {width}",
            brief=True,
        )
        size = (squares.value + float(named.eps or 0)) ** 0.5
        value = Line(
            "y",
            "x / √(mean of squares + ε) · g",
            x / size * gain,
            numbers=f"{short(x)} / {short(size)} · {short(gain)}",
        )
        return [squares, value]
    mean = summed(
        "mean",
        "Σ x_d / D",
        x_D,
        at=at,
        then=lambda total: total / width,
        numbers=lambda total: f"{short(total)} / {width}",
        brief=True,
    )
    away_D = x_D - mean.value
    variance = summed(
        "variance",
        "Σ (x_d − mean)² / D",
        away_D,
        away_D,
        at=at,
        then=lambda total: total / width,
        numbers=lambda total: f"{short(total)} / {width}",
        brief=True,
    )
    bias = 0.0 if named.bias is None else float(named.bias[d])
    size = (variance.value + norm.eps) ** 0.5
    value = Line(
        "y",
        "(x − mean) / √(variance + ε) · g + b",
        (x - mean.value) / size * gain + bias,
        numbers=f"({short(x)} − {short(mean.value)}) / {short(size)} · {short(gain)} + {short(bias)}",
    )
    return [mean, variance, value]


def softmax(
    scores_X: Tensor,
    index: int,
    named: Callable[[int], str],
    at: Callable[[int], Cell],
    symbols: tuple[str, str] = ("a", "s"),
) -> list[Line]:
    """One weight of a softmax: the share of one exponential in the sum of all. `symbols`: of weights and scores."""
    weight, of = symbols
    scores_X = exact(scores_X)
    most = float(scores_X.max())
    seen = scores_X.isfinite().nonzero()[:, 0].tolist()  # of those that may not be seen, the exponential is 0
    total = summed(
        "Σ",
        f"Σ_j exp({of}_j − max)",
        (scores_X[seen] - most).exp(),
        named=lambda place: named(seen[place]),
        at=lambda place: at(seen[place]),
    )
    score = float(scores_X[index])
    share = float(torch.exp(exact(scores_X[index]) - most)) / total.value
    said = f"exp({short(score)} − {short(most)}) / {short(total.value)}"
    return [total, Line(weight, f"exp({of} − max) / Σ", share, numbers=said)]


def sigmoid(logits_X: Tensor, index: int, cell: Cell) -> Line:
    """A probability that is of its logit alone."""
    return summed(
        "p",
        "1 / (1 + exp(−z))",
        logits_X[[index]],
        named=lambda _: "z",
        at=lambda _: cell,
        then=lambda z: 1 / (1 + math.exp(-z)),
        numbers=lambda z: f"1 / (1 + {called('exp', -z)})",
    )


def exact(x: Tensor) -> Tensor:
    return x.detach().double().cpu()


def short(value: float) -> str:
    """As it stands in a formula."""
    if value == float("-inf"):
        return "(−∞)"
    text = f"{value:.4g}".replace("-", "−")
    return f"({text})" if text.startswith("−") else text


def called(function: str, value: float) -> str:
    """A function of a number: "tanh(−1.5)"."""
    return f"{function}({short(value).strip('()')})"


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None
