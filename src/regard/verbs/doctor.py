"""`regard doctor`: the machine, and the data of a recipe, before any long work."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from regard.settings import Config, SystemSettings
from regard.console import warn
from regard.data import labelled
from regard.data.idx_files import is_idx_name
from regard.data.image_cache import image_splits, left_out, must_have_classes
from regard.data.image_entries import SPLITS
from regard.data.image_sources import empty_classes, places, without_images
from regard.data.images import files_below, is_image_name
from regard.data.pairs import splits
from regard.data.shards import cache_folder
from regard.data.survey import survey
from regard.data.text import TextSource
from regard.errors import RegardError, UsageError
from regard.evaluation import bag_of_words
from regard.experiment import read_recipe
from regard.hardware import Hardware, environment
from regard.tasks import running_text
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
        recipe, named = _recipe_for(data)
        overrides = [*named, *overrides]
    if recipe:
        config = read_recipe(recipe, overrides, data)
        found["task"] = config.task
        if config.task == "translate":
            found["data"] = _pairs(config)
            found["advice"] = _advice(found["data"])
        elif config.task == "classify-text":
            found["data"], found["advice"] = _labelled(config)
        elif config.task in ("classify-image", "pixels"):
            found["data"], found["advice"] = _images(config)
        elif config.task == "synthetic":
            found["data"] = config.synthetic.model_dump()
            found["advice"] = ["There are no files to check: sequences are made up."]
        else:
            found["data"], found["advice"] = _text(config)
    return found


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


def _text(config: Config) -> tuple[dict[str, Any], list[str]]:
    """Running text: how much there is of it."""
    source = TextSource.of(config.data.text, config.data)
    tokenizer = running_text.learn_tokenizer(config, source)
    parts = running_text.divide(config, source, tokenizer, starts=config.task == "masked")
    size = documents = 0
    for piece, ends in source.pieces():
        size, documents = size + len(piece), documents + ends
    found = {
        "files": len(source.paths),
        "documents": documents,
        "bytes": size,
        "vocabulary": tokenizer.size,
        "train_tokens": len(parts.train),
        "valid_tokens": len(parts.valid),
        "test_tokens": len(parts.test),
    }
    advice = []
    length = config.training.row_length
    if config.task != "embeddings" and len(parts.train) < 100 * length:
        advice.append(
            f"The text fills only {len(parts.train) // length:,} rows of {length} tokens: a model will soon know it."
        )
    if len(parts.valid) < 1000:
        advice.append("There is little text to validate on; raise data.held_out, or name data.valid.")
    return found, advice or ["Nothing looks wrong."]


def _labelled(config: Config) -> tuple[dict[str, Any], list[str]]:
    """Labelled texts: how many of each class, how long, and which stand in train and test."""
    sources = labelled.splits(config.data)
    examples = {name: list(source) for name, source in sources.items()}
    classes = labelled.labels_of(sources["train"])
    train_texts = {example.text for example in examples["train"]}
    found: dict[str, Any] = {"classes": {}}
    for name in classes:
        found["classes"][name] = {split: sum(e.label == name for e in listed) for split, listed in examples.items()}
    advice = []
    for split, listed in examples.items():
        lengths = [len(example.text.split()) for example in listed] or [0]
        found[split] = {
            "texts": len(listed),
            "repeated": len(listed) - len({example.text for example in listed}),
            "mean_words": round(sum(lengths) / len(lengths), 1),
            "longest_words": max(lengths),
        }
        unknown = sorted({example.label for example in listed} - set(classes))
        if unknown:
            advice.append(f"Labels of {split} that train does not have: {', '.join(unknown[:5])}.")
        if split != "train":
            found[split]["texts_also_in_train"] = sum(example.text in train_texts for example in listed)
            if found[split]["texts_also_in_train"] > 0.01 * max(len(listed), 1):
                advice.append(f"{found[split]['texts_also_in_train']:,} {split} texts also stand in train.")
    rarest = min(found["classes"], key=lambda name: found["classes"][name]["train"])
    if found["classes"][rarest]["train"] < 10:
        advice.append(f"The class '{rarest}' has only {found['classes'][rarest]['train']} training texts.")
    return found, [*advice, bag_of_words.advice(examples["train"])]


def _images(config: Config) -> tuple[dict[str, Any], list[str]]:
    """Images: how many of each class, which cannot be read, and which stand in train and test."""
    empty = empty_classes([place for split in SPLITS for place in places(config.data, split)])
    try:
        data = image_splits(config.data, config.images)
        if config.task == "classify-image":
            must_have_classes(data)
    except RegardError:
        if empty:  # perhaps the reason
            warn(without_images(empty))
        raise
    parts = {"train": data.train, "valid": data.valid, "test": data.test}
    found: dict[str, Any] = {"classes": {}, "empty_classes": len(empty), "left_out": len(data.skipped)}
    for number, name in enumerate(data.classes):
        found["classes"][name] = {split: int((images.labels_N == number).sum()) for split, images in parts.items()}
    prints = {
        split: [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in images.pixels_NHWC]
        for split, images in parts.items()
    }
    train_prints = set(prints["train"])
    advice = [left_out(data.skipped) + "."] if data.skipped else []
    if empty:
        advice.append(without_images(empty))
    labels_of: dict[bytes, set[int]] = {}
    for split, images in parts.items():
        for image, label in zip(prints[split], images.labels_N.tolist(), strict=True):
            labels_of.setdefault(image, set()).add(label)
    if several := sum(len(labels) > 1 for labels in labels_of.values()):
        advice.append(f"{several:,} images occur with more than one label.")
    for split, images in parts.items():
        found[split] = {"images": len(images), "repeated": len(images) - len(set(prints[split]))}
        if split != "train":
            also = sum(image in train_prints for image in prints[split])
            found[split]["images_also_in_train"] = also
            if also > 0.01 * max(len(images), 1):
                advice.append(f"{also:,} {split} images also stand in train: scores there will flatter.")
    for name, counts in found["classes"].items():
        if counts["train"] < 10:
            advice.append(f"The class '{name}' has only {counts['train']} training images.")
    return found, advice or ["Nothing looks wrong."]


def _pairs(config: Config) -> dict[str, Any]:
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
