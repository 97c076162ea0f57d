"""Surveys of data: what is in it, and what may be wrong with it, before any long work.

Each returns its figures, and advice where something looks wrong.
"""

from __future__ import annotations

import hashlib
import itertools
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.console import warn
from regard.data.boxes import box_splits, boxes_left_out
from regard.data.captions import caption_sources, captions_of
from regard.data.image_cache import ImageSplits, image_splits, left_out, must_have_classes
from regard.data.image_sources import empty_classes, image_sources, without_images
from regard.data.labelled import LabelledSource, labels_of
from regard.data.lines import LineSource, skipped_lines
from regard.data.mask_cache import NOTHING, mask_splits
from regard.data.pairs import Pair, PairSource, not_empty
from regard.data.questions import QuestionSource, places
from regard.data.running_text import TextSplits
from regard.data.splits import SPLITS, Obstacle, empty_splits
from regard.data.text import TextSource
from regard.data.tokenizers import TextTokenizer
from regard.errors import RegardError
from regard.settings import BoxData, CaptionData, ImageData, ImageSettings, MaskData
from regard.words import counted

Survey = tuple[dict[str, Any], list[str]]


class Proportion(float):
    """A figure from 0 to 1, shown as a percentage."""


UNEQUAL = 3.0  # one side has over three times the words of the other, and ten more
CHUNK = 10_000  # pairs tokenised at a time
FEW = 10  # samples of a class
MASKS_AT_ONCE = 256


def with_bad_lines(survey: Survey, sources: Iterable[LineSource]) -> Survey:
    """The same, with the bad lines that are skipped: those of a file are counted once, however many splits it has."""
    figures, advice = survey
    skipped = skipped_lines(sources)
    return {"bad_lines": skipped.total} | figures, advice + skipped.told()


# ---------------------------------------------------------------- sentence pairs


def survey_pairs(
    sources: Mapping[str, PairSource],
    tokenizers: tuple[TextTokenizer, TextTokenizer],
    max_length: int,
    shortened: bool = False,
) -> Survey:
    """Sentence pairs: how many, how long, which are of no use, and which are in both train and test.

    `shortened`: the targets are short forms of the sources, and sources that are too long are cut.
    """
    figures: dict[str, Any] = {"vocabulary": tokenizers[1].size}
    pairs, sentences = {}, {}
    for split, source in sources.items():
        figures[split], pairs[split], sentences[split] = count_pairs(source, tokenizers, max_length)
    for split in ("valid", "test"):
        figures[split] |= {
            "pairs_also_in_train": int(np.isin(pairs[split], pairs["train"]).sum()),
            "sources_also_in_train": int(np.isin(sentences[split], sentences["train"]).sum()),
        }
    counts = {split: len(hashes) for split, hashes in pairs.items()}
    hindered: list[str] = [*empty_splits(counts, "pair with text on both sides")]
    if counts["train"] and figures["train"]["too_long"] == counts["train"] and not shortened:
        hindered.append(
            Obstacle(f"All training pairs are longer than data.max_length = {max_length} tokens; raise it.")
        )
    return figures, [*hindered, *_advice_on_pairs(figures, shortened)]


def count_pairs(
    pairs: Iterable[Pair], tokenizers: tuple[TextTokenizer, TextTokenizer], max_length: int
) -> tuple[dict[str, Any], NDArray[np.uint64], NDArray[np.uint64]]:
    """The figures of one split; and a 64-bit hash of every pair and of every source sentence, to compare splits.

    Lengths are in tokens, without <end>. Tokens that are spelled out are bytes that stand in for something not in the
    vocabulary.
    """
    pair_hashes, source_hashes = array("Q"), array("Q")  # arrays: there may be very many pairs
    lengths, words = ((array("q"), array("q")) for _ in range(2))
    every = spelled = 0

    def watched() -> Iterable[Pair]:
        nonlocal every
        for pair in pairs:
            every += 1
            yield pair

    with_text = iter(not_empty(watched()))
    while chunk := list(itertools.islice(with_text, CHUNK)):
        for source, target in chunk:
            pair_hashes.append(_hash(f"{source}\t{target}"))
            source_hashes.append(_hash(source))
            words[0].append(len(source.split()))
            words[1].append(len(target.split()))
        for side, tokenizer in enumerate(tokenizers):
            ids = tokenizer.encode([pair[side] for pair in chunk])
            lengths[side].extend(map(len, ids))
            spelled += sum(map(tokenizer.spelled_out, ids))
    hashes = np.array(pair_hashes, np.uint64)
    figures = {
        "pairs": every,
        "empty": every - len(hashes),
        "duplicates": len(hashes) - len(np.unique(hashes)),
        "unequal": _unequal(np.array(words[0]), np.array(words[1])),
        "source_lengths": _spread(lengths[0]),
        "target_lengths": _spread(lengths[1]),
        "too_long": sum(max(source, target) >= max_length for source, target in zip(*lengths, strict=True)),
        "spelled_out": Proportion(spelled / max(sum(lengths[0]) + sum(lengths[1]), 1)),
    }
    return figures, hashes, np.array(source_hashes, np.uint64)


def _unequal(sources_N: NDArray[np.int64], targets_N: NDArray[np.int64]) -> int:
    """How many pairs have a side that is much longer than the other side lets expect.

    Going by the usual ratio of both: answers to questions are all much shorter, and none of them is amiss.
    """
    if not len(sources_N):
        return 0
    usual = float(np.median(targets_N / sources_N))
    expected_N = sources_N * (usual if usual > UNEQUAL or usual * UNEQUAL < 1 else 1.0)
    short_N, long_N = np.minimum(expected_N, targets_N), np.maximum(expected_N, targets_N)
    return int(((long_N > UNEQUAL * short_N) & (long_N - short_N > 10)).sum())


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _spread(lengths: Sequence[int]) -> dict[str, float]:
    if not lengths:
        return {}
    values = np.array(lengths)
    return {
        "mean": round(float(values.mean()), 2),
        "median": float(np.median(values)),
        "99%": float(np.percentile(values, 99)),
        "longest": int(values.max()),
    }


def _advice_on_pairs(figures: dict[str, Any], shortened: bool) -> list[str]:
    advice = []
    train = figures["train"]
    if train["duplicates"] > 0.01 * train["pairs"]:
        advice.append(f"{counted(train['duplicates'], 'training pair', 'is')} repeated; consider removing that.")
    if train["empty"]:
        advice.append(f"{counted(train['empty'], 'training pair', 'has')} an empty side, and no use.")
    if shortened and train["target_lengths"].get("median", 0) > 0.8 * train["source_lengths"].get("median", 0):
        advice.append("Half of the summaries are about as long as the texts; are the columns the right way round?")
    if not shortened and train["unequal"] > 0.001 * train["pairs"]:
        unequal = counted(train["unequal"], "training pair", "is")
        advice.append(f"{unequal} of very unequal length; are the files aligned?")
    if train["too_long"] and shortened:
        advice.append(
            f"{counted(train['too_long'], 'training text', 'is')} too long; the end is not read (data.max_length)."
        )
    elif train["too_long"]:
        advice.append(f"{counted(train['too_long'], 'training pair', 'is')} too long; raise data.max_length.")
    for split in ("valid", "test"):
        leaked = figures[split]["sources_also_in_train"]
        if leaked > 0.01 * max(figures[split]["pairs"], 1):
            advice.append(f"{counted(leaked, f'{split} sentence', 'is')} also in train: scores there will be too good.")
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
        advice.append(f"The text fills only {counted(rows, 'row')} of {row_length} tokens: a model will soon know it.")
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
    advice: list[str] = [*empty_splits({split: len(listed) for split, listed in examples.items()}, "labelled text")]
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
            advice.append(Obstacle(f"Labels of {split} that train does not have: {', '.join(unknown[:5])}."))
    train = {example.text for example in examples["train"]}
    for split in ("valid", "test"):
        leaked = sum(example.text in train for example in examples[split])
        figures[split]["texts_also_in_train"] = leaked
        if leaked > 0.01 * max(len(examples[split]), 1):
            advice.append(f"{counted(leaked, f'{split} text', 'is')} also in train.")
    rarest = min(classes, key=lambda name: figures["classes"][name]["train"])
    if figures["classes"][rarest]["train"] < FEW:
        advice.append(f"The class '{rarest}' has only {counted(figures['classes'][rarest]['train'], 'training text')}.")
    return figures, advice


# ---------------------------------------------------------------- questions


def survey_questions(sources: Mapping[str, QuestionSource], no_answer: bool) -> Survey:
    """Questions: how many, with how many contexts, whose answers are not where they should be; and what is in both
    train and test."""
    figures: dict[str, Any] = {}
    advice: list[str] = []
    contexts: dict[str, set[int]] = {}
    for split, source in sources.items():
        count = without = not_found = several = words = 0
        contexts[split] = set()
        for question in source:
            found = len(places(question))
            count += 1
            without += not question.answers
            not_found += bool(question.answers) and not found
            several += found > 1
            words += len(question.context.split())
            contexts[split].add(_hash(question.context))
        figures[split] = {
            "questions": count,
            "contexts": len(contexts[split]),
            "without_answer": without,
            "answer_not_in_context": not_found,
            "answer_in_several_places": several,
            "mean_words_of_context": round(words / max(count, 1), 1),
        }
        if not_found:
            what = "left out" if split == "train" else "counted as wrong"
            asked = counted(not_found, f"{split} question", "has")
            advice.append(f"{asked} an answer that is not in the context: {what}.")
        if without and not no_answer:
            asked = counted(without, f"{split} question", "has")
            advice.append(f"{asked} no answer, and data.no_answer = false: is that right?")
    for split in ("valid", "test"):
        if leaked := len(contexts[split] & contexts["train"]):
            advice.append(f"{counted(leaked, f'{split} context', 'is')} also in train: scores there will be too good.")
    hindered = empty_splits({split: figures[split]["questions"] for split in sources}, "question")
    train = figures["train"]
    no_use = train["answer_not_in_context"] + (0 if no_answer else train["without_answer"])
    if train["questions"] and no_use == train["questions"]:
        hindered.append(Obstacle("No training question has an answer that stands in its context."))
    return figures, hindered + advice


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
            advice.append(f"The class '{name}' has only {counted(counts['train'], 'training image')}.")
    return figures, advice


def survey_captions(data: CaptionData, settings: ImageSettings) -> Survey:
    """Images with captions: how many of both, how long, which are left out, and which are in both train and test."""
    splits = image_splits(data, settings, caption_sources)
    figures: dict[str, Any] = {"left_out": len(splits.skipped)}
    advice = [left_out(splits.skipped) + "."] if splits.skipped else []
    advice += _repeated_images(splits, figures)
    for split in SPLITS:
        captions = [captions_of(attached) for attached in getattr(splits, split).attached or []]
        words = [len(text.split()) for texts in captions for text in texts]
        figures[split] |= {"captions": len(words), "longest_in_words": max(words, default=0)}
    if len(splits.train) < FEW:
        advice.append(f"Only {counted(len(splits.train), 'training image', 'is')} there.")
    return figures, advice


def survey_boxes(data: BoxData, settings: ImageSettings) -> Survey:
    """Images with boxes: how many boxes of each class, how large, which cannot be used."""
    splits, boxes = box_splits(data, settings)
    parts = {split: getattr(boxes, split) for split in SPLITS}
    counts = {
        split: np.bincount(part.given.classes_X, minlength=len(boxes.classes)).tolist() for split, part in parts.items()
    }
    sides_X2 = boxes.train.seen.corners_X4[:, 2:] - boxes.train.seen.corners_X4[:, :2]
    figures: dict[str, Any] = {
        "classes": {
            name: {split: counts[split][number] for split in SPLITS} for number, name in enumerate(boxes.classes)
        },
        "left_out": len(splits.skipped),
        "boxes_left_out": len(boxes.skipped),
        "most_boxes_of_an_image": max(part.given.most for part in parts.values()),
        "median_side_in_pixels": round(float(np.median(sides_X2)), 1) if len(sides_X2) else 0.0,
    }
    advice = [left_out(splits.skipped) + "."] if splits.skipped else []
    if boxes.skipped:
        advice.append(boxes_left_out(boxes.skipped) + ".")
    advice += _repeated_images(splits, figures)
    for split, part in parts.items():
        figures[split]["boxes"] = sum(counts[split])
        if lost := len(part.given.classes_X) - len(part.seen.classes_X):
            advice.append(f'{counted(lost, f"{split} box", "is")} cut away by images.fit = "{settings.fit}".')
    for name, of_split in figures["classes"].items():
        if of_split["train"] < FEW:
            advice.append(f"The class '{name}' has only {counted(of_split['train'], 'training box')}.")
    return figures, advice


def _repeated_images(splits: ImageSplits, figures: dict[str, Any]) -> list[str]:
    """Adds the figures of each split: how many images, and how many of them occur elsewhere too."""
    advice: list[str] = [*empty_splits({split: len(getattr(splits, split)) for split in SPLITS}, "image")]
    hashes: dict[str, list[bytes]] = {}
    labels_of_image: dict[bytes, set[int]] = {}
    for split in SPLITS:
        images = getattr(splits, split)
        hashes[split] = [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in images.pixels_NHWC]
        for image, label in zip(hashes[split], images.labels_N.tolist(), strict=True):
            labels_of_image.setdefault(image, set()).add(label)
    if several := sum(len(labels) > 1 for labels in labels_of_image.values()):
        advice.append(f"{counted(several, 'image', 'occurs')} with more than one label.")
    train = set(hashes["train"])
    for split, listed in hashes.items():
        figures[split] = {"images": len(listed), "repeated": len(listed) - len(set(listed))}
        if split != "train":
            leaked = sum(image in train for image in listed)
            figures[split]["images_also_in_train"] = leaked
            if leaked > 0.01 * max(len(listed), 1):
                images = counted(leaked, f"{split} image", "is")
                advice.append(f"{images} also in train: scores there will be too good.")
    return advice


# ---------------------------------------------------------------- images with masks


def survey_masks(data: MaskData, settings: ImageSettings) -> Survey:
    """Images with masks: how many, how much of them is of each class, and which cannot be used."""
    splits = mask_splits(data, settings)
    figures: dict[str, Any] = {"left_out": len(splits.skipped), "classes": {}}
    advice = [left_out(splits.skipped) + "."] if splits.skipped else []
    shares: dict[str, NDArray[np.float64]] = {}
    for split in SPLITS:
        images = getattr(splits, split)
        counts_V = np.zeros(NOTHING + 1, np.int64)
        for start in range(0, len(images), MASKS_AT_ONCE):
            classes_NHW = images.classes(slice(start, start + MASKS_AT_ONCE))
            counts_V += np.bincount(classes_NHW.ravel(), minlength=len(counts_V))
        shares[split] = counts_V[: len(splits.classes)] / max(int(counts_V.sum()), 1)
    for number, name in enumerate(splits.classes):
        figures["classes"][name] = {split: Proportion(round(float(shares[split][number]), 5)) for split in SPLITS}
        if not shares["train"][number]:
            advice.append(f"No training pixel is of the class '{name}'.")
    return figures, advice + _repeated_images(splits, figures)
