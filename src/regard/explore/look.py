"""What the page must know of an input before it asks for more: tokens, layers, answers, and which matrices there are.

Shapes: H heads · T positions · S positions looked at · K, V widths of a head · D model width · L layers · A answers ·
        W words or classes
"""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.explore.session import Looked
from regard.inside.parts import LayerTrace, PartTrace, StackTrace
from regard.inside.regeneration import generates_text
from regard.inside.subject import Subject
from regard.models.masked import Masked
from regard.models.reader import Reader


def look(looked: Looked) -> dict[str, Any]:
    """What was given and said, the stacks with their tokens and parts, and the answers."""
    trace = looked.trace
    subject = trace.subject
    p_AW = trace.p_AW
    return {
        "run": looked.run,
        "input": looked.given,
        "input_text": subject.input_text,
        "output_text": subject.output_text,
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
            "attention": any(part.attends for part in trace.parts()),
            "rollout": any(part.attends and not part.cross for part in trace.parts()),
            "beams": hasattr(looked.task, "record_search"),
            "force": subject.with_prefix is not None,
            "continue": subject.with_prefix is not None and len(subject.stacks) == 1,
            "write": generates_text(subject),
            "classes": hasattr(looked.task, "classes"),
        },
    }


def _draws(looked: Looked) -> bool:
    """Whether a word may be drawn by its probability; a class or a place in a text is not."""
    return not hasattr(looked.task, "classes") and not isinstance(looked.trace.subject.model, Reader)


def _speaks(subject: Subject) -> str:
    """Where the model's answer is: in what it said; in what it found, where something is hidden; in what comes next."""
    if subject.output_text or not subject.answers or any(stack.grid for stack in subject.stacks):
        return "output"
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
        "heads": part.heads or (1 if part.attends else 0),
        "switches": part.heads,  # heads that can be switched off; an additive attention cannot be told from its part
        "attends": part.attends,
        "cross": part.cross,
        "mixes": part.context is not None,
        "convolves": hasattr(part.module, "toeplitz"),
        "causal": part.context is not None and part.context.causal and not part.cross,
    }


def as_png(pixels_HWC: NDArray[np.uint8]) -> str:
    """An image as an address that has it in itself."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels_HWC[..., 0] if pixels_HWC.shape[-1] == 1 else pixels_HWC).save(file, format="PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
