"""One run, trained once by the command, that the tests of the other verbs share."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import Result, regard

# Long enough that different sentences get different translations.
SETTINGS = [
    "tokenizer.kind=word",
    "model.width=64",
    "model.feedforward=128",
    "model.dropout=0.0",
    "training.steps=120",
    "training.tokens_per_batch=1024",
    "training.learning_rate=0.01",
    "training.validate_every=60",
    "training.save_every=30",
]


@pytest.fixture(scope="session")
def training(tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A run folder, and what `regard train … --json` printed when it made it."""
    out = tmp_path_factory.mktemp("commanded") / "run"
    return out, regard("train", tiny_recipe, *SETTINGS, "--out", out, "--json")


@pytest.fixture(scope="session")
def run(training: tuple[Path, Result]) -> Path:
    """The run folder. Tests that change it take a copy."""
    return training[0]
