"""Surveys of data: what is in it, and what may be wrong with it, before any long work.

Each returns its figures, and advice where something looks wrong.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.console import warn
from regard.data.image_cache import ImageSplits, image_splits, left_out, must_have_classes
from regard.data.image_sources import empty_classes, image_sources, without_images
from regard.data.labelled import LabelledSource, labels_of
from regard.data.pairs import Pair, PairSource, not_empty
from regard.data.running_text import TextSplits
from regard.data.splits import SPLITS
from regard.data.text import TextSource
from regard.data.tokenizers import TextTokenizer
from regard.errors import RegardError
from regard.settings import ImageData, ImageSettings

Survey = tuple[dict[str, Any], list[str]]

UNEQUAL = 3.0  # one side has over three times the words of the other, and ten more
CHUNK = 10_000  # pairs tokenised at a time
FEW = 10  # samples of a class


# ---------------------------------------------------------------- sentence pairs


def survey_pairs(
    sources: Mapping[str, PairSource], tokenizers: tuple[TextTokenizer, TextTokenizer], max_length: int
) -> Survey:
    """Sentence pairs: how many, how long, which are of no use, and which are in both train and test."""
    figures: dict[str, Any] = {"vocabulary": tokenizers[1].size}
    pairs, sentences = {}, {}
    for split, source in sources.items():
        figures[split], pairs[split], sentences[split] = count_pairs(source, tokenizers, max_length)
    for split in ("valid", "test"):
        figures[split] |= {
            "pairs_also_in_train": int(np.isin(pairs[split], pairs["train"]).sum()),
            "sources_also_in_train": int(np.isin(sentences[split], sentences["train"]).sum()),
        }
    return figures, _advice_on_pairs(figures)


def count_pairs(
    pairs: Iterable[Pair], tokenizers: tuple[TextTokenizer, TextTokenizer], max_length: int
) -> tuple[dict[str, Any], NDArray[np.uint64], NDArray[np.uint64]]:
    """The figures of one split; and a 64-bit hash of every pair and of every source sentence, to compare splits.

    Lengths are in tokens, without <end>. Tokens that are spelled out are bytes that stand in for something not in the
    vocabulary.
    """
    pair_hashes: list[int] = []
    source_hashes: list[int] = []
    lengths: tuple[list[int], list[int]] = ([], [])
    every = unequal = spelled = 0

    def counted() -> Iterable[Pair]:
        nonlocal every
        for pair in pairs:
            every += 1
            yield pair

    with_text = iter(not_empty(counted()))
    while chunk := list(itertools.islice(with_text, CHUNK)):
        for source, target in chunk:
            pair_hashes.append(_hash(f"{source}\t{target}"))
            source_hashes.append(_hash(source))
            short, long = sorted((len(source.split()), len(target.split())))
            unequal += long > UNEQUAL * short and long - short > 10
        for side, tokenizer in enumerate(tokenizers):
            ids = tokenizer.encode([pair[side] for pair in chunk])
            lengths[side].extend(map(len, ids))
            spelled += sum(map(tokenizer.spelled_out, ids))
    hashes = np.array(pair_hashes, np.uint64)
    figures = {
        "pairs": every,
        "empty": every - len(hashes),
        "duplicates": len(hashes) - len(np.unique(hashes)),
        "unequal": unequal,
        "source_lengths": _spread(lengths[0]),
        "target_lengths": _spread(lengths[1]),
        "too_long": sum(max(source, target) >= max_length for source, target in zip(*lengths, strict=True)),
        "spelled_out": spelled / max(sum(lengths[0]) + sum(lengths[1]), 1),
    }
    return figures, hashes, np.array(source_hashes, np.uint64)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _spread(lengths: list[int]) -> dict[str, float]:
    if not lengths:
        return {}
    values = np.array(lengths)
    return {
        "mean": round(float(values.mean()), 2),
        "median": float(np.median(values)),
        "99%": float(np.percentile(values, 99)),
        "longest": int(values.max()),
    }


def _advice_on_pairs(figures: dict[str, Any]) -> list[str]:
    advice = []
    train = figures["train"]
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
    for split in ("valid", "test"):
        leaked = figures[split]["sources_also_in_train"]
        if leaked > 0.01 * max(figures[split]["pairs"], 1):
            advice.append(f"{leaked:,} {split} sentences are also in train: scores there will be too good.")
        if figures[split]["spelled_out"] > 0.02:
            share = figures[split]["spelled_out"]
            advice.append(f"{share:.1%} of {split} tokens are spelled out; use bpe or a larger vocabulary.")
    return advice


# ---------------------------------------------------------------- running text


def survey_text(text: TextSource, splits: TextSplits, vocabulary: int, row_length: int = 0) -> Survey:
    """Running text: how much there is of it; with `row_length`, whether it fills some rows."""
    size = documents = 0
    for piece, ends in text.pieces():
        size, documents = size + len(piece), documents + ends
    figures = {
        "files": len(text.paths),
        "documents": documents,
        "bytes": size,
        "vocabulary": vocabulary,
        "train_tokens": len(splits.train),
        "valid_tokens": len(splits.valid),
        "test_tokens": len(splits.test),
    }
    advice = []
    if len(splits.train) < 100 * row_length:
        rows = len(splits.train) // row_length
        advice.append(f"The text fills only {rows:,} rows of {row_length} tokens: a model will soon know it.")
    if len(splits.valid) < 1000:
        advice.append("There is little text to validate on; raise data.held_out, or name data.valid.")
    return figures, advice


# ---------------------------------------------------------------- labelled texts


def survey_labelled(sources: Mapping[str, LabelledSource]) -> Survey:
    """Labelled texts: how many of each class, how long, and which are in both train and test."""
    examples = {split: list(source) for split, source in sources.items()}
    classes = labels_of(sources["train"])
    figures: dict[str, Any] = {
        "classes": {
            name: {split: sum(example.label == name for example in listed) for split, listed in examples.items()}
            for name in classes
        }
    }
    advice = []
    for split, listed in examples.items():
        lengths = [len(example.text.split()) for example in listed] or [0]
        figures[split] = {
            "texts": len(listed),
            "repeated": len(listed) - len({example.text for example in listed}),
            "mean_words": round(sum(lengths) / len(lengths), 1),
            "longest_words": max(lengths),
        }
        unknown = sorted({example.label for example in listed} - set(classes))
        if unknown:
            advice.append(f"Labels of {split} that train does not have: {', '.join(unknown[:5])}.")
    train = {example.text for example in examples["train"]}
    for split in ("valid", "test"):
        leaked = sum(example.text in train for example in examples[split])
        figures[split]["texts_also_in_train"] = leaked
        if leaked > 0.01 * max(len(examples[split]), 1):
            advice.append(f"{leaked:,} {split} texts are also in train.")
    rarest = min(classes, key=lambda name: figures["classes"][name]["train"])
    if figures["classes"][rarest]["train"] < FEW:
        advice.append(f"The class '{rarest}' has only {figures['classes'][rarest]['train']} training texts.")
    return figures, advice


# ---------------------------------------------------------------- images


def survey_images(data: ImageData, settings: ImageSettings, with_classes: bool) -> Survey:
    """Images: how many of each class, which cannot be read, and which are in both train and test."""
    empty = empty_classes([source for split in SPLITS for source in image_sources(data, split)])
    try:
        splits = image_splits(data, settings)
        if with_classes:
            must_have_classes(splits)
    except RegardError:
        if empty:  # perhaps the reason
            warn(without_images(empty))
        raise
    figures: dict[str, Any] = {
        "classes": {
            name: {split: int((getattr(splits, split).labels_N == number).sum()) for split in SPLITS}
            for number, name in enumerate(splits.classes)
        },
        "empty_classes": len(empty),
        "left_out": len(splits.skipped),
    }
    advice = [left_out(splits.skipped) + "."] if splits.skipped else []
    if empty:
        advice.append(without_images(empty))
    advice += _repeated_images(splits, figures)
    for name, counts in figures["classes"].items():
        if counts["train"] < FEW:
            advice.append(f"The class '{name}' has only {counts['train']} training images.")
    return figures, advice


def _repeated_images(splits: ImageSplits, figures: dict[str, Any]) -> list[str]:
    """Adds the figures of each split: how many images, and how many of them occur elsewhere too."""
    advice = []
    hashes: dict[str, list[bytes]] = {}
    labels_of_image: dict[bytes, set[int]] = {}
    for split in SPLITS:
        images = getattr(splits, split)
        hashes[split] = [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in images.pixels_NHWC]
        for image, label in zip(hashes[split], images.labels_N.tolist(), strict=True):
            labels_of_image.setdefault(image, set()).add(label)
    if several := sum(len(labels) > 1 for labels in labels_of_image.values()):
        advice.append(f"{several:,} images occur with more than one label.")
    train = set(hashes["train"])
    for split, listed in hashes.items():
        figures[split] = {"images": len(listed), "repeated": len(listed) - len(set(listed))}
        if split != "train":
            leaked = sum(image in train for image in listed)
            figures[split]["images_also_in_train"] = leaked
            if leaked > 0.01 * max(len(listed), 1):
                advice.append(f"{leaked:,} {split} images are also in train: scores there will be too good.")
    return advice
