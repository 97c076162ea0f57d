"""What `regard compare` does: the same recipe in several variants, over several seeds, in one table.

    runs/compare-RECIPE/
      plan.json                       what was asked, and how many steps each variant gets
      VARIANT/seed-K/                 an ordinary run folder; its messages are in seed-K.log beside it
      comparison.json  .md  .png      the result

Everything is checked before the first training. The same command again continues where it was stopped.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from regard import console, registry
from regard.cli.trainings import Signals, Training, run_all, watch
from regard.cli.variants import (
    Request,
    Variant,
    length_of,
    nothing_twice,
    rows_of_their_own,
    seeds_of,
    settings_of,
    steps_of,
    variants_of,
)
from regard.errors import Interrupted, RegardError, UsageError, first_problem
from regard.evaluation.compare import Outcome, TrainedVariant, compare, comparison_table
from regard.files import LOCK, locked, read_small, write_atomically, writing
from regard.recipes.writing import flat
from regard.run import check_files, read_recipe
from regard.settings import NOT_IN_THE_RESULT, TaskSettings
from regard.tables import markdown_table, text_table
from regard.training.folder import RunFolder, is_run

IN_USE = "Another comparison, or a training that one has left behind,"

# ---------------------------------------------------------------- from a recipe


def train_and_compare(request: Request) -> dict[str, Any]:
    """Train every variant with every seed, as far as it is not done, and compare."""
    variants, seeds = variants_of(request), seeds_of(request.seeds)
    nothing_twice(request, variants)
    own = {variant.name: settings_of(request, variant) for variant in variants}  # mistakes come before any work
    for settings in own.values():
        check_files(settings)
    shared = rows_of_their_own(request, variants, list(own.values()))
    if shared:
        own = {variant.name: settings_of(request, variant, shared) for variant in variants}
    recipe_steps = read_recipe(request.recipe, (), request.data).training.steps
    folder = request.folder
    lengths = _read_plan(request, variants)

    def length(variant: Variant, steps: int) -> list[str]:
        return length_of(request, variant, own[variant.name], recipe_steps, steps)

    if request.budget_kind != "seconds":
        lengths = {variant.name: length(variant, steps_of(request, own[variant.name])) for variant in variants}

    def to_train() -> list[Training]:
        planned = [variant for variant in variants if variant.name in lengths]
        return [
            training
            for variant in planned
            for training in _trainings(request, variant, [*shared, *lengths[variant.name]], seeds)
        ]

    to_train()  # settings that do not fit, or folders that hold something else, are reported before any work
    _make(folder)
    signals = Signals()
    with locked(folder, IN_USE) as lock, signals.caught():
        failed: dict[str, str] = {}
        for variant in variants:
            if variant.name not in lengths:
                try:
                    steps, compiled = _probe(request, variant, shared, signals, lock)
                    lengths[variant.name] = [*length(variant, steps), *compiled]
                except _ProbeFailed as error:
                    failed |= {_label(variant, seed): str(error) for seed in seeds}
                _stop_if_asked(signals, folder, variants, seeds)
            _write_plan(request, variants, lengths)
        trainings = to_train()
        done = len(variants) * len(seeds) - len(trainings) - len(failed)
        if done:
            console.say(f"{done} of {len(variants) * len(seeds)} trainings are finished already.")
        failed |= run_all(trainings, request.parallel, signals, lock, done)
        _stop_if_asked(signals, folder, variants, seeds)
    trained = [
        TrainedVariant(
            variant.name,
            variant.overrides,
            [_outcome(_run(folder, variant, seed)) for seed in seeds if _label(variant, seed) not in failed],
            {seed: failed[_label(variant, seed)] for seed in seeds if _label(variant, seed) in failed},
        )
        for variant in variants
    ]
    head = {"recipe": request.recipe, "settings": [*request.overrides, *shared], "budget": request.budget}
    task = next(iter(own.values())).task
    return _write(folder, head | compare(task, trained, _metrics_of(task)), trained)


def _metrics_of(task: str) -> tuple[str, ...]:
    metrics: tuple[str, ...] = registry.load("tasks", task).about.metrics
    return metrics


# ---------------------------------------------------------------- how long


class _ProbeFailed(Exception):
    """A variant that cannot even be started."""


def _probe(
    request: Request, variant: Variant, shared: Sequence[str], signals: Signals, lock: int
) -> tuple[int, list[str]]:
    """Train for a moment to see the steady speed: the steps in --seconds, and what the training must be told."""
    assert request.budget
    seconds = request.budget[1]
    console.say(f"Measuring the speed of {variant.name} …")
    endless = ["steps=1000000", "validate_every=1000000", "save_every=0", "log_every=1", "average_checkpoints=0"]
    for leftover in request.folder.glob(".probe-*"):  # of a comparison that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".probe-", dir=request.folder) as temporary:
        run = Path(temporary, "run")
        settings = [*request.overrides, *variant.overrides, *shared, *(f"training.{setting}" for setting in endless)]
        command = _command(request.recipe, *settings, "--out", str(run), *_data(request))
        enough = min(3.0, max(0.3, seconds / 10))
        lines, error = watch(
            Training(variant.name, command, Path(temporary, "log")),
            lambda: _steady(run, enough) is not None,
            signals,
            lock,
        )
        pace = _steady(run, enough)
        if pace is None:
            raise _ProbeFailed(error or "Its speed could not be measured.")
    steps = max(1, round(seconds / pace))
    console.say(f"  {pace * 1000:,.1f} ms per step: {steps:,} steps in {seconds:,} seconds.")
    # The run is to be as the probe was; by itself, a short one would not be compiled.
    compiled = any(line.startswith("Training ") and line.endswith(", compiled.") for line in lines)
    return steps, ["system.compile=yes"] if compiled else []


def _steady(run: Path, enough: float) -> float | None:
    """Seconds per step, without the first five, which compile and warm up; None: not yet known."""
    seen = [(record["step"], record["seconds"]) for record in RunFolder(run).read_metrics() if record["step"] >= 5]
    if len(seen) < 2:
        return None
    steps, seconds = seen[-1][0] - seen[0][0], seen[-1][1] - seen[0][1]
    known = (steps >= 10 and seconds >= enough) or (steps >= 3 and seconds >= 20)
    return seconds / steps if known else None


# ---------------------------------------------------------------- the plan and the trainings


class _Planned(BaseModel):
    overrides: list[str]
    settings: list[str]


class _Plan(BaseModel):
    """What plan.json holds."""

    asked: dict[str, Any]
    variants: dict[str, _Planned]


def _read_plan(request: Request, variants: Sequence[Variant]) -> dict[str, list[str]]:
    """The settings that each variant got before; an error if something else was asked for then."""
    folder = request.folder
    file = folder / "plan.json"
    if not file.is_file():
        if folder.is_file() or (folder.is_dir() and any(path.name != LOCK for path in folder.iterdir())):
            raise RegardError(
                f"'{folder}' is already there.", "It is not a comparison.", "Choose another path with --out DIR."
            )
        return {}
    try:
        plan = _Plan.model_validate_json(read_small(file))
    except (OSError, ValueError) as error:
        why = first_problem(error) if isinstance(error, ValidationError) else f"{error}"
        raise RegardError(
            f"Cannot read '{file}'.",
            f"{why} The trained runs beside it are not touched.",
            "Compare them with `regard compare RUN RUN …`, or choose another folder with --out DIR.",
        ) from None
    before = plan.asked | {f"variant {name}": listed.overrides for name, listed in plan.variants.items()}
    now = request.to_json() | {f"variant {variant.name}": variant.overrides for variant in variants}
    for key, value in now.items():
        if before.get(key, value) != value:
            raise UsageError(
                f"'{folder}' was made with other settings.",
                f"Its {key}: {_shown(before[key])}. Now: {_shown(value)}.",
                "Give the same command as before, or choose another folder with --out DIR.",
            )
    return {name: listed.settings for name, listed in plan.variants.items()}


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) or "none" if isinstance(value, list) else str(value) or "none"


def _write_plan(request: Request, variants: Sequence[Variant], plan: dict[str, list[str]]) -> None:
    file = request.folder / "plan.json"
    known = json.loads(file.read_text(encoding="utf-8"))["variants"] if file.is_file() else {}
    known |= {
        variant.name: {"overrides": variant.overrides, "settings": plan[variant.name]}
        for variant in variants
        if variant.name in plan
    }
    write_atomically(file, json.dumps({"asked": request.to_json(), "variants": known}, indent=2).encode())


def _make(folder: Path) -> None:
    with writing(folder, "Choose a writable path with --out DIR."):
        folder.mkdir(parents=True, exist_ok=True)


def _trainings(request: Request, variant: Variant, settings: Sequence[str], seeds: Sequence[int]) -> list[Training]:
    """What is still to be trained of a variant; an error if its folders hold something else."""
    trainings = []
    for seed in seeds:
        more = [*settings, f"seed={seed}"]
        run = _run(request.folder, variant, seed)
        started = is_run(run)
        if started and _finished(run, settings_of(request, variant, more)):
            continue
        overrides = [*request.overrides, *variant.overrides, *more]
        whole = _command(request.recipe, *overrides, "--out", str(run), "--resume", *_data(request))
        command = _command(str(run), "--resume") if started else whole
        trainings.append(Training(_label(variant, seed), command, run.with_name(f"seed-{seed}.log")))
    return trainings


def _finished(run: Path, settings: TaskSettings) -> bool:
    """Whether a run is at its end; an error if it is of other settings."""
    folder = RunFolder.open(run)
    before, now = _settings(folder.read_settings()), _settings(settings)
    for key, value in now.items():
        if before.get(key, value) != value:
            raise UsageError(
                f"'{run}' was trained with other settings.",
                f"It has {key} = {before[key]!r}; now it would be {value!r}.",
                "Give the same command as before, delete that run, or choose another folder with --out DIR.",
            )
    if not folder.summary.is_file():
        return False
    stops_early = bool(settings.training.patience)
    return stops_early or folder.read_json("summary.json")["steps"] >= settings.training.steps


def _settings(settings: TaskSettings) -> dict[str, Any]:
    """Every setting of a run, except where tokenised data is cached."""
    return {name: value for name, value in flat(settings).items() if name not in NOT_IN_THE_RESULT}


def _command(*arguments: str) -> list[str]:
    plugins = [word for plugin in registry.plugins() for word in ("--plugin", str(plugin.path))]
    return [sys.executable, "-m", "regard", "train", *arguments, "--json", *plugins]


def _data(request: Request) -> list[str]:
    return ["--data", str(request.data)] if request.data else []


def _outcome(path: Path) -> Outcome:
    folder = RunFolder.open(path)
    return Outcome.from_run(path, folder.read_json("summary.json"), folder.read_metrics())


def _run(folder: Path, variant: Variant, seed: int) -> Path:
    return folder / variant.folder / f"seed-{seed}"


def _label(variant: Variant, seed: int) -> str:
    return f"{variant.name} · seed {seed}"


def _stop_if_asked(signals: Signals, folder: Path, variants: Sequence[Variant], seeds: Sequence[int]) -> None:
    if not signals.asked:
        return
    done = sum((_run(folder, variant, seed) / "summary.json").is_file() for variant in variants for seed in seeds)
    raise Interrupted(
        f"{done} of {len(variants) * len(seeds)} trainings in '{folder}' are finished; those running are saved. "
        "Give the same command again to continue."
    )


# ---------------------------------------------------------------- from runs


def compare_runs(runs: Sequence[str], out: Path | None = None) -> dict[str, Any]:
    """The same table of runs that are trained already; those that differ only in their seed are one variant."""
    names = {Path(run).resolve(): run for run in runs}
    settings = {path: RunFolder.open(path).read_settings() for path in names}
    tasks = {each.task for each in settings.values()}
    if len(tasks) > 1:
        raise UsageError(
            f"These runs are of different tasks: {', '.join(sorted(tasks))}.",
            "Their metrics say different things.",
            "Give runs of one task.",
        )
    groups: dict[str, list[Path]] = {}
    for path, each in settings.items():
        same = {key: value for key, value in _settings(each).items() if key not in ("seed", "recipe")}
        groups.setdefault(json.dumps(same, sort_keys=True), []).append(path)
    for paths in groups.values():
        seeds = [settings[path].seed for path in paths]
        if len(set(seeds)) < len(seeds):
            raise UsageError(
                f"Among {', '.join(str(path) for path in paths)} two have the same settings and seed.",
                "Together they would look surer than they are.",
                "Leave one of them out.",
            )
    values = [json.loads(key) for key in groups]
    differing = _differing(values)
    trained = []
    for own, paths in zip(values, groups.values(), strict=True):
        overrides = [f"{key}={own[key]}" for key in differing if key in own]
        short = " ".join(f"{key.rpartition('.')[2]}={own[key]}" for key in differing if key in own)
        # Few differences are the best name; many, or none, leave the folder's.
        name = short if 1 <= len(differing) <= 3 else names[paths[0]]
        trained.append(TrainedVariant(name, overrides, [_outcome(path) for path in paths]))
    task = tasks.pop()
    result = compare(task, trained, _metrics_of(task))
    if any(key.startswith("data.") for key in differing):
        result["notes"].append("These runs differ in their data; metrics on different held-out data do not compare.")
    if out is None:
        return result
    _make(out)
    return _write(out, result, trained)


def _differing(values: Sequence[dict[str, Any]]) -> list[str]:
    """The settings in which runs differ; where the mixers do, not the own settings of each."""
    keys = list(dict.fromkeys(key for each in values for key in each))
    differing = [key for key in keys if any(each.get(key) != values[0].get(key) for each in values)]
    own = [key for key in differing if key.count(".") == 2]
    return [key for key in differing if key not in own or "model.mixer" not in differing]


# ---------------------------------------------------------------- the result


def _write(folder: Path, result: dict[str, Any], trained: Sequence[TrainedVariant]) -> dict[str, Any]:
    """The result as JSON, Markdown and a picture."""
    # matplotlib is slow to load, and the trainings are to start from a small process.
    from regard.explain.comparison import draw_comparison

    order = [variant["name"] for variant in result["variants"]]
    ranked = sorted(trained, key=lambda variant: order.index(variant.name))
    picture = folder / "comparison.png"
    with writing(folder, "Free some room on the disk."):
        draw_comparison(ranked, result["metric"], picture)
        if picture.is_file():
            result = result | {"picture": str(picture.resolve())}
        result = result | {"folder": str(folder.resolve())}
        notes = "\n".join(f"- {note}" for note in result["notes"])
        picture_line = "\n![curves and final metrics](comparison.png)\n" if "picture" in result else ""
        text = f"# {folder.name}\n\n{markdown_table(*comparison_table(result))}\n\n{notes}\n{picture_line}"
        write_atomically(folder / "comparison.json", json.dumps(result, indent=2, ensure_ascii=False).encode())
        write_atomically(folder / "comparison.md", text.encode())
    return result


def report(result: dict[str, Any]) -> str:
    lines = [text_table(*comparison_table(result)), "", *result["notes"]]
    if "folder" in result:
        lines += ["", result["folder"], *([result["picture"]] if "picture" in result else [])]
    return "\n".join(lines).rstrip()
