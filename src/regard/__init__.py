"""Regard trains, runs and looks inside Transformers on your own data.

import regard
regard.train("demo", out="runs/demo")
regard.load("runs/demo").translate(["The small dog sees a cat."])
regard.load("runs/shakespeare").generate("ROMEO:")
regard.load("runs/trec").classify(["Who wrote Hamlet ?"])
regard.load("runs/digits").classify(["three.png"])
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.settings import Task

__version__ = "0.1.0"
__all__ = ["RegardError", "classify", "evaluate", "generate", "load", "train", "translate"]

# Between two operations torch's CPU threads wait for each other by turning in a circle, by default for so long that
# a training beside another busy program gets several times slower. Must be set before torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

# The functions import what they need when called, so that `import regard` and `regard --help` are quick.


def load(run: str | Path, device: str = "auto") -> Any:
    """A trained model from its run folder: what it can do depends on its task (see `regard.runs`)."""
    from regard.runs import open_run

    return open_run(run, device)


def train(
    recipe: str,
    *overrides: str,
    out: str | Path | None = None,
    data: str | Path | None = None,
    resume: bool = False,
    start_from: str | Path | None = None,
    embeddings: str | Path | None = None,
) -> Path:
    """Train a recipe (a name, a .toml file or a run folder) and return the run folder."""
    from regard.experiment import train as run_recipe

    return run_recipe(
        recipe, overrides, out=out, data=data, resume=resume, start_from=start_from, embeddings=embeddings
    )[0]


def translate(run: str | Path, sentences: Sequence[str], **decoding: Any) -> list[str]:
    """Translate sentences with a trained translator."""
    _must_be(run, "translate")
    found: list[str] = load(run).translate(sentences, **decoding)
    return found


def generate(run: str | Path, prompts: str | Sequence[str] = "", **decoding: Any) -> list[str]:
    """Continue prompts with a trained language model."""
    _must_be(run, "language")
    found: list[str] = load(run).generate(prompts, **decoding)
    return found


def classify(run: str | Path, examples: Sequence[str]) -> list[str]:
    """The label of each text, or of the image in each file, by a trained classifier."""
    _must_be(run, "classify-text", "classify-image")
    found = []
    for example, guess in zip(examples, load(run).classify(examples), strict=True):
        if isinstance(guess, str):
            raise RegardError(f"The image '{example}' cannot be read.", guess, "Mend it, or leave it out.")
        found.append(guess.label)
    return found


def evaluate(run: str | Path, **options: Any) -> dict[str, float]:
    """Score a run on its held-out data: {"bleu": …} or {"loss": …} or {"accuracy": …}."""
    found: dict[str, float] = load(run).evaluate(**options).metrics
    return found


def _must_be(run: str | Path, *tasks: Task) -> None:
    from regard.kinds import must_be

    must_be(Path(run), *tasks)
