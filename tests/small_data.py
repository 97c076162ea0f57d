"""Small data of each form, written to a folder: sentence pairs, running and labelled texts, pictures."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

from regard.data.samples import english_german
from tiny import person, stripes


def write_pairs(folder: Path) -> None:
    """train, valid and test files of 1,000, 40 and 40 built-in pairs."""
    pairs = english_german.pairs(1_080, seed=5)
    for name, part in {"train": pairs[:1000], "valid": pairs[1000:1040], "test": pairs[1040:]}.items():
        for side, language in enumerate(("en", "de")):
            (folder / f"{name}.{language}").write_text("".join(pair[side] + "\n" for pair in part), encoding="utf-8")


def write_texts(folder: Path) -> None:
    """The same English sentences as running text, as documents, and with labels."""
    sentences = [source for source, _ in english_german.pairs(2_400, seed=7)]
    (folder / "text.txt").write_text("".join(line + "\n" for line in sentences), encoding="utf-8")
    documents = [json.dumps({"text": " ".join(sentences[n : n + 4])}) + "\n" for n in range(0, 2000, 4)]
    (folder / "documents.jsonl").write_text("".join(documents), encoding="utf-8")
    for name, part in {"train": sentences[:2000], "test": sentences[2000:]}.items():
        lines = [f"{person(sentence)}\t{sentence}\n" for sentence in part]
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")


def write_pictures(folder: Path) -> None:
    """PNG files: stripes of three directions, in train (90 of each) and test (20 of each)."""
    for split, shades in {"train": range(100, 190), "test": range(200, 220)}.items():
        for kind in ("across", "down", "slanted"):
            place = folder / split / kind
            place.mkdir(parents=True)
            for shade in shades:
                Image.fromarray(stripes(kind, shade, phase=shade % 4)).save(place / f"{shade}.png")
