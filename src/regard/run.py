"""A run folder from recipe to finished run: create, train, resume, open, load.

A training that fails or is stopped before its first checkpoint leaves no folder behind, so that the same
command can be given again. After that the folder stays, and `--resume` continues from the newest checkpoint.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from regard import console, registry
from regard.errors import Interrupted, RegardError, UsageError
from regard.files import locked
from regard.recipes import complete, from_toml, recipe_text, validate
from regard.recipes.writing import flat, to_toml
from regard.settings import NOT_IN_THE_RESULT, Auto, TaskSettings
from regard.startup import launched, one_of_several, uncollected, wake_gpu
from regard.tasks.batch_size import with_batch_size
from regard.tasks.room import check_room_to_load, check_room_to_train, smaller
from regard.tasks.starting import check_word_vectors, inherit_settings, starts_from, taken_over
from regard.tasks.task import Task
from regard.training.folder import RunFolder, is_run
from regard.training.manifest import MANIFEST
from regard.version import __version__

# What may change when a run is resumed; all else decides the numbers.
FREE = {"recipe", "data.root", *NOT_IN_THE_RESULT} | {
    f"training.{name}"
    for name in (
        "steps",
        "validate_every",
        "save_every",
        "log_every",
        "keep_checkpoints",
        "patience",
        "micro_batches",
        "shard",
    )
}
ENVIRONMENT = "environment.json"
FREE_SECTIONS = ("decoding.", "system.")


# ---------------------------------------------------------------- open and load


def open_run(path: Path | str, data: Path | str | None = None) -> Task[Any]:
    """The run in this folder as its task, nothing loaded yet: quick. `data`: where its own data is now."""
    folder = RunFolder.open(path)
    settings = folder.read_settings()
    if data is not None:
        settings = settings.with_section("data", root=str(Path(data).resolve()))
    task: Task[Any] = registry.load("tasks", settings.task)(settings, folder)
    return task


def load(path: Path | str, device: str = "auto", data: Path | str | None = None) -> Any:
    """The run in this folder, with its model ready to use."""
    return load_weights(open_run(path, data), device)


def load_weights(task: Task[Any], device: str = "auto") -> Task[Any]:
    """Put an opened run's model on a device, with its weights: mapped on a CPU, copied to a GPU from where they lie."""
    checked = task.folder.checked_meanwhile(task.folder.model.name)  # begins before torch is loaded
    wake_gpu(device)
    with uncollected():
        from regard.hardware import Hardware
        from regard.models.blank import Blank
        from regard.recipes import changed
        from regard.training.checkpoint import load_model, read_weights

    task.hardware = Hardware.choose(changed(task.settings.system, device=device))
    if not (task.folder.path / MANIFEST).exists():
        console.warn(f"The run '{task.folder.path}' has no {MANIFEST}: whether its files are damaged is not known.")
    with task.hardware.waking():
        weights = read_weights(task.folder, checked)
        task.restore()
        check_room_to_load(task, weights)
        with Blank():
            model = task.build()
        load_model(model, weights, task.folder.path)
        if task.hardware.device.type == "cuda":
            for name in task.used_on_gpu:
                with suppress(ImportError):  # without Triton
                    import_module(name)
    task.model = model.to(task.hardware.device).eval()
    return task


def require(task: Task[Any], *abilities: str) -> None:
    """A clear error if a run cannot do any of these."""
    if any(hasattr(task, ability) for ability in abilities):
        return
    kinds = [registry.load("tasks", name) for name in registry.names("tasks")]
    able = [kind.about.noun for kind in kinds if any(hasattr(kind, ability) for ability in abilities)]
    path = task.folder.path
    raise UsageError(
        f"'{path}' is {task.about.noun}.", f"This needs {' or '.join(able)}.", f"Use `regard {task.about.verb} {path}`."
    )


# ---------------------------------------------------------------- from a recipe


def read_recipe(recipe: str, overrides: Iterable[str] = (), data: str | Path | None = None) -> Any:
    """A recipe by name, file or run folder as complete settings, with its data's root made absolute."""
    from_run = is_run(recipe)
    file = str(Path(recipe) / "config.toml") if from_run else recipe
    if from_run:
        RunFolder.open(recipe).check_plugins()
        RunFolder.open(recipe).checked("config.toml")
    settings = from_toml(recipe_text(file), Path(file).stem, overrides, of_run=from_run)
    if hasattr(settings, "data"):
        # A user's own recipe names files from where it lies; a ready-made one from the current folder.
        start = Path(file).parent if file.endswith(".toml") else Path()
        # Absolute, so that the run can be resumed and scored from any folder.
        root = Path(data).resolve() if data is not None else (start / settings.data.root).resolve()
        settings = settings.with_section("data", root=str(root))
    if starts_from(settings):
        return settings  # its model is that of another run, and is completed when that is known
    return complete(settings)


def check_files(settings: TaskSettings) -> None:
    """Every file that the settings name is there."""
    registry.load("tasks", settings.task).check_files(settings)
    check_word_vectors(settings)


def train(
    recipe: str,
    overrides: Iterable[str] = (),
    out: str | Path | None = None,
    data: str | Path | None = None,
    resume: bool = False,
    start_from: str | Path | None = None,
    embeddings: str | Path | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Train a recipe, or continue a run; the run folder and its summary."""
    if several():
        one_of_several()
    changes = list(overrides)
    if embeddings is not None:
        changes.append(f"training.embeddings={json.dumps(str(Path(embeddings).resolve()))}")
    if start_from is not None:
        changes.append(f"training.start_from={json.dumps(str(Path(start_from).resolve()))}")
    settings = read_recipe(recipe, changes, data)
    path = Path(out) if out else Path(recipe) if resume and is_run(recipe) else Path("runs") / Path(recipe).stem
    if (source := starts_from(settings)) and not (resume and is_run(recipe)):  # a run has inherited already
        if resume and is_run(path) and not is_run(source):
            raise UsageError(
                f"'{source}', from which this run was started, is no longer there.",
                "Without it, the settings cannot be compared.",
                f"Continue the run with its own settings: regard train {shlex.quote(str(path))} --resume",
            )
        settings = inherit_settings(settings, changes)
    if is_run(recipe) and not resume and not out:
        raise UsageError(
            f"'{recipe}' is a run.",
            "A run is never overwritten.",
            "Add --resume to continue it, or --out DIR to train another with its settings.",
        )
    if several():
        return path.resolve(), _train_together(settings, path, resume, changes, moved=data is not None)
    return path.resolve(), _train_in(settings, path, resume, changes, moved=data is not None)


def _train_in(
    settings: TaskSettings, path: Path, resume: bool, changes: list[str], moved: bool, processes: Any = None
) -> dict[str, Any]:
    """Create the run folder, or open it, and train in it."""
    if resume and is_run(path):
        folder = RunFolder.open(path)
        with locked(folder.path):
            return _train(_resumed(folder, settings, changes, moved), folder, processes)
    check_files(settings)
    folder = RunFolder.create(path, to_toml(settings), registry.plugins_of(settings.parts), taken_over(settings))
    with locked(folder.path):
        try:
            return _train(settings, folder, processes)
        except BaseException:
            if not folder.saved_steps():
                _discard(folder)
            raise


def _discard(folder: RunFolder) -> None:
    """Remove a run as a whole: what a second signal leaves half-way could be neither resumed nor begun again."""
    doomed = folder.path.with_name(f".{folder.path.name}.{os.getpid()}.tmp")
    try:
        folder.path.rename(doomed)
    except OSError:
        doomed = folder.path
    shutil.rmtree(doomed, ignore_errors=True)


# ---------------------------------------------------------------- one training, several processes


def several() -> bool:
    """Whether this is one of several processes of a training: torchrun and others say so in the environment."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


def _train_together(
    settings: TaskSettings, path: Path, resume: bool, changes: list[str], moved: bool
) -> dict[str, Any]:
    """The same for one of several processes. The first has the run folder; the others look at a copy of it."""
    from regard.hardware import Hardware
    from regard.training.meeting import joined
    from regard.training.processes import check_share

    with joined(lambda: Hardware.choose(settings.system).device, settings.system.patience) as processes:
        asked = {name: value for name, value in flat(settings).items() if name not in NOT_IN_THE_RESULT}
        whole = {"the version of Regard": __version__, "the run folder": str(path.resolve())}
        processes.must_agree(whole | {"which settings there are": sorted(asked)})
        processes.must_agree({f"the setting {name}": value for name, value in asked.items()})
        check_share(settings.training.pieces, processes.count, getattr(settings.training, "reduce", "exact"))
        if processes.first:
            return _train_in(settings, path, resume, changes, moved, processes)
        with console.silent(), tempfile.TemporaryDirectory(prefix="regard-") as scratch:
            told = processes.tell()  # once the run folder is there, with the settings that it has
            settings = from_toml(told, name=str(path), of_run=True)
            folder = RunFolder.create(Path(scratch, "run"), told)
            folder.checkpoints.symlink_to(path.resolve() / folder.checkpoints.name)
            return _train(settings, folder, processes, path)


def _prepare(task: Task[Any], processes: Any, original: Path | None) -> None:
    """The first process makes what is prepared once: the tokenizer, cached data. The others then find it."""
    if processes is None:
        task.prepare()
        return
    if processes.first:
        task.prepare()
    processes.wait()
    if original is not None:
        _copy_prepared(task, original)
    processes.wait()  # until all have their copies, nothing in the run folder changes
    if original is not None:
        task.prepare()


def _copy_prepared(task: Task[Any], original: Path) -> None:
    """What the first process has prepared in the run folder, for one that looks at a copy of it."""
    if not original.is_dir():
        raise RegardError(
            f"There is no '{original}' here.",
            "The first process has made this run folder, but it is not on a disk that all of them share.",
            "Choose a folder that every machine has, with --out DIR.",
        )
    for path in original.iterdir():
        if path.is_file() and not path.name.startswith(".") and path.suffix in (".json", ".vec", ".txt"):
            shutil.copy(path, task.folder.path)


def _resumed(folder: RunFolder, asked: TaskSettings, changes: list[str], moved: bool) -> Any:
    """The run's own settings; only how long, how often and where may be changed. `changes`: of the command."""
    folder.check_plugins(resume=True)
    saved = folder.read_settings()
    if (source := starts_from(saved)) and not starts_from(asked):
        raise UsageError(
            f"This run was started from '{source}'.",
            "The command says nothing of that, and so asks for another model.",
            f"Add --from {shlex.quote(source)}, or give: regard train {shlex.quote(str(folder.path))} --resume",
        )
    if isinstance(asked.batch_size, Auto):  # it is known by now
        section, _, name = asked.BATCH.partition(".")
        asked = asked.with_section(section, **{name: saved.batch_size})
    before, after = flat(saved), flat(asked)
    for key in sorted(before.keys() | after.keys()):
        if key not in FREE and not key.startswith(FREE_SECTIONS) and before.get(key) != after.get(key):
            raise UsageError(
                f"This run cannot be resumed with {key} = {after.get(key)!r}.",
                f"It was started with {before.get(key)!r}.",
                "Resume without that change, or train again with another --out DIR.",
            )
    old, new = saved.model_dump(), asked.model_dump()
    changed: dict[str, Any] = {
        section: new[section] for section in ("training", "decoding", "system") if section in new
    }
    if not any(change.startswith("training.micro_batches=") for change in changes):
        # For want of memory, the run may have been split into more pieces than its recipe says.
        pieces = max(saved.training.pieces, asked.training.pieces)
        changed["training"] |= {"micro_batches": pieces} if pieces > 1 else {}
    if "data" in old:
        # The data is where it was, unless --data says that it has moved.
        free = {name: f"data.{name}" in NOT_IN_THE_RESULT or (moved and name == "root") for name in new["data"]}
        changed["data"] = old["data"] | {name: value for name, value in new["data"].items() if free[name]}
    return validate({**old, **changed})


# ---------------------------------------------------------------- training


def _train(
    settings: TaskSettings, folder: RunFolder, processes: Any = None, original: Path | None = None
) -> dict[str, Any]:
    """Train; what may happen at any moment becomes an error that says how to continue.

    `processes`: those that train together. `original`: the run folder, where `folder` is a copy of it.
    """
    # Imported here: torch takes a second or two, and a mistake in the settings is reported without it.
    wake_gpu(settings.system.device)
    with uncollected():
        from regard.hardware import memory_errors

    named = RunFolder(original) if original else folder
    try:
        if processes and processes.first:
            processes.tell(to_toml(settings))
        folder.sweep()
        # A step that does not fit is computed in more pieces: here one row did not, or what is not a batch at all.
        with memory_errors(f"with {settings.BATCH} = {settings.batch_size:,}", f"Lower {smaller(settings)}."):
            return _train_task(registry.load("tasks", settings.task)(settings, folder), processes, original)
    except (Interrupted, KeyboardInterrupt):
        raise Interrupted(_how_to_continue(settings, named)) from None
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise RegardError(
            f"Training '{named.path}' stopped: a file could not be read or written.",
            f"{error}",
            f"{'Free some room on the disk. ' if full else ''}{_how_to_continue(settings, named)}",
        ) from None


def _train_task(task: Task[Any], processes: Any, original: Path | None) -> dict[str, Any]:
    """Prepare, train or continue training, test, and leave a finished run. Returns its summary."""
    from regard.hardware import Hardware

    task.hardware = Hardware.choose(task.settings.system, task.settings.saved_by_compiling)
    task.hardware.check_training()
    if isinstance(task.settings.batch_size, Auto):
        task = with_batch_size(task)
        task.hardware = Hardware.choose(task.settings.system, task.settings.saved_by_compiling)  # now that it is known
    console.say(f"Training '{task.settings.recipe}' on {task.hardware.describe()}.")
    with task.hardware.reproducible():
        return _train_on_hardware(task, processes, original)


def _train_on_hardware(task: Task[Any], processes: Any, original: Path | None) -> dict[str, Any]:
    """The same, where it is known what it runs on."""
    from regard.hardware import seed_everything
    from regard.training.compiling import compiler_ahead
    from regard.training.loop import Trainer
    from regard.training.processes import ALONE
    from regard.training.rehearsal import kernels_ahead

    settings, folder = task.settings, task.folder
    for remark in settings.remarks():
        console.warn(remark)
    with task.hardware.waking(), compiler_ahead(task.hardware.compile), kernels_ahead(task):
        _prepare(task, processes, original)
    check_room_to_train(task, processes.count if processes and settings.training.shard else 1)
    seed_everything(settings.seed)
    task.model = task.build()
    task.train_with(processes or ALONE)
    trainer = Trainer(task, processes or ALONE)
    folder.write_text("config.toml", to_toml(settings))  # a resumed run may have been given more steps
    if trainer.resumed_at < settings.training.steps:
        _note_environment(task, trainer.resumed_at, processes or ALONE)
    parameters = sum(parameter.numel() for parameter in task.model.parameters())
    console.say(f"{task.describe()} · {parameters:,} parameters")
    model = settings.model.model_dump() if hasattr(settings, "model") else {}
    folder.write_json("config.json", task.architecture() | {"model": model})
    with trainer.pictures:
        progress = trainer.run()
        trainer.finish(original)
        metrics = task.test()
    if original is not None:
        return {}  # the first process says what came of it
    return _write_summary(task, progress.step, progress.seconds, parameters, trainer.memory, metrics)


def _note_environment(task: Task[Any], step: int, processes: Any) -> None:
    """Add what the run is made with from this step on to its history; warn if that gives other last bits."""
    from regard.hardware import environment, other_bits

    now = {"from_step": step, "processes": processes.count} | task.hardware.to_json() | environment()
    history = []
    if task.folder.has(ENVIRONMENT):
        before = task.folder.read_json(ENVIRONMENT, list[dict[str, Any]] | dict[str, Any])
        history = before if isinstance(before, list) else [before]  # earlier versions kept only the newest
        history = [entry for entry in history if entry.get("from_step", 0) < step]
    if history and (different := other_bits(history[-1], now)):
        named = ", ".join(f"{name.replace('_', ' ')} {then} → {current}" for name, (then, current) in different.items())
        remedy = ""
        if "torch_threads" in different:
            remedy = f" Add system.threads={different['torch_threads'][0]} for the same number of threads."
        console.warn(
            f"This run continues under other conditions: {named}. It will not be bit-identical to an uninterrupted "
            f"run.{remedy}"
        )
    task.folder.write_json(ENVIRONMENT, [*history, now])


def _write_summary(
    task: Task[Any], steps: int, seconds: float, parameters: int, memory: dict[str, int], metrics: dict[str, float]
) -> dict[str, Any]:
    """Leave summary.json for scripts and README.md for people."""
    from regard.hardware import peak_memory

    summary = {
        "task": task.settings.task,
        "recipe": task.settings.recipe,
        "seed": task.settings.seed,
        "steps": steps,
        "seconds": round(seconds, 1),
        "parameters": parameters,
        "device": task.hardware.describe(),
        **memory,
        "peak_memory_bytes": peak_memory(task.hardware.device),
        "metrics": metrics,
        "next": [command + _plugin_options(task.settings) for command in task.next_commands()],
    }
    task.folder.write_text("README.md", _readme(task.folder, summary))
    task.folder.write_json("summary.json", summary)
    task.folder.manifest.close()
    return summary


def _plugin_options(settings: TaskSettings) -> str:
    return "".join(f" --plugin {shlex.quote(str(plugin.path))}" for plugin in registry.plugins_of(settings.parts))


def _readme(folder: RunFolder, summary: dict[str, Any]) -> str:
    metrics = "\n".join(f"| {name} | {value:.4g} |" for name, value in summary["metrics"].items())
    commands = "\n".join(summary["next"])
    vocabulary = ", `tokenizer.json` its vocabulary" if (folder.path / "tokenizer.json").exists() else ""
    return f"""# {folder.path.name}

Trained with Regard from the recipe `{summary["recipe"]}` ({summary["task"]}): {summary["steps"]:,} steps,
{summary["parameters"]:,} parameters, on {summary["device"]}. Metrics on held-out data:

| | |
|---|---|
{metrics}

```
{commands}
```

`model.safetensors` and `config.json` are the model{vocabulary}, `config.toml` every setting,
`metrics.jsonl` the course of training, `checkpoints/` what `--resume` continues from.
"""


def _how_to_continue(settings: TaskSettings, folder: RunFolder) -> str:
    steps = folder.saved_steps()
    if not folder.path.exists():
        return f"'{folder.path}' is gone. If it was moved, continue it where it is now: regard train RUN --resume"
    if not steps:
        return "Nothing was saved yet; give the same command again."
    together = f" --processes {os.environ['WORLD_SIZE']}" if launched() and several() else ""
    command = f"regard train {shlex.quote(str(folder.path))} --resume{together}{_plugin_options(settings)}"
    return f"Step {steps[-1]:,} is saved. Continue with: {command}"
