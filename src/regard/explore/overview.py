"""An overview of an input, which the page asks for first: tokens, layers, parts and answers, and what can be shown.

Shapes: H heads · T positions · S positions attended to · K, V widths of a head · D model width · L layers · A answers ·
        W words or classes
"""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.explore.session import TracedInput
from regard.inside.heads import SCORES, is_defined
from regard.inside.parts import LayerTrace, PartTrace, StackTrace
from regard.inside.regeneration import generates_text
from regard.inside.subject import Subject
from regard.inside.trace import Trace
from regard.models.masked import Masked
from regard.models.reader import Reader


def overview(traced: TracedInput) -> dict[str, Any]:
    """The input, the output, the stacks with their tokens and parts, and the answers."""
    trace = traced.trace
    subject = trace.subject
    p_AW = trace.p_AW
    return {
        "run": traced.run,
        "input": traced.fields,
        "input_text": subject.input_text,
        "output_text": subject.output_text,
        "headline": _headline(subject),
        "warnings": traced.warnings,
        "difference": trace.difference,
        "stacks": [_stack(stack, number, traced) for number, stack in enumerate(trace.stacks)],
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
        "cells": subject.cells,
        "boxes": len(subject.boxes),
        "independent": subject.independent,
        "samples": _samples(traced),
        "words": int(trace.logits_AW.shape[-1]),
        "picture": None if subject.picture_HWC is None else as_png(subject.picture_HWC),
        "can": {
            "lens": subject.readout is not None,
            "change": subject.with_tokens is not None,
            "attention": any(part.attends for part in trace.parts()),
            "rollout": any(part.attends and not part.cross for part in trace.parts()),
            "beams": hasattr(traced.task, "record_search"),
            "force": subject.with_prefix is not None,
            "continue": subject.with_prefix is not None and len(subject.stacks) == 1,
            "write": generates_text(subject),
            "classes": hasattr(traced.task, "classes"),
        },
    }


def _samples(traced: TracedInput) -> bool:
    """Whether answers can be sampled; a class or a span of a text cannot."""
    return not hasattr(traced.task, "classes") and not isinstance(traced.trace.subject.model, Reader)


def _headline(subject: Subject) -> str:
    """What the top of the page shows: the output, the words at masked positions, or the next word."""
    if subject.output_text or not subject.answers or any(stack.grid for stack in subject.stacks):
        return "output"
    return "filled in" if isinstance(subject.model, Masked) else "next"


def _stack(stack: StackTrace, number: int, traced: TracedInput) -> dict[str, Any]:
    tokens = traced.trace.subject.tokens
    return {
        "name": stack.name,
        "pieces": stack.stack.pieces,
        "tokens": tokens[number] if tokens is not None else None,
        "grid": stack.stack.grid,
        "before": stack.stack.before,
        "causal": stack.causal,
        "width": int(stack.layers[0].before_TD.shape[-1]),
        "layers": [_layer(layer, traced.trace) for layer in stack.layers],
    }


def _layer(layer: LayerTrace, trace: Trace) -> dict[str, Any]:
    return {
        "name": layer.name,
        "pre_norm": layer.block.pre_norm,
        "parts": [_part(part, trace) for part in layer.parts],
    }


def _part(part: PartTrace, trace: Trace) -> dict[str, Any]:
    return {
        "name": part.name,
        "title": part.title,
        "kind": type(part.module).__name__,
        "heads": part.heads or (1 if part.attends else 0),
        "switches": part.heads,  # the one head of an additive attention cannot be switched off apart from its part
        "attends": part.attends,
        "scores": [score for score in SCORES if part.attends and is_defined(score, part, trace)],
        "cross": part.cross,
        "mixes": part.context is not None,
        "convolves": hasattr(part.module, "toeplitz"),
        "causal": part.context is not None and part.context.causal and not part.cross,
    }


def as_png(pixels_HWC: NDArray[np.uint8]) -> str:
    """An image as a data: address."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels_HWC[..., 0] if pixels_HWC.shape[-1] == 1 else pixels_HWC).save(file, format="PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
