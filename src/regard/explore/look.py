"""What the page must know of an input before it asks for more: tokens, layers, answers, and which matrices there are.

Shapes: H heads · T positions · S positions looked at · K, V widths of a head · D model width · L layers · A answers ·
        W words or classes
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import UsageError, did_you_mean
from regard.explore.arrays import LEVELS, Kind, Matrix, reduced
from regard.explore.session import Looked
from regard.explore.stages import READERS, stack_of
from regard.inside.parts import LayerTrace, PartTrace, StackTrace
from regard.inside.rewriting import writes
from regard.inside.subject import Subject
from regard.models.masked import Masked
from regard.models.reader import Reader

MOST = 512  # rows and columns of a matrix that are sent at once
OF_ATTENTION = ("queries", "keys", "values", "scores", "weights", "heads")
OF_ANSWERS = ("logits", "probabilities")


def look(looked: Looked) -> dict[str, Any]:
    """What was given and said, the stacks with their tokens and parts, and the answers."""
    trace = looked.trace
    subject = trace.subject
    p_AW = trace.p_AW
    return {
        "run": looked.run,
        "input": looked.given,
        "given": subject.given,
        "said": subject.said,
        "speaks": _speaks(subject),
        "warnings": looked.warnings,
        "difference": trace.difference,
        "stacks": [_stack(stack, number, looked) for number, stack in enumerate(trace.stacks)],
        "answers": [
            {
                "position": answer.position,
                "token": answer.token,
                "label": answer.label,
                "given": answer.given,
                "probability": float(p_AW[number, answer.token]),
            }
            for number, answer in enumerate(subject.answers)
        ],
        "first": trace.first_answer,
        "independent": subject.independent,
        "draws": _draws(looked),
        "words": int(trace.logits_AW.shape[-1]),
        "picture": None if subject.picture_HWC is None else as_png(subject.picture_HWC),
        "can": {
            "lens": subject.readout is not None,
            "change": subject.with_tokens is not None,
            "attention": any(part.looks for part in trace.parts()),
            "rollout": any(part.looks and not part.across for part in trace.parts()),
            "beams": hasattr(looked.task, "record_search"),
            "force": subject.begun is not None,
            "continue": subject.begun is not None and len(subject.stacks) == 1,
            "write": writes(subject),
            "classes": hasattr(looked.task, "classes"),
        },
    }


def _draws(looked: Looked) -> bool:
    """Whether a word may be drawn by its probability; a class or a place in a text is not."""
    return not hasattr(looked.task, "classes") and not isinstance(looked.trace.subject.model, Reader)


def _speaks(subject: Subject) -> str:
    """Where the model's answer is: in what it said; in what it found, where something is hidden; in what comes next."""
    if subject.said or not subject.answers or any(stack.grid for stack in subject.stacks):
        return "said"
    return "found" if isinstance(subject.model, Masked) else "next"


def _stack(traced: StackTrace, number: int, looked: Looked) -> dict[str, Any]:
    stack = traced.stack
    tokens = looked.trace.subject.tokens
    return {
        "name": stack.name,
        "pieces": stack.pieces,
        "tokens": tokens[number] if tokens is not None else None,
        "grid": stack.grid,
        "before": stack.before,
        "width": int(traced.layers[0].before_TD.shape[-1]),
        "layers": [_layer(layer) for layer in traced.layers],
    }


def _layer(layer: LayerTrace) -> dict[str, Any]:
    return {
        "name": layer.name,
        "pre_norm": layer.block.pre_norm,
        "parts": [_part(part) for part in layer.parts],
    }


def _part(part: PartTrace) -> dict[str, Any]:
    return {
        "name": part.name,
        "title": part.title,
        "kind": type(part.module).__name__,
        "heads": part.heads or (1 if part.looks else 0),
        "switches": part.heads,  # heads that can be switched off; an additive attention cannot be told from its part
        "looks": part.looks,
        "across": part.across,
        "mixes": part.context is not None,
        "convolves": hasattr(part.module, "toeplitz"),
        "causal": part.context is not None and part.context.causal and not part.across,
    }


def as_png(pixels_HWC: NDArray[np.uint8]) -> str:
    """An image as an address that has it in itself."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels_HWC[..., 0] if pixels_HWC.shape[-1] == 1 else pixels_HWC).save(file, format="PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


# ---------------------------------------------------------------- matrices by name


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
