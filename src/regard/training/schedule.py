"""The learning rate at each step.

paper         factor · d^−½ · min(step^−½, step · warmup^−3/2)
inverse-sqrt  peak · min(step / warmup, √(warmup / step))
cosine        linear to peak, then half a cosine down to the final rate
linear        linear to peak, then a straight line down to the final rate
constant      linear to peak, then level
"""

from __future__ import annotations

import math

from regard.settings import TrainingSettings


def learning_rate(step: int, settings: TrainingSettings, width: int) -> float:
    """The rate for update number `step`, counted from 1."""
    peak, warmup = settings.learning_rate, settings.warmup
    if settings.schedule == "paper":
        return peak * width**-0.5 * min(step**-0.5, step * max(warmup, 1) ** -1.5)
    if step < warmup:
        return peak * step / warmup
    if settings.schedule == "inverse-sqrt":
        return peak * math.sqrt(max(warmup, 1) / step)
    if settings.schedule in ("cosine", "linear"):
        progress = min(1.0, (step - warmup) / max(1, settings.steps - warmup))
        left = 0.5 * (1 + math.cos(math.pi * progress)) if settings.schedule == "cosine" else 1 - progress
        return settings.final_learning_rate + (peak - settings.final_learning_rate) * left
    return peak
