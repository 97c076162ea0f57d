"""Small data of each form, written to a folder: sentence pairs, running and labelled texts, pictures, games."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from regard.data.games.tictactoe import TicTacToe
from regard.data.samples import english_german, package_descriptions, small_talk, stories
from tiny import person, stripes


def write_pairs(folder: Path) -> None:
    """train, valid and test files of 1,000, 40 and 40 built-in pairs."""
    pairs = english_german.pairs(1_080, seed=5)
    for name, part in {"train": pairs[:1000], "valid": pairs[1000:1040], "test": pairs[1040:]}.items():
        for side, language in enumerate(("en", "de")):
            (folder / f"{name}.{language}").write_text("".join(pair[side] + "\n" for pair in part), encoding="utf-8")


def write_descriptions(folder: Path) -> None:
    """train, valid and test files of 500, 20 and 20 built-in descriptions with their summaries."""
    pairs = package_descriptions.pairs(540, seed=5)
    for name, part in {"train": pairs[:500], "valid": pairs[500:520], "test": pairs[520:]}.items():
        (folder / f"{name}.tsv").write_text("".join("\t".join(pair) + "\n" for pair in part), encoding="utf-8")


def write_conversations(folder: Path) -> None:
    """train, valid and test files of 200, 20 and 20 built-in conversations."""
    every = small_talk.conversations(240, seed=5)
    for name, part in {"train": every[:200], "valid": every[200:220], "test": every[220:]}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"turns": turns}) + "\n" for turns in part))


def write_texts(folder: Path) -> None:
    """The same English sentences as running text, as documents, and with labels."""
    sentences = [source for source, _ in english_german.pairs(2_400, seed=7)]
    (folder / "text.txt").write_text("".join(line + "\n" for line in sentences), encoding="utf-8")
    documents = [json.dumps({"text": " ".join(sentences[n : n + 4])}) + "\n" for n in range(0, 2000, 4)]
    (folder / "documents.jsonl").write_text("".join(documents), encoding="utf-8")
    for name, part in {"train": sentences[:2000], "test": sentences[2000:]}.items():
        lines = [f"{person(sentence)}\t{sentence}\n" for sentence in part]
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")


def write_questions(folder: Path) -> None:
    """train and test files of some 400 and 60 questions about built-in stories, in two of the forms."""
    lines = [json.dumps(record) + "\n" for record in story_records(160)]
    (folder / "train.jsonl").write_text("".join(lines), encoding="utf-8")
    lines = [f"{each.question}\t{each.story}\t{each.answer}\n" for each in stories.some(24, seed=10)]
    (folder / "test.tsv").write_text("".join(lines), encoding="utf-8")


def story_records(count: int) -> list[dict[str, object]]:
    """The questions about so many built-in stories, with SQuAD's fields."""
    records: list[dict[str, object]] = []
    for each in stories.some(count, seed=9):
        answers = {"text": [each.answer], "answer_start": [each.start]} if each.answer else {"text": []}
        records.append({"question": each.question, "context": each.story, "answers": answers})
    return records


def write_captioned(folder: Path) -> None:
    """PNG files of stripes in train (60) and test (20), a .txt beside each: one caption, or two for every other."""
    for split, shades in {"train": range(100, 160), "test": range(200, 220)}.items():
        (folder / split).mkdir(parents=True)
        for shade in shades:
            kind = ("across", "down", "slanted")[shade % 3]
            Image.fromarray(stripes(kind, shade, phase=shade % 4)).save(folder / split / f"{shade}.png")
            lines = [f"stripes {kind}", f"an image of stripes {kind} it"][: 1 + shade % 2]
            (folder / split / f"{shade}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_boxed(folder: Path) -> None:
    """Bright rectangles, wide and high ones, on dark images of two shapes: train (60) and test (16), as .jsonl."""
    (folder / "images").mkdir()
    random = np.random.default_rng(3)
    for split, count in {"train": 60, "test": 16}.items():
        with (folder / f"{split}.jsonl").open("w") as file:
            for number in range(count):
                height, width = ((16, 16), (24, 16))[number % 2]
                pixels_HW = random.integers(0, 40, (height, width), np.uint8)
                boxes, labels = [], []
                for top in range(2, height - 5, 8)[: bool(number % 5) * (1 + number % 2)]:
                    label, (wide, high) = [("wide", (8, 4)), ("high", (4, 8))][random.integers(2)]
                    x, y = int(random.integers(0, width - wide + 1)), top - 2
                    pixels_HW[y : y + high, x : x + wide] = 220
                    boxes.append([x, y, x + wide, y + high])
                    labels.append(label)
                Image.fromarray(pixels_HW).save(folder / "images" / f"{split}-{number}.png")
                record = {"image": f"images/{split}-{number}.png", "boxes": boxes, "labels": labels}
                file.write(json.dumps(record) + "\n")


def write_pictures(folder: Path) -> None:
    """PNG files: stripes of three directions, in train (90 of each) and test (20 of each)."""
    for split, shades in {"train": range(100, 190), "test": range(200, 220)}.items():
        for kind in ("across", "down", "slanted"):
            place = folder / split / kind
            place.mkdir(parents=True)
            for shade in shades:
                Image.fromarray(stripes(kind, shade, phase=shade % 4)).save(place / f"{shade}.png")


def write_games(folder: Path) -> None:
    """Tic-tac-toe at random: 300 games to train on, 40 to test."""
    games = TicTacToe.random_games(340, np.random.default_rng(3))
    lines = [
        f"{TicTacToe.result_names()[game.result]}\t{' '.join(TicTacToe.words[move] for move in game.moves)}\n"
        for game in games
    ]
    (folder / "train.tsv").write_text("".join(lines[:300]), encoding="utf-8")
    (folder / "test.tsv").write_text("".join(lines[300:]), encoding="utf-8")


def write_shapes(folder: Path) -> None:
    """PNG files with masks: a bright block (1) and a dark bar (2) on grey (0), in train (64) and test (12).

    The outline of the block is 9 in the mask: nobody knows what it is.
    """
    rng = np.random.default_rng(3)
    for split, count in {"train": 64, "test": 12}.items():
        for kind in ("images", "masks"):
            (folder / split / kind).mkdir(parents=True)
        for number in range(count):
            mask = np.zeros((16, 16), np.uint8)
            top, left = rng.integers(0, 9, 2)
            mask[top : top + 7, left : left + 7] = 9
            mask[top + 1 : top + 6, left + 1 : left + 6] = 1
            column = int(rng.choice([x for x in range(16) if not left <= x < left + 7]))
            mask[:, column] = 2
            levels = np.choose(np.where(mask == 9, 1, mask), [120, 220, 20]) + rng.integers(-15, 16, mask.shape)
            Image.fromarray(levels.astype(np.uint8)).save(folder / split / "images" / f"{number}.png")
            Image.fromarray(mask).save(folder / split / "masks" / f"{number}.png")
