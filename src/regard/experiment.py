"""From a recipe and a place to a finished run.

A training that fails or is stopped before its first checkpoint leaves no folder behind, so that the same
command can be given again. After that the folder stays, and `--resume` goes on from the newest checkpoint.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from regard import console
from regard.settings import Config, Task
from regard.data import image_sources, labelled, pairs
from regard.data.text import TextSource
from regard.errors import RegardError, UsageError
from regard.kinds import KINDS
from regard.recipes import resolve, toml_value, validate
from regard.training.folder import RunFolder


def train(
    recipe: str,
    overrides: Iterable[str] = (),
    out: str | Path | None = None,
    data: str | Path | None = None,
    resume: bool = False,
    start_from: str | Path | None = None,
    embeddings: str | Path | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Train a recipe, or go on with a run; the run folder and its summary."""
    changes = list(overrides)
    if embeddings is not None:
        changes.append(f"training.embeddings={json.dumps(str(Path(embeddings).resolve()))}")
    if start_from is not None:
        changes.append(f"training.start_from={json.dumps(str(Path(start_from).resolve()))}")
    config = read_recipe(recipe, changes, data)
    if config.training.start_from and not (resume and _is_run(recipe)):  # a run has taken it over already
        config = taking_over(config, changes)
    if resume and _is_run(recipe):
        out = out or recipe
    elif _is_run(recipe) and not out:
        raise UsageError(
            f"'{recipe}' is a run.",
            "A run is never overwritten.",
            "Add --resume to go on with it, or --out DIR to train another with its settings.",
        )
    place = Path(out) if out else Path("runs") / Path(recipe).stem
    if resume and _is_run(place):
        folder = RunFolder.open(place)
        config = _same_run(folder.read_config(), config, moved=data is not None)
        reached = max(folder.saved_steps(), default=0)
        if reached > config.training.steps:
            raise UsageError(
                f"This run is already at step {reached:,}.",
                f"training.steps = {config.training.steps:,} would end before that.",
                "Give a larger number, or train anew with another --out DIR.",
            )
        return folder.path.resolve(), _train(config, folder)
    check_files(config)
    folder = RunFolder.create(place, config)
    try:
        if config.training.start_from and config.task != "classify-image":
            shutil.copyfile(Path(config.training.start_from) / "tokenizer.json", folder.path / "tokenizer.json")
        summary = _train(config, folder)
    except BaseException:
        if not folder.saved_steps():
            shutil.rmtree(folder.path, ignore_errors=True)
        raise
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


def check_files(config: Config) -> None:
    """Every file that is named is there."""
    data = config.data
    if config.task == "translate":
        pairs.splits(data)
    elif config.task == "classify-text":
        labelled.splits(data)
    elif config.task in ("classify-image", "pixels"):
        image_sources.check_sources(data)
    elif config.task != "synthetic":  # which makes its own data
        TextSource.of(data.text, data)
        for held_out in (data.valid, data.test):
            if held_out:
                TextSource.of(held_out, data)
    vectors = Path(data.root, config.training.embeddings)
    if config.training.embeddings and not vectors.is_file():
        raise RegardError(f"The word vectors '{vectors}' are missing.", "There is no such file.", "Check the path.")


# What a run that starts from another may still choose for itself.
OWN = {"dropout", "attention_dropout", "feedforward_dropout", "stochastic_depth"}
SHOWN = 6  # settings named that were taken over
STARTS: tuple[Task, ...] = ("language", "masked", "classify-text", "classify-image")


def taking_over(config: Config, overrides: Iterable[str] = ()) -> Config:
    """The config with the model and tokenizer settings of the run that it starts from.

    A recipe's own are replaced; one that was asked for in words, and is another, is an error.
    """
    place = Path(config.training.start_from)
    source = RunFolder.open(place).read_config()
    images = config.task == "classify-image"
    if source.task not in STARTS or (source.task == "classify-image") != images:
        raise UsageError(
            f"'{place}' cannot be started from.",
            f"It is {KINDS[source.task][0]}; the blocks of a {config.task} model fit another.",
            f"Give a run of the task {'classify-image' if images else 'masked, language or classify-text'}.",
        )
    for name in ("model.safetensors", "scale.json" if images else "tokenizer.json"):
        if not (place / name).is_file():
            raise RegardError(
                f"The run '{place}' has no {name} yet.", "Its training is not finished.", "Go on with it first."
            )
    tree = config.model_dump()
    own = OWN if images else OWN | {"pooling"}
    tree["model"] = source.model.model_dump() | {name: tree["model"][name] for name in own}
    tree["tokenizer"] = source.tokenizer.model_dump()
    tree["images"]["colour"] = source.images.colour  # the patches are made for so many channels
    causal = source.task == "language" or source.model.causal
    if config.task == "classify-text":
        tree["model"]["causal"] = causal
        if causal and config.model.pooling == "first":
            tree["model"]["pooling"] = "last"  # the first position of a causal model has seen nothing
    elif not images and causal != (config.task == "language"):
        raise UsageError(
            f"'{place}' cannot be started from.",
            f"It is {KINDS[source.task][0]}, which looks at other positions than a {config.task} model.",
            "Give a run of the same task.",
        )
    asked = config.model_dump()
    for key in (override.partition("=")[0].strip() for override in overrides):
        section, _, name = key.partition(".")
        fixed = section in ("model", "tokenizer") or key == "images.colour"
        if fixed and asked[section][name] != tree[section][name]:
            raise UsageError(
                f"{key} cannot be chosen here.",
                f"The run '{place}' has {key} = {toml_value(tree[section][name])}.",
                f"Leave it out: a model that starts from another has its shape{'' if images else ' and tokenizer'}.",
            )
    taken = [
        f"{section}.{name} = {toml_value(value)}"
        for section in ("model", "tokenizer", "images")
        for name, value in tree[section].items()
        if value != asked[section][name]
    ]
    if taken:
        more = f" and {len(taken) - SHOWN:,} more" if len(taken) > SHOWN else ""
        console.say(f"As in '{place}', not as in the recipe: {', '.join(taken[:SHOWN])}{more}.")
    # Without the other run it is checked as a whole, now that the model is known.
    alone = validate(tree | {"training": tree["training"] | {"start_from": ""}})
    return alone.model_copy(update={"training": alone.training.model_copy(update={"start_from": str(place)})})


def _is_run(path: str | Path) -> bool:
    return (Path(path) / "config.toml").is_file()


def _train(config: Config, folder: RunFolder) -> dict[str, Any]:
    """Train; what may happen at any moment becomes an error that says how to go on."""
    # Imported here: torch takes a second or two, and a mistake in the settings is told without it.
    from regard.hardware import out_of_memory
    from regard.tasks import task_class
    from regard.tasks.common import train_task
    from regard.training.loop import Interrupted

    try:
        return train_task(config, folder, task_class(config.task))
    except (Interrupted, KeyboardInterrupt):
        raise Interrupted(_how_to_go_on(folder)) from None
    except OSError as error:
        raise RegardError(
            f"Training stopped: a file of the run '{folder.path}' could not be written.",
            f"{error}",
            f"Free some room on the disk. {_how_to_go_on(folder)}",
        ) from None
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise RegardError(
            f"Out of memory with {config.batch_setting} = {config.batch_size:,}.",
            str(error).partition("\n")[0][:200] or "The machine has no more to give.",
            f"Lower {config.batch_setting}, raise training.micro_batches, or make the model smaller.",
        ) from None


def _how_to_go_on(folder: RunFolder) -> str:
    steps = folder.saved_steps()
    if not steps:
        return "Nothing was saved yet; give the same command again."
    return f"Step {steps[-1]:,} is saved. Go on with: regard train {shlex.quote(str(folder.path))} --resume"


def _same_run(saved: Config, asked: Config, moved: bool) -> Config:
    """Resuming takes the run's own settings; only how long, how often and where may be changed."""
    free = {
        "steps",
        "validate_every",
        "save_every",
        "log_every",
        "keep_checkpoints",
        "patience",
        "micro_batches",
        "root",
        "cache",
    }
    old, new = saved.model_dump(), asked.model_dump()
    for section in sorted(old.keys() - {"decoding", "system", "recipe"}):
        for key in old[section] if isinstance(old[section], dict) else [None]:
            before, after = (old[section][key], new[section][key]) if key else (old[section], new[section])
            if before != after and key not in free:
                name = f"{section}.{key}" if key else section
                raise UsageError(
                    f"This run cannot be resumed with {name} = {after!r}.",
                    f"It was started with {before!r}.",
                    "Resume without that change, or train anew with another --out DIR.",
                )
    # The data is where it was, unless --data says that it has moved.
    place = {"cache": new["data"]["cache"], "root": (new if moved else old)["data"]["root"]}
    changed = {section: new[section] for section in ("training", "decoding", "system")}
    return validate({**old, **changed, "data": old["data"] | place})
