"""Matrices by name: an owner, which is a stack, a part or nothing, and a quantity.

    STACK.content, .position, .constant, .residual       the summands of what the first block reads; the residual stream
    PART.read, .wrote                                    the input and the output of a part
    PART.queries … .heads                                of every attention, one matrix per head
    logits                                               of every answer
    …                                                    and the stages between them (stages.py)

Shapes: T positions · D model width · H heads
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import UsageError, did_you_mean
from regard.explore.arrays import LEVELS, Kind, Matrix, max_pooled
from regard.explore.session import TracedInput
from regard.explore.stages import STAGES, stack_of

MOST = 512  # rows and columns of a matrix that are sent at once
OF_ATTENTION = ("queries", "keys", "values", "scores", "weights", "heads")
OF_ANSWERS = ("logits", "probabilities")


def matrix(
    traced: TracedInput,
    name: str,
    head: int | None = None,
    rows: tuple[int, int] | None = None,
    columns: tuple[int, int] | None = None,
    most: int = MOST,
    compact: bool = False,
) -> Matrix:
    """A matrix such as "encoder.0.mixer.weights": of one head or of all, in full or a window of it.

    Scores and weights larger than `most` are max-pooled; `notes` give the step. A single row or column is exact.
    `compact`: with fewer digits.
    """
    quantity = name.rpartition(".")[2]
    values = tensor(traced, name).detach().float().cpu().numpy()
    if head is not None:
        if values.ndim < 3 or not 0 <= head < len(values):
            axis = "head" if quantity in OF_ATTENTION else "layer"
            raise UsageError(f"'{name}' has no {axis} {head + 1}.", "There are fewer.", "Choose another.")
        values = values[head]
    window = _window(values.shape, rows, columns)
    values = values[(..., *window)]
    step = (1, 1)
    if quantity in ("weights", "scores") and most and min(values.shape[-2:]) > 1:
        values, *step = max_pooled(values, max(8, min(most, MOST)))  # type: ignore[assignment]
    kind: Kind = "half" if compact and _fits_half(values) else "long"
    if quantity in ("weights", "probabilities"):
        kind = "half" if _underflows(values) else "unit"
    notes = {"name": name, "step": list(step), "from": [side.start for side in window]}
    return Matrix(values, kind, notes)


def tensor(traced: TracedInput, name: str) -> Tensor:
    """A whole matrix by its name; heads or layers, if it has them, come first."""
    owner, _, quantity = name.rpartition(".")
    if quantity not in _READERS or (quantity in OF_ANSWERS) != (not owner):
        raise UsageError(
            f"There is no matrix '{name}'.", "There is no such matrix.", did_you_mean(quantity, list(_READERS))
        )
    return _READERS[quantity](traced, owner, quantity)


def _underflows(values: NDArray[np.float32]) -> bool:
    """Whether some row would round to 0 in ten bits, such as weights spread over thousands of positions."""
    largest = values.max(-1)
    return bool(((largest > 0) & (largest < 1 / LEVELS)).any())


def _fits_half(values: NDArray[np.float32]) -> bool:
    """Whether float16 is off by less than 1e-3 everywhere."""
    sizes = np.abs(values[np.isfinite(values)])
    return not sizes.size or float(sizes.max()) < 4


def _window(
    shape: tuple[int, ...], rows: tuple[int, int] | None, columns: tuple[int, int] | None
) -> tuple[slice, slice]:
    window = []
    for side, size, span in zip(("Rows", "Columns"), shape[-2:], (rows, columns), strict=True):
        start, stop = span or (0, size)
        if not 0 <= start < stop <= size:
            raise UsageError(f"{side} {start} to {stop} are out of range.", f"There are {size}.", "Choose others.")
        window.append(slice(start, stop))
    return window[0], window[1]


def _of_stack(traced: TracedInput, owner: str, quantity: str) -> Tensor:
    stack = stack_of(traced, owner)
    if quantity == "residual":
        return stack.residual_LTD
    x_TD: Tensor = getattr(stack.embedding, f"{quantity}_TD")
    return x_TD


def _of_part(traced: TracedInput, owner: str, quantity: str) -> Tensor:
    x_TD: Tensor = getattr(traced.part(owner), f"{quantity}_TD")
    return x_TD


def _of_attention(traced: TracedInput, owner: str, quantity: str) -> Tensor:
    attention = traced.attention(owner)
    suffix = {"queries": "BHTK", "keys": "BHSK", "values": "BHSV", "heads": "BHTV"}.get(quantity, "BHTS")
    values: Tensor = getattr(attention, f"{quantity}_{suffix}")
    return values[0]


def _logits(traced: TracedInput, owner: str, quantity: str) -> Tensor:
    return torch.as_tensor(traced.trace.logits_AW)


_READERS: dict[str, Callable[[TracedInput, str, str], Tensor]] = {
    **dict.fromkeys(("content", "position", "constant", "residual"), _of_stack),
    **dict.fromkeys(("read", "wrote"), _of_part),
    **dict.fromkeys(OF_ATTENTION, _of_attention),
    "logits": _logits,
    **STAGES,
}
