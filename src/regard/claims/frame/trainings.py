"""Trainings for claims: ordinary runs of ordinary recipes, kept, and shared by the claims that ask for the same one.

    DIR/trainings/RECIPE-DIGEST/seed-K      a run folder; the digest is of all settings but the seed
    DIR/trainings/NAME/                     data that was made for them

A training that was stopped continues from its last checkpoint. Of two processes that want the same one, one waits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regard import console
from regard.claims.frame.claim import Budget
from regard.files import locked, write_atomically
from regard.recipes.writing import flat
from regard.run import load, read_recipe, train
from regard.settings import NOT_IN_THE_RESULT
from regard.training.folder import RunFolder
from regard.version import __version__


def trained(
    budget: Budget,
    recipe: str,
    *changes: str,
    seed: int,
    start_from: Path | None = None,
    embeddings: Path | None = None,
) -> Path:
    """The run folder of this recipe with these changes and this seed; trained now, if it is not there yet."""
    changes = (*changes, f'system.device="{budget.device}"')
    run = _folder(budget, recipe, changes, start_from, embeddings) / f"seed-{seed}"
    run.parent.mkdir(parents=True, exist_ok=True)
    with locked(run.parent, wait=True), console.silent():
        if not RunFolder(run).summary.is_file():
            own = (*changes, f"seed={seed}")
            train(recipe, own, out=run, resume=True, start_from=start_from, embeddings=embeddings)
    return run


def trained_model(budget: Budget, recipe: str, *changes: str, seed: int, **more: Any) -> Any:
    """The same, loaded: an object of its task."""
    run = trained(budget, recipe, *changes, seed=seed, **more)
    with console.silent():
        return load(run, budget.device)


def metrics(run: Path) -> dict[str, float]:
    """The metrics of a run on its held-out test."""
    of_test: dict[str, float] = RunFolder.open(run).read_json("summary.json")["metrics"]
    return of_test


def made_once(budget: Budget, name: str, files: Callable[[], Mapping[str, str | bytes]]) -> Path:
    """A folder with these contents by file name, for trainings to read; written by the first claim that needs it."""
    folder = budget.trainings / name
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, wait=True):
        if not (folder / "whole").exists():
            for file, content in files().items():
                write_atomically(folder / file, content.encode() if isinstance(content, str) else content)
            write_atomically(folder / "whole", b"")
    return folder


def _folder(
    budget: Budget, recipe: str, changes: tuple[str, ...], start_from: Path | None, embeddings: Path | None
) -> Path:
    settings = flat(read_recipe(recipe, [*changes, *([f'training.start_from="{start_from}"'] if start_from else [])]))
    known = {name: value for name, value in settings.items() if name not in ("seed", *NOT_IN_THE_RESULT)}
    identity = json.dumps([known, str(start_from), str(embeddings), __version__], sort_keys=True, default=str)
    return budget.trainings / f"{Path(recipe).stem}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
