"""From a recipe and a place to a finished run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from regard.config import Config, resolve, validate
from regard.errors import UsageError
from regard.tasks.translate import train_translation
from regard.training.folder import RunFolder


def train(
    recipe: str,
    overrides: Iterable[str] = (),
    out: str | Path | None = None,
    data: str | Path | None = None,
    resume: bool = False,
) -> tuple[Path, dict[str, Any]]:
    """Train a recipe, or go on with a run; the run folder and its summary."""
    config = read_recipe(recipe, overrides, data)
    if resume and _is_run(recipe):
        out = out or recipe
    place = Path(out) if out else Path("runs") / config.recipe
    if resume and (place / "config.toml").is_file():
        folder = RunFolder.open(place)
        config = _same_run(folder.read_config(), config)
    else:
        folder = RunFolder.create(place, config)
    summary = train_translation(config, folder)
    return folder.path.resolve(), summary


def read_recipe(recipe: str, overrides: Iterable[str] = (), data: str | Path | None = None) -> Config:
    """A recipe by name, file or run folder, with its data's root made absolute."""
    file = str(Path(recipe) / "config.toml") if _is_run(recipe) else recipe
    config = resolve(file, overrides)
    # A user's own recipe names files from where it lies; a ready-made one from the current folder.
    start = Path(file).parent if file.endswith(".toml") else Path()
    # Absolute, so that the run can be resumed and scored from any folder.
    root = Path(data).resolve() if data is not None else (start / config.data.root).resolve()
    return config.model_copy(update={"data": config.data.model_copy(update={"root": str(root)})})


def _is_run(recipe: str) -> bool:
    return (Path(recipe) / "config.toml").is_file()


def _same_run(saved: Config, asked: Config) -> Config:
    """Resuming takes the run's own settings; only how long and how often may be changed."""
    free = {
        "steps",
        "validate_every",
        "save_every",
        "log_every",
        "keep_checkpoints",
        "patience",
        "micro_batches",
    }
    old, new = saved.model_dump(), asked.model_dump()
    for section in ("tokenizer", "model", "training", "seed", "task"):
        for key in old[section] if isinstance(old[section], dict) else [None]:
            before, after = (old[section][key], new[section][key]) if key else (old[section], new[section])
            if before != after and key not in free:
                name = f"{section}.{key}" if key else section
                raise UsageError(
                    f"This run cannot be resumed with {name} = {after!r}.",
                    f"It was started with {before!r}.",
                    "Resume without that change, or train anew with another --out DIR.",
                )
    return validate({**old, "training": new["training"], "decoding": new["decoding"], "system": new["system"]})
