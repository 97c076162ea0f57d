"""Settings of models that train in seconds, for tests to add to."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

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

# The same for image classifiers; with these, 8 x 8 stripes are told apart after 100 steps.
TINY_IMAGES = [
    'data.sample=""',
    "model.layers=1",
    "model.width=32",
    "model.heads=2",
    "model.feedforward=32",
    "model.dropout=0.0",
    "augmentation.operations=0",
    "augmentation.mixup=0.0",
    "augmentation.erase=0.0",
    "augmentation.crop=0",
    "model.initialisation=paper",
    "training.optimizer=adamw",
    "training.images_per_batch=32",
    "training.learning_rate=0.01",
    "training.warmup=5",
    "training.steps=100",
    "training.validate_every=50",
    "training.log_every=10",
]


def stripes(kind: str, shade: int, phase: int, side: int = 8) -> NDArray[np.uint8]:
    """A grey image with stripes of one pixel: across, down or slanted (a chessboard)."""
    y, x = np.mgrid[:side, :side]
    along = {"across": y, "down": x, "slanted": x + y}[kind]
    return ((along + phase) % 2 * shade).astype(np.uint8)


def tagged_sentences(count: int, seed: int) -> str:
    """Sentences of a tiny grammar, one word and its tag on a line, a blank line after each sentence."""
    choose = random.Random(seed).choice
    words = {
        "DET": ["the", "a", "every"],
        "ADJ": ["old", "small", "red"],
        "NOUN": ["dog", "cat", "farmer", "child"],
        "VERB": ["sees", "helps", "likes"],
    }
    sentences = []
    for _ in range(count):
        tags = ["DET", *["ADJ"] * choose([0, 1, 2]), "NOUN", "VERB", "DET", *["ADJ"] * choose([0, 1]), "NOUN"]
        sentences.append("".join(f"{choose(words[tag])}\t{tag}\n" for tag in tags))
    return "\n".join(sentences) + "\n"
