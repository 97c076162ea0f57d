"""Questions about images: overlays, the attention of heads, and how pixels continue.

Shapes: H heads · T positions · S positions attended to; of images H × W pixels, C channels
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import UsageError
from regard.explain.mask_drawing import palette
from regard.explore.overview import as_png
from regard.explore.session import TracedInput
from regard.explore.stages import key_stack, stack_with
from regard.inside.biases import window_bias
from regard.inside.named import named
from regard.inside.rollout import mean_weights, read_from, readout_weights
from regard.layers.windows import WindowAttention


def image(traced: TracedInput) -> dict[str, Any]:
    """The windows of a Swin's layers, the boxes of a detector, the mask of a segmenter, and whether pixels continue."""
    windows = {
        part.name: {"window": list(part.module.window), "shift": list(part.module.shift)}
        for part in traced.trace.parts()
        if isinstance(part.module, WindowAttention)
    }
    return {
        "windows": windows,
        "boxes": _boxes(traced),
        "mask": _mask(traced),
        "completes": hasattr(traced.task, "complete"),
    }


def readout_attention(traced: TracedInput, part: str, answer: int = -1) -> dict[str, Any]:
    """What every head of a part attends to from where an answer is read: [H, S]. Rows sum to 1."""
    weights_HTS = traced.attention(part).weights_BHTS[0]
    trace = traced.trace
    stack = stack_with(trace, traced.part(part)).stack
    has_answers = stack.name == trace.last.name or trace.last.stack.grid is not None
    # A decoder reads every patch of its encoder alike.
    reading_T = readout_weights(trace, answer, stack) if has_answers else mean_weights(stack)
    keys = key_stack(trace, traced.part(part)).stack
    return named(
        "attention",
        reading_T.to(weights_HTS) @ weights_HTS,
        [("head", [str(head + 1) for head in range(len(weights_HTS))]), ("position", keys.pieces)],
        read_from=read_from(trace, answer, stack) if has_answers else "the mean of all patches",
        readers=reading_T.nonzero()[:, 0].tolist(),
    ).to_json()


def bias(traced: TracedInput, part: str) -> dict[str, Any]:
    """What every head of a part of a Swin adds to a score for the offset between two patches."""
    window = traced.part(part).module
    if not isinstance(window, WindowAttention):
        raise UsageError(f"'{part}' has no biases of offsets.", "It is not windowed attention.", "Choose another part.")
    return window_bias(window).to_json()


def complete(traced: TracedInput, keep: float = 0.5, temperature: float = 0.0, seed: int = 1) -> dict[str, Any]:
    """The first rows of the image, and below them the model's continuation. Temperature 0: always the likeliest."""
    task: Any = traced.task
    picture_HWC = traced.trace.subject.picture_HWC
    if not hasattr(task, "complete") or picture_HWC is None:
        raise UsageError("Nothing can be completed.", "This is not a model of pixels.", "Choose another run.")
    completed_11HWC = task.complete([picture_HWC], keep, samples=1, seed=seed, temperature=temperature)
    return {"picture": as_png(completed_11HWC[0, 0]), "rows": task.kept_rows(keep)}


def _boxes(traced: TracedInput) -> dict[str, Any] | None:
    """Left, top, right and bottom of all boxes, as fractions of the picture, and which of them is explained."""
    subject = traced.trace.subject
    if not subject.boxes or subject.picture_HWC is None:
        return None
    height, width, _ = subject.picture_HWC.shape
    sides = np.array(subject.boxes) / ((width, height) * 2)
    return {"all": sides.tolist(), "chosen": subject.box}


def _mask(traced: TracedInput) -> dict[str, Any] | None:
    """The class of every pixel as a colour, with a key. Black, the background's, would hide the picture."""
    task: Any = traced.task
    picture_HWC = traced.trace.subject.picture_HWC
    if not hasattr(task, "segment") or picture_HWC is None:
        return None
    class_HW: NDArray[np.uint8] = task.guess(picture_HWC[None])[0]
    colours_K3 = palette()[task.values]
    shares_K = np.bincount(class_HW.ravel(), minlength=len(task.classes)) / class_HW.size
    classes = [
        {"label": label, "colour": colour.tolist() if colour.any() else None, "share": float(share)}
        for label, colour, share in zip(task.classes, colours_K3, shares_K, strict=True)
    ]
    opaque_K1 = np.where(colours_K3.any(1, keepdims=True), 255, 0).astype(np.uint8)
    return {"picture": as_png(np.concatenate([colours_K3, opaque_K1], 1)[class_HW]), "classes": classes}
