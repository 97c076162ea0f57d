"""Regard trains, runs and looks inside Transformers on your own data.

import regard
regard.train("demo", out="runs/demo")
regard.load("runs/demo").translate(["The small dog sees a cat."])
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.run import Run

__version__ = "0.1.0"
__all__ = ["RegardError", "evaluate", "load", "train", "translate"]

# Between two operations torch's CPU threads wait for each other by turning in a circle, by default for so long that
# a training beside another busy program gets several times slower. Must be set before torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

# The functions import what they need when called, so that `import regard` and `regard --help` are quick.


def load(run: str | Path, device: str = "auto") -> Run:
    """A trained model from its run folder."""
    from regard.run import Run

    return Run(run, device)


def train(
    recipe: str,
    *overrides: str,
    out: str | Path | None = None,
    data: str | Path | None = None,
    resume: bool = False,
) -> Path:
    """Train a recipe (a name, a .toml file or a run folder) and return the run folder."""
    from regard.experiment import train as run_recipe

    return run_recipe(recipe, overrides, out=out, data=data, resume=resume)[0]


def translate(run: str | Path, sentences: Sequence[str], **decoding: Any) -> list[str]:
    """Translate sentences with a trained run."""
    return load(run).translate(sentences, **decoding)


def evaluate(run: str | Path, **decoding: Any) -> dict[str, float]:
    """Score a run on its held-out data: {"bleu": …, "bleu_lowercase": …, "chrf": …}."""
    return {score.name: score.value for score in load(run).evaluate(**decoding)[1]}
