"""How a number was computed, in lines: each is a sum of products, and a function of the sum.

    value = then(Σ left · right + added)

All in float64, from the model's own float32 numbers. A line may use the values of the lines before it; the value of the
last line is the number.

Shapes: X terms · D width of a vector
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.explore.notation import NORMED

TERMS, FEW = 10, 3  # of a sum that are shown
Cell = tuple[str, int | None, int, int]  # the name of a matrix, head, row, column


@dataclass(frozen=True)
class Line:
    """One line: `symbol = formula`, the terms of its sum, and its value."""

    symbol: str  # of its value
    formula: str
    value: float
    left_X: Tensor | None = None
    right_X: Tensor | None = None  # None: the left numbers are only summed
    named: Callable[[int], str] = str
    heads: Sequence[str] = ()  # of the columns: names, `of_X`, `left_X`, `right_X`, products, as far as there are any
    of_X: Tensor | None = None  # the numbers that the left ones are a function of
    # The cells that the left numbers (or `of_X`) come from, whose own arithmetic can be asked for; None: in no matrix.
    at: Callable[[int], Cell | None] | None = None
    right_at: Callable[[int], Cell | None] | None = None  # of the right numbers, unless they are weights of the model
    added: Sequence[tuple[str, float]] = field(default=())
    numbers: str = ""  # the formula of the value with numbers in it
    where: str = ""  # what a letter of the formula is: "√d_k = √32 = 5.657"
    brief: bool = False  # show only FEW terms, as of a mean or a variance

    def to_json(self, most: int) -> dict[str, Any]:
        """With the largest terms, and the sum of the others."""
        content: dict[str, Any] = {"symbol": self.symbol, "formula": self.formula, "numbers": self.numbers}
        content |= {"sign": self.sign, "where": self.where, "heads": list(self.heads)}
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
    def sign(self) -> str:
        """Between symbol and formula: "←" where the formula changes the symbol itself, as in x ← x + p."""
        return "←" if re.search(rf"(?<!\w){re.escape(self.symbol)}(?![\w\u0302])", self.formula) else "="

    @property
    def products(self) -> Tensor:
        assert self.left_X is not None
        return self.left_X if self.right_X is None else self.left_X * self.right_X

    def _term(self, index: int, product_X: Tensor) -> dict[str, Any]:
        assert self.left_X is not None
        at, right_at = (cell_of(index) if cell_of else None for cell_of in (self.at, self.right_at))
        return {
            "name": self.named(index),
            "of": None if self.of_X is None else float(self.of_X[index]),
            "left": float(self.left_X[index]),
            "right": None if self.right_X is None else float(self.right_X[index]),
            "product": float(product_X[index]),
            "at": None if at is None else list(at),
            "right_at": None if right_at is None else list(right_at),
        }


Derivation = tuple[list[Line], str]  # the lines that lead to a number, and a note


def sum_line(
    symbol: str,
    formula: str,
    left_X: Tensor,
    right_X: Tensor | None = None,
    added: Sequence[tuple[str, float]] = (),
    named: Callable[[int], str] = lambda index: f"{index + 1:,}",
    at: Callable[[int], Cell | None] | None = None,
    then: Callable[[float], float] | None = None,
    numbers: Callable[[float], str] | None = None,
    right_at: Callable[[int], Cell | None] | None = None,
    brief: bool = False,
    heads: Sequence[str] = ("term", "value"),
    of_X: Tensor | None = None,
    where: str = "",
) -> Line:
    """A sum. `then`: a function of it, and `numbers`: the text of that function with the sum in it."""
    left_X = to_float64(left_X)
    right_X = None if right_X is None else to_float64(right_X)
    total = float((left_X if right_X is None else left_X * right_X).sum()) + sum(value for _, value in added)
    value = then(total) if then else total
    text = numbers(total) if numbers else ""
    return Line(
        symbol, formula, value, left_X, right_X, named, heads, of_X, at, right_at, tuple(added), text, where, brief
    )


def linear_line(
    symbol: str,
    formula: str,
    x_D: Tensor,
    weight_D: Tensor,
    bias: Tensor | None,
    at: Callable[[int], Cell | None] | None,
    scale: float | None = None,
    letters: tuple[str, str, str] = ("x", "W", "b"),
    **options: Any,
) -> Line:
    """One component of the output of a linear layer, which may be scaled: (Σ_i x_i W_i + b) · scale. `letters`: of the
    input, the matrix and the bias."""
    x, w, b = letters
    x_i = f"{x},i" if "_" in x and "[" not in x else f"{x}_i"
    w_i = f"{w},i" if "_" in w else f"{w}_i"
    formula = formula or f"Σ_i {x_i} {w_i}{'' if bias is None else f' + {b}'}"
    formula = formula if scale is None else f"({formula}) · λ"
    added = [(b, float(bias))] if bias is not None else []
    options = {"heads": ("i", x_i, w_i, "product")} | options
    if scale is not None:
        options |= {"then": lambda z: z * scale, "numbers": lambda z: f"{fmt(z)} · {fmt(scale)}"}
    return sum_line(symbol, formula, x_D, weight_D, added, at=at, **options)


def norm_lines(
    norm: nn.Module, x_D: Tensor, at: Callable[[int], Cell | None] | None, d: int, symbol: str = NORMED, x: str = "x"
) -> list[Line]:
    """Component d of a normalised vector. `x`: the letter of the vector before."""
    x_D = to_float64(x_D)
    layer: Any = norm
    gain = 1.0 if layer.weight is None else float(layer.weight[d])
    x_d = float(x_D[d])
    if not isinstance(norm, nn.LayerNorm):
        squares = _mean_line("mean of squares", f"Σ_i {x}_i²", x_D, x_D, at, f"{x}_i")
        size = (squares.value + float(layer.eps or 0)) ** 0.5
        value = Line(
            symbol,
            f"{x} / √(mean of squares + ε) · γ",
            x_d / size * gain,
            numbers=f"{fmt(x_d)} / {fmt(size)} · {fmt(gain)}",
        )
        return [squares, value]
    mean = _mean_line("mean", f"Σ_i {x}_i", x_D, None, at, f"{x}_i")
    centred_D = x_D - mean.value
    variance = _mean_line("variance", f"Σ_i ({x}_i − mean)²", centred_D, centred_D, at, f"{x}_i − mean")
    bias = 0.0 if layer.bias is None else float(layer.bias[d])
    size = (variance.value + norm.eps) ** 0.5
    value = Line(
        symbol,
        f"({x} − mean) / √(variance + ε) · γ + β",
        (x_d - mean.value) / size * gain + bias,
        numbers=f"({fmt(x_d)} − {fmt(mean.value)}) / {fmt(size)} · {fmt(gain)} + {fmt(bias)}",
    )
    return [mean, variance, value]


def _mean_line(
    symbol: str, formula: str, left_D: Tensor, right_D: Tensor | None, at: Callable[[int], Cell | None] | None, x_i: str
) -> Line:
    width = len(left_D)
    return sum_line(
        symbol,
        f"{formula} / {width:,}",
        left_D,
        right_D,
        at=at,
        then=lambda total: total / width,
        numbers=lambda total: f"{fmt(total)} / {width:,}",
        brief=True,
        heads=("i", x_i) if right_D is None else ("i", x_i, x_i, "square"),
    )


def softmax_lines(
    scores_X: Tensor,
    index: int,
    named: Callable[[int], str],
    at: Callable[[int], Cell],
    letters: tuple[str, str] = ("a", "s"),
) -> list[Line]:
    """One weight of a softmax. `letters`: of weights and scores."""
    a, s = letters
    scores_X = to_float64(scores_X)
    most = float(scores_X.max())
    visible = scores_X.isfinite().nonzero()[:, 0].tolist()  # for masked ones, the exponential is 0
    total = sum_line(
        "Σ",
        f"Σ_j exp({s}_j − max)",
        (scores_X[visible] - most).exp(),
        named=lambda term: named(visible[term]),
        at=lambda term: at(visible[term]),
        heads=("j", f"{s}_j", f"exp({s}_j − max)"),
        of_X=scores_X[visible],
        where=f"max = {fmt(most).strip('()')}",
    )
    score = float(scores_X[index])
    share = float(torch.exp(to_float64(scores_X[index]) - most)) / total.value
    numbers = f"exp({fmt(score)} − {fmt(most)}) / {fmt(total.value)}"
    return [total, Line(a, f"exp({s} − max) / Σ", share, numbers=numbers)]


def sigmoid_line(logits_X: Tensor, index: int, cell: Cell) -> Line:
    """A probability that depends only on its own logit."""
    return sum_line(
        "p",
        "1 / (1 + exp(−ℓ))",
        logits_X[[index]],
        named=lambda _: "ℓ",
        at=lambda _: cell,
        then=lambda logit: 1 / (1 + math.exp(-logit)),
        numbers=lambda logit: f"1 / (1 + {fmt_call('exp', -logit)})",
    )


def row_cells(name: str, row: int, head: int | None = None) -> Callable[[int], Cell]:
    """The cells of a row of a matrix, by column."""
    return lambda column: (name, head, row, column)


def to_float64(x: Tensor) -> Tensor:
    return x.detach().double().cpu()


def fmt(value: float) -> str:
    """A number as it is written in a formula: "1.5", "(−2)", "1,130"."""
    if value == float("-inf"):
        return "(−∞)"
    text = f"{value:,.0f}" if 999.95 <= abs(value) < 1e6 else f"{value:.4g}"
    text = text.replace("-", "−")
    return f"({text})" if text.startswith("−") else text


def fmt_call(function: str, value: float) -> str:
    """A function of a number: "tanh(−1.5)"."""
    return f"{function}({fmt(value).strip('()')})"


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None
