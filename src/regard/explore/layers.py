"""Questions about layers: the lens, the contribution of each part, norms, and what heads do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.explore.session import TracedInput
from regard.inside.heads import SCORES, Score
from regard.inside.named import named


def lens(traced: TracedInput) -> dict[str, Any]:
    """What the model would predict after each layer: every array of the lens."""
    result = traced.trace.lens()
    return {name: getattr(result, name).to_json() for name in result.__dataclass_fields__}


def contributions(traced: TracedInput, answer: int = -1, token: int | str | None = None) -> dict[str, Any]:
    """What each head and part added to a logit."""
    return traced.trace.contributions(answer, token).to_json()


def norms(traced: TracedInput) -> dict[str, Any]:
    """By stack, the norm of the residual stream at every position, before the first block and after each."""
    by_stack = {}
    for stack in traced.trace.stacks:
        layers = ["embedding", *(str(number + 1) for number in range(len(stack.layers)))]
        axes = [("layer", layers), ("position", stack.stack.pieces)]
        by_stack[stack.name] = named("length", stack.residual_LTD.norm(dim=-1), axes).to_json()
    return by_stack


def heads(traced: TracedInput, scores: Sequence[Score] = SCORES) -> dict[str, Any]:
    """One number per head for each of these scores."""
    return {name: score.to_json() for name, score in traced.trace.heads(scores).items()}
