from __future__ import annotations

from typing import Any

import pytest

from broken.ways import with_argument


def only_recurrence(patch: pytest.MonkeyPatch, module: Any) -> None:
    """What is said to be attention, too."""
    make = module.make
    patch.setattr(module, "make", lambda mixer, *rest: make("rnn", *rest))


def no_attention(patch: pytest.MonkeyPatch, module: Any) -> None:
    """Every model that is said to be something else is a GRU."""
    trained = module.who_was_it
    patch.setattr(module, "who_was_it", lambda budget, mixer, *rest: trained(budget, "gru", *rest))


OUTCOMES = {"forgetting": "does not hold"}  # its texts are too short for 100 tokens
BROKEN = {
    "bottleneck": with_argument(cross={"additive": "none"}),
    "early-gradient": only_recurrence,
    "forgetting": with_argument(mixers=("attention", "attention")),
    "long-recall": no_attention,
    "step-time": only_recurrence,
}
