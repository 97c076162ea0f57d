"""The question about attribution: how much each position contributes to an answer, and whether that is faithful."""

from __future__ import annotations

from typing import Any

from regard.explore.session import TracedInput
from regard.inside.attribution import Method
from regard.inside.faithfulness import Faithfulness
from regard.inside.named import Named


def attribution(
    traced: TracedInput, method: Method = "integrated-gradients", answer: int = -1, token: int | None = None
) -> dict[str, Any]:
    """The score of each position of each stack that reads the input, always with its faithfulness."""
    result = traced.trace.attribute(method, answer, token)
    return {
        "answer": result.answer,
        "stacks": {name: scores.to_json() for name, scores in result.stacks.items()},
        "faithful": _faithfulness(result.faithful()),
        **result.notes,
    }


def _faithfulness(measured: Faithfulness) -> dict[str, Any]:
    """All its numbers; of the random curves, their mean."""
    curves = {"deletion_curve", "insertion_curve"}
    numbers = {name: getattr(measured, name) for name in measured.__dataclass_fields__ if name not in curves}
    return numbers | {name: _curve(getattr(measured, name)) for name in curves} | {"verdict": measured.verdict}


def _curve(curves: Named) -> dict[str, Any]:
    return {
        "shares": curves.labels[1],
        "by_score": curves.values[0].tolist(),
        "random": curves.values[1:].mean(0).tolist(),
        "orders": len(curves.values) - 1,
    }
