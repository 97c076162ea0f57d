"""`regard doctor`: the machine, and the data of a recipe, before any long work."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import DataOption, JsonOption, OverridesArgument, app, show
from regard.errors import RegardError, UsageError


@app.command()
def doctor(
    recipe: Annotated[str, typer.Argument(help="A recipe whose data to check.", show_default=False)] = "",
    overrides: OverridesArgument = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine, and the data of a recipe.

    Counts, lengths, repeated pairs, test sentences that are also in train, pairs of very unequal length. An error
    where there can be no training, as with nothing left to test on.
    With --data alone, files named train.*, val* or dev*, and test* are looked for.
    """
    result = _examine(recipe, overrides or [], data)
    show(result, as_json, _report)
    from regard.data.splits import Obstacle

    for line in result.get("advice", []):
        if isinstance(line, Obstacle):
            raise RegardError("There can be no training with this data.", line, "Correct [data], or add to its files.")


def _examine(recipe: str, overrides: Iterable[str], data: Path | None) -> dict[str, Any]:
    """What a training would find here."""
    import shutil

    from regard import registry
    from regard.data.cache import cache_folder
    from regard.run import read_recipe
    from regard.settings import SystemSettings

    if not recipe and data is not None:
        recipe, named = _recipe_for(data)
        overrides = [*named, *overrides]
    settings = read_recipe(recipe, overrides, data) if recipe else None
    from regard.hardware import Hardware, environment  # torch: not before a mistake in the settings is reported

    result: dict[str, Any] = {
        "machine": environment()
        | {
            "would_use": Hardware.choose(SystemSettings()).describe(),
            "cache": str(cache_folder("")),
            "free_disk_bytes": shutil.disk_usage(Path.home()).free,
        }
    }
    if settings is not None:
        result["task"] = settings.task
        result["data"], advice = registry.load("tasks", settings.task).examine(settings)
        result["advice"] = advice or ["Nothing looks wrong."]
    return result


def _recipe_for(folder: Path) -> tuple[str, list[str]]:
    """A recipe for what lies in a folder, images or sentence pairs, and settings that name it."""
    from regard.data.idx_files import is_idx_name
    from regard.data.images import files_below, is_image_name

    if any(is_image_name(path.name) or is_idx_name(path.name) for path in files_below(folder)):
        return "digits", ['data.sample=""', "data.images=.", "images.size=32", "images.colour=true"]
    return "starter", _pairs_in(folder)


def _pairs_in(folder: Path) -> list[str]:
    """Settings that name the data of a folder, going by the files' names: train.en and train.de, val.en …"""
    settings = []
    for split, begins in {"train": ("train",), "valid": ("val", "dev"), "test": ("test",)}.items():
        files = sorted(path.name for path in folder.glob("*") if path.name.startswith(begins))
        # Of several test sets, the first.
        same_set = [name for name in files if name.split(".")[0] == files[0].split(".")[0]]
        if len(same_set) > 2:
            raise UsageError(
                f"'{folder}' holds several {split} files: {', '.join(same_set)}.",
                "It is not clear which two belong together.",
                "Name a recipe that says so: regard doctor mine.toml",
            )
        if len(same_set) == 2 or (len(same_set) == 1 and ".tsv" in same_set[0]):
            settings.append(f"data.{split}={json.dumps(same_set)}")
    if not any(setting.startswith("data.train=") for setting in settings):
        raise UsageError(
            f"There is no training data in '{folder}'.",
            "Two files such as train.en and train.de are looked for, one train.tsv, or images.",
            "Name a recipe: regard doctor mine.toml",
        )
    return settings


# ---------------------------------------------------------------- for people


def _report(result: dict[str, Any]) -> str:
    machine = result["machine"]
    blocks = [
        f"regard {machine['regard']} · python {machine['python']} · torch {machine['torch']}\n"
        f"would use: {machine['would_use']}\n"
        f"cache: {machine['cache']} · {machine['free_disk_bytes'] / 2**30:.0f} GiB free"
    ]
    if "data" in result:
        blocks += [*_tables(result["data"]), "\n".join(result["advice"])]
    return "\n\n".join(blocks)


def _tables(data: dict[str, Any]) -> list[str]:
    """Single figures; those of each split side by side; and those of each class."""
    from regard.data.splits import SPLITS
    from regard.tables import text_table

    def table(rows: dict[str, dict[str, Any]]) -> str:
        columns = list(dict.fromkeys(column for row in rows.values() for column in row))
        cells = [[name, *(_shown(row.get(column)) for column in columns)] for name, row in rows.items()]
        return text_table(["", *columns], cells).strip("\n")

    single = {name.replace("_", " "): {"": value} for name, value in data.items() if not isinstance(value, dict)}
    by_name: dict[str, dict[str, Any]] = {}
    for split in (split for split in SPLITS if isinstance(data.get(split), dict)):
        for name, value in _flat(data[split]).items():
            by_name.setdefault(name, {})[split] = value
    others = [value for name, value in data.items() if isinstance(value, dict) and name not in SPLITS]
    return [table(rows) for rows in (single, *others, by_name) if rows]


def _flat(figures: dict[str, Any]) -> dict[str, Any]:
    """Figures by name, those of a part after the part's own."""
    listed: dict[str, Any] = {}
    for name, value in figures.items():
        words = name.replace("_", " ")
        listed |= {f"{words}, {part}": v for part, v in value.items()} if isinstance(value, dict) else {words: value}
    return listed


def _shown(value: float | str | None) -> str:
    from regard.data.survey import Proportion

    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, Proportion):
        return f"{value:.2%}" if value else "0"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
