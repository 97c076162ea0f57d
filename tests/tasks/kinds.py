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
            "decoding.max_ratio=0.5",
        ],
        "corpus",
        "train.en",
        "test.en",
        missing='data.train=["no.en", "no.de"]',
        other="model.cross=additive",
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
}
