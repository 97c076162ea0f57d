"""Runs of the tasks that several files here look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kinds import KINDS

import regard


@pytest.fixture
def tiny_run(request: pytest.FixtureRequest, made_once: Callable[..., Path]) -> Callable[[str], Path]:
    """A function that gives a finished run of a task, trained once and copied for every test."""

    def give(task: str) -> Path:
        kind = KINDS[task]
        data = request.getfixturevalue(kind.data) if kind.data else None
        return made_once(f"tiny-{task}", lambda out: regard.train(kind.recipe, *kind.overrides, out=out, data=data))

    return give


@pytest.fixture(scope="session")
def pixels(train_once: Callable[..., Any]) -> Any:
    """A model of the pixels of the built-in digits: 120 steps, which are little more than one look at each digit."""
    settings = ["model.layers=2", "model.width=48", "model.heads=2", "model.feedforward=96", "model.dropout=0.0"]
    settings += ["training.images_per_batch=16", "training.warmup=10", "training.steps=120"]
    settings += ["training.validate_every=60", "model.positions=learned"]  # which are quicker at the start
    return train_once("pixels", "digits-pixels", *settings)
