"""What the page asks about images: what is drawn over them, what heads see in them, and how pixels continue.

Shapes: H heads · T positions · S positions looked at; of images H × W pixels, C channels
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import UsageError
from regard.explain.mask_drawing import palette
from regard.explore.look import as_png
from regard.explore.session import Looked
from regard.inside.biases import window_bias
from regard.inside.named import named
from regard.inside.rollout import mean_weights, read_from, readout_weights
from regard.layers.windows import WindowAttention


def image(looked: Looked) -> dict[str, Any]:
    """The windows of every layer of a Swin, the box of a detector, the mask of a segmenter; whether pixels continue."""
    windows = {
        part.name: {"window": list(part.module.window), "shift": list(part.module.shift)}
        for part in looked.trace.parts()
        if isinstance(part.module, WindowAttention)
    }
    return {
        "windows": windows,
        "box": _box(looked),
        "mask": _mask(looked),
        "completes": hasattr(looked.task, "complete"),
    }


def seen(looked: Looked, part: str, answer: int = -1) -> dict[str, Any]:
    """What every head of a part looks at from where an answer is read: [H, S]. Its rows sum to 1."""
    weights_HTS = looked.attention(part).weights_BHTS[0]
    trace = looked.trace
    stack = next(each.stack for each in trace.stacks if part.startswith(f"{each.name}."))
    of_answers = stack.name == trace.last.name or trace.last.stack.grid is not None
    # Patches that a decoder reads are all read, each as it is.
    reading_T = readout_weights(trace, answer, stack) if of_answers else mean_weights(stack)
    keys = trace.stacks[trace.subject.stacks.index(stack) - 1].stack if looked.part(part).cross else stack
    return named(
        "attention",
        reading_T.to(weights_HTS) @ weights_HTS,
        [("head", [str(head + 1) for head in range(len(weights_HTS))]), ("position", keys.pieces)],
        read_from=read_from(trace, answer) if of_answers else "the mean of all patches",
        readers=reading_T.nonzero()[:, 0].tolist(),
    ).to_json()


def bias(looked: Looked, part: str) -> dict[str, Any]:
    """What every head of a part of a Swin adds to a score for how far two patches are apart."""
    window = looked.part(part).module
    if not isinstance(window, WindowAttention):
        raise UsageError(f"'{part}' has no biases of distances.", "It is no attention in windows.", "Choose another.")
    return window_bias(window).to_json()


def complete(looked: Looked, keep: float = 0.5, temperature: float = 0.0, seed: int = 1) -> dict[str, Any]:
    """The first rows of the image, and below them what the model adds. At temperature 0, always the likeliest."""
    task: Any = looked.task
    picture_HWC = looked.trace.subject.picture_HWC
    if not hasattr(task, "complete") or picture_HWC is None:
        raise UsageError("Nothing can be completed.", "This is not a model of pixels.", "Choose another run.")
    completed_11HWC = task.complete([picture_HWC], keep, samples=1, seed=seed, temperature=temperature)
    return {"picture": as_png(completed_11HWC[0, 0]), "rows": task.kept_rows(keep)}


def _box(looked: Looked) -> list[float] | None:
    """Left, top, right and bottom, in shares of the picture."""
    subject = looked.trace.subject
    if subject.box is None or subject.picture_HWC is None:
        return None
    height, width, _ = subject.picture_HWC.shape
    return [side / length for side, length in zip(subject.box, (width, height) * 2, strict=True)]


def _mask(looked: Looked) -> dict[str, Any] | None:
    """The class of every pixel in colours, and what they stand for. Black, the ground's, would hide the picture."""
    task: Any = looked.task
    picture_HWC = looked.trace.subject.picture_HWC
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
