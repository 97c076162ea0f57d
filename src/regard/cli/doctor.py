"""`regard doctor`: the machine, and the data of a recipe, before any long work."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from regard.cli.app import DataOption, JsonOption, OverridesArgument, app, show
from regard.errors import UsageError


@app.command()
def doctor(
    recipe: Annotated[str, typer.Argument(help="A recipe whose data to check.", show_default=False)] = "",
    overrides: OverridesArgument = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine, and the data of a recipe.

    Counts, lengths, repeated pairs, test sentences that also stand in train, pairs of very unequal length.
    With --data alone, files named train.*, val* or dev*, and test* are looked for.
    """
    show(_examine(recipe, overrides or [], data), as_json, _report)


def _examine(recipe: str, overrides: Iterable[str], data: Path | None) -> dict[str, Any]:
    """What a training would find here."""
    import shutil

    from regard import registry
    from regard.data.cache import cache_folder
    from regard.hardware import Hardware, environment
    from regard.run import read_recipe
    from regard.settings import SystemSettings

    result: dict[str, Any] = {
        "machine": environment()
        | {
            "would_use": Hardware.choose(SystemSettings()).describe(),
            "cache": str(cache_folder("")),
            "free_disk_bytes": shutil.disk_usage(Path.home()).free,
        }
    }
    if not recipe and data is not None:
        recipe, named = _recipe_for(data)
        overrides = [*named, *overrides]
    if recipe:
        settings = read_recipe(recipe, overrides, data)
        result["task"] = settings.task
        result["data"], result["advice"] = registry.load("tasks", settings.task).examine(settings)
    return result


def _recipe_for(folder: Path) -> tuple[str, list[str]]:
    """A recipe for what lies in a folder, images or sentence pairs, and settings that name it."""
    if any(is_image_name(path.name) or is_idx_name(path.name) for path in files_below(folder)):
        return "digits", ['data.sample=""', "data.images=.", "images.size=32", "images.colour=true"]
    return "starter", _pairs_in(folder)


def _pairs_in(folder: Path) -> list[str]:
    """Settings that name the data of a folder, going by the files' names: train.en and train.de, val.en …"""
    found = []
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
            found.append(f"data.{split}={json.dumps(same_set)}")
    if not any(setting.startswith("data.train=") for setting in found):
        raise UsageError(
            f"No training data is found in '{folder}'.",
            "Two files such as train.en and train.de are looked for, one train.tsv, or images.",
            "Name a recipe: regard doctor mine.toml",
        )
    return found


def report(found: dict[str, Any]) -> str:
    machine = found["machine"]
    lines = [
        f"regard {machine['regard']} · python {machine['python']} · torch {machine['torch']}",
        f"would use: {machine['would_use']}",
        f"cache: {machine['cache']} · {machine['free_disk_bytes'] / 2**30:.0f} GiB free",
    ]
    if found.get("task", "translate") != "translate":
        return "\n".join([*lines, "", *_listed(found["data"]), "", *found["advice"]])
    if "data" in found:
        data = found["data"]
        splits_found = {name: data[name] for name in ("train", "valid", "test")}
        lines += [
            "",
            f"{'':<24}" + "".join(f"{name:>12}" for name in splits_found),
            f"{'vocabulary':<24}{data['vocabulary']:>12,}",
        ]
        for key, label in LABELS.items():
            values = "".join(f"{_shown(counts.get(key)):>12}" for counts in splits_found.values())
            lines.append(f"{label:<24}{values}")
        for side in ("source", "target"):
            for part in ("mean", "99%", "longest"):
                values = "".join(
                    f"{_shown(counts[f'{side}_lengths'].get(part)):>12}" for counts in splits_found.values()
                )
                lines.append(f"{f'{side} tokens, {part}':<24}{values}")
        lines += ["", *found["advice"]]
    return "\n".join(lines)


def _listed(data: dict[str, Any], indent: str = "") -> list[str]:
    """Figures, one a line; those of a part below its name."""
    lines = []
    for key, value in data.items():
        name = key.replace("_", " ")
        if isinstance(value, dict) and all(isinstance(inner, int) for inner in value.values()):
            lines.append(f"{indent}{name:<24}" + " · ".join(f"{split} {count:,}" for split, count in value.items()))
        elif isinstance(value, dict):
            lines += [f"{indent}{name}", *_listed(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name:<24}{value if isinstance(value, str) else f'{value:,}'}")
    return lines


LABELS = {
    "pairs": "pairs",
    "empty": "empty on a side",
    "duplicates": "repeated",
    "unequal": "very unequal",
    "too_long": "too long",
    "spelled_out": "unknown, spelled out",
    "pairs_also_in_train": "pairs also in train",
    "sources_also_in_train": "sources also in train",
}


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else (f"{value:.2%}" if value < 1 else f"{value:,.1f}")
