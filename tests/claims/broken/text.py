from __future__ import annotations

from typing import Any

import pytest

from broken.ways import put, with_argument
from regard.claims.token_kinds import KINDS
from regard.decoding import sampling
from regard.models.causal import Causal


class Unmasked(Causal):
    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.trunk.causal = False


def fewer_merges(patch: pytest.MonkeyPatch, module: Any) -> None:
    learn = module.learn
    patch.setattr(module, "learn", lambda texts, merges, sentences: learn(texts, merges - 1, sentences))


def always_one(patch: pytest.MonkeyPatch, module: Any) -> None:
    likely = sampling.truncate
    patch.setattr(sampling, "truncate", lambda logits, temperature, *more: likely(logits, 1.0, *more))


BROKEN = {
    "byte-pairs": fewer_merges,
    "next-word": put("Causal", Unmasked),
    "temperature": always_one,
    "token-kinds": put("KINDS", KINDS | {"byte pairs": "byte"}),
    "word-vectors": put("CONTROL", ("training.learning_rate=1e-6",)),
    "pretraining": put("steps_from_scratch", lambda steps: 1),
    "beam-search": with_argument(beams=(1, 1, 1)),
}
# Of a translator that has learned nothing, no translation is better.
OUTCOMES = {"beam-search": "depends", "token-kinds": "depends"}
OUTCOMES |= dict.fromkeys(("word-vectors", "pretraining"), "does not hold")
