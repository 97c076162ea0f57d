"""A tiny training of every registered task: what the tests that hold for all of them train.

A new task needs an entry here to be tested as all others are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tiny import CLASSIFY, TINY_IMAGES, TINY_TEXT

FEW = ["training.steps=8", "training.validate_every=4", "training.save_every=4", "training.log_every=2"]
TEXT = ["training.tokens_per_batch=512", "training.row_length=64", "tokenizer.vocabulary=400"]
TINY = ["model.layers=1", "model.width=16", "model.heads=2", "model.feedforward=16"]


def one_line_less(file: Path) -> None:
    """Without its first line; and so its translations, where there are any."""
    for path in [file, *file.parent.glob(f"{file.stem}.de")] if file.suffix == ".en" else [file]:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(lines[1:]), encoding="utf-8")


def one_image_less(folder: Path) -> None:
    min((folder / "down").iterdir()).unlink()


def one_caption_less(folder: Path) -> None:
    """Without a line of a text that has several."""
    one_line_less(next(file for file in sorted(folder.glob("*.txt")) if file.read_text().count("\n") > 1))


def half_as_many_images(folder: Path) -> None:
    for file in sorted((folder / "images").iterdir())[::2]:
        file.unlink()


@dataclass(frozen=True)
class Kind:
    recipe: str
    settings: list[str]
    data: str = ""  # the fixture with its data; none: it makes its own
    train: str = ""  # where in it the training data is,
    test: str = ""  # and the test data
    spoil: Callable[[Path], None] = one_line_less
    missing: str = ""  # a setting that names data that is not there
    other: str = ""  # a setting of its own, changed
    evaluate: dict[str, object] = field(default_factory=dict)

    @property
    def overrides(self) -> list[str]:
        return [*self.settings, *FEW]


IMAGES = ["data.sample=", "data.images=.", "training.images_per_batch=16"]
KINDS = {
    "translate": Kind(
        "starter",
        [
            *TINY,
            *TEXT,
            'data.train=["train.en", "train.de"]',
            'data.valid=["valid.en", "valid.de"]',
            'data.test=["test.en", "test.de"]',
            "data.max_length=64",
            "tokenizer.dropout=0.1",
            "decoding.beam=1",
            "decoding.max_ratio=0.1",
        ],
        "corpus",
        "train.en",
        "test.en",
        missing='data.train=["no.en", "no.de"]',
        other="model.cross=additive",
    ),
    "summarize": Kind(
        "starter-summarize",
        [
            *TINY,
            *TEXT,
            *(f'data.{split}=["{split}.tsv"]' for split in ("train", "valid", "test")),
            "data.max_length=48",
            "data.max_summary=24",
            "training.row_length=24",
            "decoding.beam=2",
            "decoding.max_ratio=0.1",
        ],
        "descriptions",
        "train.tsv",
        "test.tsv",
        missing='data.train=["no.tsv"]',
        evaluate={"baselines": False},
        other="data.max_length=40",
    ),
    "language": Kind(
        "shakespeare-cpu",
        [*TINY_TEXT, *TEXT, "data.text=text.txt", "data.test=test.tsv", "model.dropout=0.1"],
        "texts",
        "text.txt",
        "test.tsv",
        missing="data.text=no.txt",
        other="data.documents=apart",
    ),
    "chat": Kind(
        "starter-chat",
        [
            *TINY,
            *TEXT,
            *(f'data.{split}=["{split}.jsonl"]' for split in ("train", "valid", "test")),
            "data.max_length=64",
            "model.dropout=0.1",
        ],
        "conversations",
        "train.jsonl",
        "test.jsonl",
        missing='data.train=["no.jsonl"]',
        evaluate={"baselines": False},
        other='data.us="both"',
    ),
    "masked": Kind(
        "bert-small",
        [*TINY_TEXT, *TEXT, "tokenizer.kind=word", "data.text=documents.jsonl", "data.held_out=0.1"],
        "texts",
        "documents.jsonl",
        "documents.jsonl",
        missing="data.text=no.txt",
        other="masking.share=0.25",
    ),
    "classify-text": Kind(
        "starter-classify",
        [*TINY_TEXT, *CLASSIFY, "tokenizer.kind=word", "model.dropout=0.1"],
        "texts",
        "train.tsv",
        "test.tsv",
        missing='data.train=["no.tsv"]',
        evaluate={"baselines": False},
        other="model.pooling=last",
    ),
    "answer": Kind(
        "starter-answer",
        [
            *TINY,
            *TEXT,
            'data.train=["train.jsonl"]',
            'data.test=["test.tsv"]',
            "data.max_length=48",
            "data.stride=16",
            "tokenizer.kind=word",
        ],
        "questions",
        "train.jsonl",
        "test.tsv",
        missing='data.train=["no.jsonl"]',
        evaluate={"baselines": False},
        other="data.stride=8",
    ),
    "embeddings": Kind(
        "words",
        ["data.text=text.txt", "data.held_out=0.1", "embeddings.width=16", "embeddings.words_per_batch=512"],
        "texts",
        "text.txt",
        "text.txt",
        missing="data.text=no.txt",
        other="embeddings.window=3",
    ),
    "classify-image": Kind(
        "digits",
        [*TINY_IMAGES, *IMAGES, "augmentation.crop=1", "augmentation.operations=1", "augmentation.mixup=0.3"],
        "pictures",
        "train",
        "test",
        spoil=one_image_less,
        missing="data.images=nowhere",
        evaluate={"baselines": False},
        other="augmentation.flip=0.25",
    ),
    "detect": Kind(
        "scenes-detect",
        [
            *TINY,
            "data.sample=",
            "data.train=train.jsonl",
            "data.test=test.jsonl",
            "data.held_out=0.1",
            "images.size=16",
            "images.fit=pad",
            "model.patch=4",
            "augmentation.crop=2",
            "augmentation.flip=0.5",
            "augmentation.scale=0.25",
            "training.images_per_batch=12",
            "training.warmup=2",
        ],
        "boxed",
        "train.jsonl",
        "test.jsonl",
        missing="data.train=no.jsonl",
        other="detection.overlap=0.25",
    ),
    "pixels": Kind(
        "digits-pixels",
        [*TINY, *IMAGES, "augmentation.crop=1", "augmentation.flip=0.5", "model.dropout=0.1"],
        "pictures",
        "train",
        "test",
        spoil=one_image_less,
        missing="data.images=nowhere",
        other="pixels.colours=9",
    ),
    "caption": Kind(
        "scenes-caption",
        [
            *TINY,
            "data.sample=",
            "data.images=.",
            "images.size=8",
            "images.colour=false",
            "model.patch=4",
            "model.initialisation=paper",
            "model.dropout=0.1",
            "augmentation.crop=1",
            "training.images_per_batch=16",
            "training.optimizer=adamw",
            "decoding.beam=2",
            "decoding.max_tokens=12",
        ],
        "captioned",
        "train",
        "test",
        spoil=one_caption_less,
        missing="data.images=nowhere",
        other="model.cross=additive",
    ),
    "segment": Kind(
        "scenes-segment",
        [
            *TINY,
            *IMAGES,
            "data.ignore=9",
            "data.held_out=0.1",
            "images.size=16",
            "model.patch=4",
            "augmentation.crop=1",
            "augmentation.flip=0.5",
            "augmentation.scale=0.2",
            "augmentation.operations=1",
            "model.dropout=0.1",
        ],
        "shapes",
        "train",
        "test",
        spoil=half_as_many_images,
        missing="data.images=nowhere",
        other="augmentation.flip=0.25",
    ),
    "synthetic": Kind(
        "reverse",
        [
            *TINY,
            "synthetic.length=10",
            "synthetic.vocabulary=8",
            "synthetic.test_sequences=50",
            "training.tokens_per_batch=320",
        ],
        other="synthetic.vocabulary=6",
    ),
    "play": Kind(
        "tictactoe",
        [
            *TINY,
            'data.train=["train.tsv"]',
            'data.test=["test.tsv"]',
            "data.perfect=0.0",
            "data.held_out=0.1",
            "matches.games=10",
            "model.dropout=0.1",
            "training.tokens_per_batch=320",
        ],
        "games",
        "train.tsv",
        "test.tsv",
        missing='data.train=["no.tsv"]',
        other="data.max_length=8",
    ),
}
