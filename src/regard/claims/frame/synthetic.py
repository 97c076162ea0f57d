"""Made-up sequences for claims: settings for short trainings, and where a model is right.

Shapes: B sequences · T positions
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from regard.claims.frame.claim import Budget
from regard.data.synthetic import held_out
from regard.tasks.synthetic import Synthetic

RECIPE = "reverse"
# Nothing is validated on the way, which would take longer than the training itself.
SHORT = ("training.validate_every=100000", "training.log_every=1000", "synthetic.test_sequences=200")


def sequences(length: int, rows: int, steps: int, learning_rate: float = 0.003) -> list[str]:
    """A training of so many updates, each with so many sequences of this length."""
    return [
        *SHORT,
        f"synthetic.length={length}",
        f"training.tokens_per_batch={rows * length}",
        f"training.steps={steps}",
        f"training.warmup={steps // 10}",
        f"training.learning_rate={learning_rate}",
    ]


def permutations(budget: Budget) -> list[str]:
    """Settings of a plain Transformer that is to follow what permutations amount to: two blocks, in tiny one."""
    return [
        *budget.choose(tiny=sequences(4, 32, 100, 0.01), normal=sequences(8, 64, 500), full=sequences(16, 64, 3000)),
        f"model.layers={budget.choose(tiny=1, normal=2)}",
        'model.feedback="none"',
        'model.positions="learned"',
        'model.norm="pre"',
        "training.clip_norm=1.0",
    ]


@torch.inference_mode()
def right_at(run: Synthetic, length: int = 0) -> NDArray[np.float64]:
    """Share of right answers at each position, NaN where nothing is asked: [T]. 0: sequences as long as in training."""
    settings = run.settings.synthetic
    batch = held_out(settings.model_copy(update={"length": length or settings.length}), "test")
    guesses_BT = run.logits(batch.to(run.hardware.device)).argmax(-1).cpu()
    asked_BT = (batch.labels != batch.nothing).numpy()
    right_BT = (guesses_BT == batch.labels).numpy() & asked_BT
    asked_T = asked_BT.sum(0)
    return np.where(asked_T > 0, right_BT.sum(0) / np.maximum(asked_T, 1), np.nan)


def symbols(kind: str, *, vocabulary: int, half: int, rows: int, layers: int, steps: int, width: int = 32) -> list[str]:
    """Settings of a small model that reads `half` symbols and writes as many: the same, or sorted. Seconds, or less."""
    length = 2 * half + 2  # with <start> and a mark between question and answer
    return [
        f'synthetic.kind="{kind}"',
        f"synthetic.vocabulary={vocabulary}",
        f"synthetic.length={length}",
        "synthetic.test_sequences=200",
        f"model.layers={layers}",
        f"model.width={width}",
        f"model.feedforward={2 * width}",
        f"training.tokens_per_batch={rows * length}",
        f"training.steps={steps}",
        f"training.validate_every={steps}",
        "training.clip_norm=0.0",
    ]
