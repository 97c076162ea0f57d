"""One run, trained once by the command, that the tests of the other verbs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from command import regard

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
def training(tiny_recipe: Path, made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A folder with the run, and with what `regard train … --json` printed when it made it."""

    def train(folder: Path) -> None:
        shown = regard("train", tiny_recipe, *SETTINGS, "--out", folder / "run", "--json", curves=True)
        (folder / "printed.json").write_text(shown.stdout)

    return made_once("training", train)


@pytest.fixture(scope="session")
def run(training: Path) -> Path:
    """The run folder. Tests that change it take a copy."""
    return training / "run"
