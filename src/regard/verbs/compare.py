"""`regard compare`: the same recipe in several variants, over several seeds, in one table.

    runs/compare-RECIPE/
      plan.json                       what was asked, and how many steps each variant gets
      VARIANT/seed-K/                 an ordinary run folder; its messages are in seed-K.log beside it
      comparison.json  .md  .png      the result

Everything is checked before the first training. The same command again goes on where it was stopped.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard import console
from regard.settings import Config
from regard.errors import RegardError, UsageError
from regard.evaluation.compare import Outcome, Trained, compare, markdown_table, plain_table
from regard.experiment import check_files
from regard.files import write_atomically
from regard.recipes import settings_of
from regard.training.folder import RunFolder
from regard.verbs.trainings import Signals, Training, locked, run_all, watch
from regard.verbs.variants import (
    Request,
    Variant,
    config_of,
    length_of,
    nothing_twice,
    rows_of_their_own,
    seeds_of,
    steps_of,
    variants_of,
)

# ---------------------------------------------------------------- from a recipe


def train_and_compare(request: Request) -> dict[str, Any]:
    """Train every variant with every seed, as far as it is not done, and compare."""
    variants, seeds = variants_of(request), seeds_of(request.seeds)
    nothing_twice(request, variants)
    own = {variant.name: config_of(request, variant) for variant in variants}  # a mistake is told before any work
    for config in own.values():
        check_files(config)
    shared = rows_of_their_own(request, variants, list(own.values()))
    own = {variant.name: config_of(request, variant, shared) for variant in variants}
    folder = request.folder
    lengths = _read_plan(request, variants)
    if request.budget_kind != "seconds":
        lengths = {
            variant.name: length_of(request, variant, steps_of(request, own[variant.name])) for variant in variants
        }

    def to_train() -> list[Training]:
        planned = [variant for variant in variants if variant.name in lengths]
        return [
            training
            for variant in planned
            for training in _trainings(request, variant, [*shared, *lengths[variant.name]], seeds)
        ]

    to_train()  # settings that do not fit, or folders that hold something else, are told of before any work
    _make(folder)
    signals = Signals()
    with locked(folder) as lock, signals.caught():
        failed: dict[str, str] = {}
        for variant in variants:
            if variant.name not in lengths:
                try:
                    lengths[variant.name] = _probe(request, variant, shared, signals, lock)
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
        Trained(
            variant.name,
            variant.overrides,
            [Outcome.of(_run(folder, variant, seed)) for seed in seeds if _label(variant, seed) not in failed],
            {seed: failed[_label(variant, seed)] for seed in seeds if _label(variant, seed) in failed},
        )
        for variant in variants
    ]
    head = {"recipe": request.recipe, "settings": [*request.overrides, *shared], "budget": request.budget}
    return _write(folder, head | compare(next(iter(own.values())).task, trained), trained)


# ---------------------------------------------------------------- how long


class _ProbeFailed(Exception):
    """A variant that cannot even be started."""


def _probe(request: Request, variant: Variant, shared: Sequence[str], signals: Signals, lock: int) -> list[str]:
    """Train for a moment to see the steady speed, and from it the settings for --seconds."""
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
    console.say(f"  {pace * 1000:,.1f} ms a step: {steps:,} steps in {seconds:,} seconds.")
    # The run is to be as the probe was; by itself, a short one would not be compiled.
    compiled = any(line.startswith("Training ") and line.endswith(", compiled.") for line in lines)
    return [*length_of(request, variant, steps), *(["system.compile=yes"] if compiled else [])]


def _steady(run: Path, enough: float) -> float | None:
    """Seconds a step, without the first five, which compile and make ready; None: not yet known."""
    seen = [(record["step"], record["seconds"]) for record in RunFolder(run).read_metrics() if record["step"] >= 5]
    if len(seen) < 2:
        return None
    steps, seconds = seen[-1][0] - seen[0][0], seen[-1][1] - seen[0][1]
    known = (steps >= 10 and seconds >= enough) or (steps >= 3 and seconds >= 20)
    return seconds / steps if known else None


# ---------------------------------------------------------------- the plan and the trainings


def _read_plan(request: Request, variants: Sequence[Variant]) -> dict[str, list[str]]:
    """The settings that each variant got before; an error if something else was asked for then."""
    folder = request.folder
    file = folder / "plan.json"
    if not file.is_file():
        if folder.is_file() or (folder.is_dir() and any(path.name != ".lock" for path in folder.iterdir())):
            raise RegardError(
                f"'{folder}' is already there.", "It is not a comparison.", "Choose another place with --out DIR."
            )
        return {}
    try:
        plan = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RegardError(
            f"Cannot read '{file}'.",
            f"{error} The trained runs beside it are not touched.",
            "Compare them with `regard compare RUN RUN …`, or choose another folder with --out DIR.",
        ) from None
    before = plan["asked"] | {f"variant {name}": listed["overrides"] for name, listed in plan["variants"].items()}
    now = request.to_json() | {f"variant {variant.name}": variant.overrides for variant in variants}
    for key, value in now.items():
        if before.get(key, value) != value:
            raise UsageError(
                f"'{folder}' was made with other settings.",
                f"Its {key}: {_shown(before[key])}. Now: {_shown(value)}.",
                "Give the same command as before, or choose another folder with --out DIR.",
            )
    return {name: listed["settings"] for name, listed in plan["variants"].items()}


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
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegardError(
            f"Cannot make the folder '{folder}'.", f"{error}", "Choose a writable place with --out DIR."
        ) from None


def _trainings(request: Request, variant: Variant, settings: Sequence[str], seeds: Sequence[int]) -> list[Training]:
    """What is still to be trained of a variant; an error if its folders hold something else."""
    found = []
    for seed in seeds:
        more = [*settings, f"seed={seed}"]
        config = config_of(request, variant, more)
        run = _run(request.folder, variant, seed)
        started = (run / "config.toml").is_file()
        if started and _finished(run, config):
            continue
        overrides = [*request.overrides, *variant.overrides, *more]
        whole = _command(request.recipe, *overrides, "--out", str(run), "--resume", *_data(request))
        command = _command(str(run), "--resume") if started else whole
        found.append(Training(_label(variant, seed), command, run.with_name(f"seed-{seed}.log")))
    return found


def _finished(run: Path, config: Config) -> bool:
    """Whether a run is at its end; an error if it is of other settings."""
    folder = RunFolder.open(run)
    before, now = flat(folder.read_config()), flat(config)
    for key, value in now.items():
        if before.get(key, value) != value:
            raise UsageError(
                f"'{run}' was trained with other settings.",
                f"It has {key} = {before[key]!r}; now it would be {value!r}.",
                "Give the same command as before, delete that run, or choose another folder with --out DIR.",
            )
    if not folder.summary.is_file():
        return False
    stops_early = bool(config.training.patience)
    return stops_early or folder.read_json("summary.json")["steps"] >= config.training.steps


def flat(config: Config) -> dict[str, Any]:
    """Every setting of a run, but for where tokenised data is kept."""
    return {name: value for name, value in settings_of(config).items() if name != "data.cache"}


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "regard", "train", *arguments, "--json"]


def _data(request: Request) -> list[str]:
    return ["--data", str(request.data)] if request.data else []


def _run(folder: Path, variant: Variant, seed: int) -> Path:
    return folder / variant.place / f"seed-{seed}"


def _label(variant: Variant, seed: int) -> str:
    return f"{variant.name} · seed {seed}"


def _stop_if_asked(signals: Signals, folder: Path, variants: Sequence[Variant], seeds: Sequence[int]) -> None:
    if not signals.asked:
        return
    from regard.training.loop import Interrupted

    done = sum((_run(folder, variant, seed) / "summary.json").is_file() for variant in variants for seed in seeds)
    raise Interrupted(
        f"{done} of {len(variants) * len(seeds)} trainings in '{folder}' are finished; those under way are saved. "
        "Give the same command again to go on."
    )


# ---------------------------------------------------------------- from runs


def compare_runs(runs: Sequence[str], out: Path | None = None) -> dict[str, Any]:
    """The same table of runs that are trained already; those that differ only in their seed are one variant."""
    places = {Path(run).resolve(): run for run in runs}
    configs = {place: RunFolder.open(place).read_config() for place in places}
    tasks = {config.task for config in configs.values()}
    if len(tasks) > 1:
        raise UsageError(
            f"These runs are of different tasks: {', '.join(sorted(tasks))}.",
            "Their figures say different things.",
            "Give runs of one task.",
        )
    groups: dict[str, list[Path]] = {}
    settings = {place: flat(config) for place, config in configs.items()}
    for place, values in settings.items():
        same = {key: value for key, value in values.items() if key not in ("seed", "recipe")}
        groups.setdefault(json.dumps(same, sort_keys=True), []).append(place)
    for listed in groups.values():
        seeds = [configs[place].seed for place in listed]
        if len(set(seeds)) < len(seeds):
            raise UsageError(
                f"Among {', '.join(str(place) for place in listed)} two have the same settings and seed.",
                "Together they would look surer than they are.",
                "Leave one of them out.",
            )
    firsts = [json.loads(key) for key in groups]
    differing = [key for key in firsts[0] if any(values[key] != firsts[0][key] for values in firsts)]
    if "model.mixer" in differing and "model.hyena_filter_length" in differing:
        differing.remove("model.hyena_filter_length")  # follows from the mixer
    trained = []
    for values, listed in zip(firsts, groups.values(), strict=True):
        overrides = [f"{key}={values[key]}" for key in differing]
        short = " ".join(f"{key.rpartition('.')[2]}={values[key]}" for key in differing)
        # Few differences are the best name; many, or none, leave the folder's.
        name = short if 1 <= len(differing) <= 3 else places[listed[0]]
        trained.append(Trained(name, overrides, [Outcome.of(place) for place in listed]))
    found = compare(tasks.pop(), trained)
    if any(key.startswith("data.") for key in differing):
        found["notes"].append("These runs differ in their data; figures on different held-out data do not compare.")
    if out is None:
        return found
    _make(out)
    return _write(out, found, trained)


# ---------------------------------------------------------------- the result


def _write(folder: Path, found: dict[str, Any], trained: Sequence[Trained]) -> dict[str, Any]:
    """The result as JSON, Markdown and a picture."""
    # matplotlib is slow to load, and the trainings are to start from a small process.
    from regard.explain.comparison import comparison

    order = [variant["name"] for variant in found["variants"]]
    ranked = sorted(trained, key=lambda variant: order.index(variant.name))
    picture = folder / "comparison.png"
    comparison(ranked, found["figure"], picture)
    if picture.is_file():
        found = found | {"picture": str(picture.resolve())}
    found = found | {"folder": str(folder.resolve())}
    lines = "\n".join(f"- {note}" for note in found["notes"])
    picture_line = "\n![curves and final figures](comparison.png)\n" if "picture" in found else ""
    text = f"# {folder.name}\n\n{markdown_table(found)}\n\n{lines}\n{picture_line}"
    try:
        write_atomically(folder / "comparison.json", json.dumps(found, indent=2, ensure_ascii=False).encode())
        write_atomically(folder / "comparison.md", text.encode())
    except OSError as error:
        raise RegardError(f"Cannot write to '{folder}'.", f"{error}", "Free some room on the disk.") from None
    return found


def report(found: dict[str, Any]) -> str:
    lines = [plain_table(found), "", *found["notes"]]
    if "folder" in found:
        lines += ["", found["folder"], *([found["picture"]] if "picture" in found else [])]
    return "\n".join(lines).rstrip()
