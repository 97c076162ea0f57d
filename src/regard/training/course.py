"""The course of a training: which of its numbers belong in one panel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def panels(records: Sequence[dict[str, Any]], metrics: Sequence[str]) -> dict[str, dict[str, str]]:
    """By title, the keys of its curves and what they are called: the loss, these metrics as far as they were validated,
    the learning rate and the speed."""
    keys = list(dict.fromkeys(key for record in records for key in record))
    panels = {"loss": {"loss": "training", "valid_loss": "validation"}}
    panels |= {metric: {f"valid_{metric}": "validation"} for metric in metrics if metric != "loss"}
    panels |= {key: {key: ""} for key in ["learning_rate", *(key for key in keys if key.endswith("_per_second"))]}
    return {title: lines for title, lines in panels.items() if any(key in keys for key in lines)}


def curve(records: Sequence[dict[str, Any]], key: str) -> list[tuple[int, float]]:
    """The steps at which a number was noted, and the number."""
    return [(record["step"], record[key]) for record in records if key in record]
