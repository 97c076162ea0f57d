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
from typing import Any

from regard.errors import RegardError
from regard.version import __version__

__all__ = ["RegardError", "__version__", "classify", "evaluate", "generate", "load", "train", "translate"]

# Between two operations torch's CPU threads wait for each other by spinning, by default for so long that a
# training beside another busy program gets several times slower. Must be set before torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

# The functions import what they need when called, so that `import regard` and `regard --help` are quick.


def load(
    run: str | Path, device: str = "auto", data: str | Path | None = None, plugins: Sequence[str | Path] = ()
) -> Any:
    """A trained run from its folder: an object of its task (see `regard.tasks`), ready to use."""
    from regard import registry
    from regard.run import load as load_run

    registry.load_plugins(plugins)
    return load_run(run, device, data)


def train(
    recipe: str,
    *overrides: str,
    out: str | Path | None = None,
    data: str | Path | None = None,
    resume: bool = False,
    start_from: str | Path | None = None,
    embeddings: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
) -> Path:
    """Train a recipe (a name, a .toml file or a run folder) and return the run folder."""
    from regard import registry
    from regard.run import train as train_recipe

    registry.load_plugins(plugins)
    return train_recipe(
        recipe, overrides, out=out, data=data, resume=resume, start_from=start_from, embeddings=embeddings
    )[0]


def translate(run: str | Path, sentences: Sequence[str], **decoding: Any) -> list[str]:
    """Translate sentences with a trained translator."""
    translations: list[str] = _load(run, "translate").translate(sentences, **decoding)
    return translations


def generate(run: str | Path, prompts: str | Sequence[str] = "", **decoding: Any) -> list[str]:
    """Continue prompts with a trained language model."""
    texts: list[str] = _load(run, "generate").generate(prompts, **decoding)
    return texts


def classify(run: str | Path, examples: Sequence[str]) -> list[str]:
    """The label of each text, or of the image in each file, by a trained classifier."""
    labels = []
    for example, guess in zip(examples, _load(run, "classify").classify(examples), strict=True):
        if isinstance(guess, str):
            raise RegardError(f"The image '{example}' cannot be read.", guess, "Repair it, or leave it out.")
        labels.append(guess.label)
    return labels


def evaluate(run: str | Path, **options: Any) -> dict[str, float]:
    """Score a run on its held-out data: {"bleu": …} or {"loss": …} or {"accuracy": …}."""
    metrics: dict[str, float] = load(run).evaluate(**options).metrics
    return metrics


def _load(run: str | Path, ability: str) -> Any:
    from regard.run import load_weights, open_run, require

    task = open_run(run)
    require(task, ability)
    return load_weights(task)
