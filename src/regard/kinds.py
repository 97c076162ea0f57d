"""The kinds of runs, and the verb that uses each."""

from __future__ import annotations

from pathlib import Path

from regard.settings import Task
from regard.errors import UsageError
from regard.training.folder import RunFolder

KINDS: dict[Task, tuple[str, str]] = {
    "translate": ("a translator", "translate"),
    "language": ("a language model", "generate"),
    "masked": ("a masked language model", "fill"),
    "classify-text": ("a text classifier", "classify"),
    "embeddings": ("a set of word vectors", "embeddings"),
    "classify-image": ("an image classifier", "classify"),
    "pixels": ("a model of pixels", "generate"),
    "synthetic": ("a model of made-up sequences", "evaluate"),
}


def must_be(path: Path, *tasks: Task) -> None:
    """A clear error if the run is not of one of these tasks."""
    task = RunFolder.open(path).read_config().task
    if task in tasks:
        return
    what, verb = KINDS[task]
    wanted = " or ".join(KINDS[name][0] for name in tasks)
    raise UsageError(f"'{path}' is {what}.", f"This needs {wanted}.", f"Use `regard {verb} {path}`.")
