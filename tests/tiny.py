"""Settings of models that train in seconds, for tests to add to."""

from __future__ import annotations

# The same for models of one stack over text.
TINY_TEXT = [
    "model.layers=1",
    "model.width=32",
    "model.heads=2",
    "model.feedforward=64",
    "model.dropout=0.0",
    "training.warmup=10",
    "training.log_every=20",
]


def person(sentence: str) -> str:
    """Who a sentence is about, going by its pronouns: what the tiny classifiers learn."""
    words = set(sentence.lower().strip(".").split())
    if words & {"i", "we", "my", "our"}:
        return "self"
    return "others" if words & {"he", "she", "they", "his", "her", "their"} else "nobody"


CLASSIFY = ['data.train=["train.tsv"]', 'data.test=["test.tsv"]', "data.max_length=32", "training.row_length=32"]
CLASSIFY += ["training.tokens_per_batch=512", "training.steps=100", "training.validate_every=50"]
CLASSIFY += ["training.learning_rate=0.01"]
