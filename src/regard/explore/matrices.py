"""Matrices by name: what a trace noted, what attention computed, and what stages.py makes of them.

    STACK.content, .position, .constant, .residual       what the first block reads, as a sum; the residual stream
    PART.read, .wrote                                    what goes into a part and what it writes
    PART.queries … .heads                                of every attention, a matrix for each head
    logits                                               of every answer

Shapes: T positions · D model width · H heads
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import UsageError, did_you_mean
from regard.explore.arrays import LEVELS, Kind, Matrix, reduced
from regard.explore.session import Looked
from regard.explore.stages import READERS, stack_of

MOST = 512  # rows and columns of a matrix that are sent at once
OF_ATTENTION = ("queries", "keys", "values", "scores", "weights", "heads")
OF_ANSWERS = ("logits", "probabilities")


def matrix(
    looked: Looked,
    name: str,
    head: int | None = None,
    rows: tuple[int, int] | None = None,
    columns: tuple[int, int] | None = None,
    most: int = MOST,
    compact: bool = False,
) -> Matrix:
    """A matrix that the page asks for: "encoder.0.mixer.weights", of one head or all, a window of it or all of it.

    What is larger than `most` is reduced by the largest; its notes say by how much. A single row or column is exact.
    `compact`: with fewer digits.
    """
    what = name.rpartition(".")[2]
    values = tensor(looked, name).detach().float().cpu().numpy()
    if head is not None:
        if values.ndim < 3 or not 0 <= head < len(values):
            axis = "head" if what in OF_ATTENTION else "layer"
            raise UsageError(f"'{name}' has no {axis} {head + 1}.", "There are fewer.", "Choose another.")
        values = values[head]
    window = _window(values.shape, rows, columns)
    values = values[(..., *window)]
    step = (1, 1)
    if what in ("weights", "scores") and most and min(values.shape[-2:]) > 1:
        values, *step = reduced(values, max(8, min(most, MOST)))  # type: ignore[assignment]
    kind: Kind = "half" if compact and _fits_half(values) else "long"
    if what in ("weights", "probabilities"):
        kind = "half" if _vanishes(values) else "unit"
    notes = {"name": name, "step": list(step), "from": [each.start for each in window]}
    return Matrix(values, kind, notes)


def tensor(looked: Looked, name: str) -> Tensor:
    """All of a matrix by its name; where it has heads or layers, they come first."""
    of, _, what = name.rpartition(".")
    if what not in _READERS or (what in OF_ANSWERS) != (not of):
        raise UsageError(
            f"There is no matrix '{name}'.", "There is no such matrix.", did_you_mean(what, list(_READERS))
        )
    return _READERS[what](looked, of, what)


def _vanishes(values: NDArray[np.float32]) -> bool:
    """Whether 0 … 1 in ten bits would make nothing of a row, as of weights that are spread over thousands of places."""
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
    for side, size, asked in zip(("Rows", "Columns"), shape[-2:], (rows, columns), strict=True):
        start, stop = asked or (0, size)
        if not 0 <= start < stop <= size:
            raise UsageError(f"{side} {start} to {stop} are out of range.", f"There are {size}.", "Choose others.")
        window.append(slice(start, stop))
    return window[0], window[1]


def _of_stack(looked: Looked, of: str, what: str) -> Tensor:
    stack = stack_of(looked, of)
    if what == "residual":
        return stack.residual_LTD
    terms: Tensor = getattr(stack.embedding, f"{what}_TD")
    return terms


def _of_part(looked: Looked, of: str, what: str) -> Tensor:
    x_TD: Tensor = getattr(looked.part(of), f"{what}_TD")
    return x_TD


def _of_attention(looked: Looked, of: str, what: str) -> Tensor:
    traced = looked.attention(of)
    suffix = {"queries": "BHTK", "keys": "BHSK", "values": "BHSV", "heads": "BHTV"}.get(what, "BHTS")
    values: Tensor = getattr(traced, f"{what}_{suffix}")
    return values[0]


def _logits(looked: Looked, of: str, what: str) -> Tensor:
    return torch.as_tensor(looked.trace.logits_AW)


_READERS: dict[str, Callable[[Looked, str, str], Tensor]] = {
    **dict.fromkeys(("content", "position", "constant", "residual"), _of_stack),
    **dict.fromkeys(("read", "wrote"), _of_part),
    **dict.fromkeys(OF_ATTENTION, _of_attention),
    "logits": _logits,
    **READERS,
}
