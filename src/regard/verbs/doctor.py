"""`regard doctor`: the machine, and the data of a recipe, before any long work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import SystemSettings
from regard.data.pairs import splits
from regard.data.shards import cache_folder
from regard.data.survey import survey
from regard.errors import UsageError
from regard.experiment import read_recipe
from regard.hardware import Hardware, environment
from regard.tasks.translate import learn_tokenizers


def examine(recipe: str, overrides: Iterable[str], data: Path | None) -> dict[str, Any]:
    """What a training would find here."""
    cache = cache_folder("")
    found: dict[str, Any] = {
        "machine": environment()
        | {
            "would_use": Hardware.choose(SystemSettings()).describe(),
            "cache": str(cache),
            "free_disk_bytes": shutil.disk_usage(Path.home()).free,
        }
    }
    if not recipe and data is not None:
        recipe, overrides = "starter", [*_files_in(data), *overrides]
    if recipe:
        found["data"] = _data(recipe, overrides, data)
        found["advice"] = _advice(found["data"])
    return found


def _files_in(folder: Path) -> list[str]:
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
            f"No training files are found in '{folder}'.",
            "Two files such as train.en and train.de are looked for, or one train.tsv.",
            "Name a recipe: regard doctor mine.toml",
        )
    return found


def _data(recipe: str, overrides: Iterable[str], data: Path | None) -> dict[str, Any]:
    config = read_recipe(recipe, overrides, data)
    sources = splits(config.data)
    tokenizers = learn_tokenizers(config, sources["train"])
    found: dict[str, Any] = {"vocabulary": tokenizers.target.size}
    hashes = {}
    for name, source in sources.items():
        counts, pairs, texts = survey(source, tokenizers.both(), config.data.max_length)
        found[name] = counts.to_json()
        hashes[name] = (pairs, texts)
    for name in ("valid", "test"):
        leaked = {
            "pairs_also_in_train": int(np.isin(hashes[name][0], hashes["train"][0]).sum()),
            "sources_also_in_train": int(np.isin(hashes[name][1], hashes["train"][1]).sum()),
        }
        found[name] |= leaked
    return found


def _advice(data: dict[str, Any]) -> list[str]:
    advice = []
    train = data["train"]
    if not train["pairs"]:
        advice.append("There are no training pairs.")
    if train["duplicates"] > 0.01 * train["pairs"]:
        advice.append(f"{train['duplicates']:,} training pairs are repeated; consider removing them.")
    if train["empty"]:
        advice.append(f"{train['empty']:,} training pairs have an empty side; they are left out.")
    if train["unequal"] > 0.001 * train["pairs"]:
        advice.append(f"{train['unequal']:,} training pairs are of very unequal length; are the files aligned?")
    if train["too_long"]:
        advice.append(f"{train['too_long']:,} training pairs are too long; raise data.max_length to keep them.")
    for name in ("valid", "test"):
        leaked = data[name]["sources_also_in_train"]
        if leaked > 0.01 * max(data[name]["pairs"], 1):
            advice.append(f"{leaked:,} {name} sentences also stand in train: scores there will flatter.")
        if data[name]["spelled_out"] > 0.02:
            advice.append(
                f"{data[name]['spelled_out']:.1%} of {name} tokens are spelled out; use bpe or a larger vocabulary."
            )
    return advice or ["Nothing looks wrong."]


def report(found: dict[str, Any]) -> str:
    machine = found["machine"]
    lines = [
        f"regard {machine['regard']} · python {machine['python']} · torch {machine['torch']}",
        f"would use: {machine['would_use']}",
        f"cache: {machine['cache']} · {machine['free_disk_bytes'] / 2**30:.0f} GiB free",
    ]
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
