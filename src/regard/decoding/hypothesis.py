"""What decoding returns, and what it needs of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True)
class Hypothesis:
    """One finished output: its tokens without <end>, and how likely they are."""

    tokens: list[int]
    log_probability: float
    score: float  # log-probability after the length penalty


class State(Protocol):
    """A model's memory while decoding."""

    def select(self, rows_N: Tensor, sentences_B: Tensor | None = None) -> None: ...


class Stepper(Protocol):
    """One token further for each of N hypotheses: logits [N, W]."""

    def step(self, tokens_N: Tensor, state: Any) -> Tensor: ...
