"""What a model is trained on: files, tokenizers, images."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from regard.config.base import (
    IMAGES,
    RUNNING_TEXT,
    Chance,
    FileList,
    NotNegative,
    Positive,
    Settings,
    Share,
    of,
)


class DataSettings(Settings):
    root: str = Field(".", description="where relative paths start; `--data DIR` sets it")
    sample: Literal["", "english-german", "digits"] = Field(
        "",
        description="built-in data instead of files: english-german (pairs) · digits (images)",
        json_schema_extra=of("translate", "classify-image", "pixels"),
    )
    text: str | list[str] = Field(
        [], description="text files, folders of them, or .jsonl", json_schema_extra=RUNNING_TEXT
    )
    images: str = Field(
        "",
        description="a folder or .tar with train, valid and test in it, or with all images; or a .csv, or idx files",
        json_schema_extra=IMAGES,
    )
    train: FileList = Field(
        [],
        description="pairs: two line-aligned files, or one TSV; labelled text: .tsv, .csv, .jsonl; images: as `images`",
        json_schema_extra=of("translate", "classify-text", "classify-image", "pixels"),
    )
    valid: FileList = Field([], description="same form; empty: a share of the training data is kept aside")
    test: FileList = Field([], description="same form; empty: a share of the training data is kept aside")
    held_out: float = Field(
        0.01, ge=0.0, lt=0.5, description="the share kept aside for validation, and for a test where none is named"
    )
    held_out_test: float = Field(
        0.0,
        ge=0.0,
        lt=0.5,
        description="the share kept aside for a test, where none is named (images: 0 is as held_out)",
        json_schema_extra=of("language", "masked", "embeddings", "classify-image", "pixels"),
    )
    documents: Literal["together", "apart"] = Field(
        "together",
        description="together: one long text · apart: a document never sees the one before it",
        json_schema_extra=RUNNING_TEXT,
    )
    columns: list[NotNegative] = Field(
        [0, 1],
        min_length=2,
        max_length=2,
        description="columns of a TSV, from 0: source and target, or label and text",
        json_schema_extra=of("translate", "classify-text"),
    )
    form: Literal["auto", "tsv", "csv", "jsonl", "label-first"] = Field(
        "auto",
        description="auto: by the name · tsv · csv · jsonl · label-first: the first word of a line is its label",
        json_schema_extra=of("classify-text"),
    )
    text_field: str = Field(
        "text",
        description="where the text is in .jsonl, and in .csv with a header",
        json_schema_extra=of("language", "masked", "embeddings", "classify-text"),
    )
    label_field: str = Field(
        "label",
        description="where the label is in .jsonl, and in .csv with a header",
        json_schema_extra=of("classify-text", "classify-image", "pixels"),
    )
    image_field: str = Field(
        "path",
        description="where the path of an image is in a .csv; paths start from the folder of that file",
        json_schema_extra=IMAGES,
    )
    label_until: str = Field(
        "", description="a label ends before this: ':' makes 'NUM:date' NUM", json_schema_extra=of("classify-text")
    )
    encoding: Literal["utf-8", "latin-1"] = Field(
        "utf-8", description="how labelled text is written: utf-8 · latin-1", json_schema_extra=of("classify-text")
    )

    bad_lines: Literal["error", "skip"] = Field(
        "error",
        description="invalid UTF-8 or a line over 1 MB: error · skip",
        json_schema_extra=of("translate", "classify-text"),
    )
    max_length: Positive = Field(
        128,
        description="in tokens: longer pairs are left out of training, longer labelled texts cut",
        json_schema_extra=of("translate", "classify-text"),
    )
    cache: str = Field("", description="folder for tokenised text and decoded images; empty: the user's cache folder")

    @field_validator("train", "valid", "test", mode="before")
    @classmethod
    def _one_file(cls, value: Any) -> Any:
        """A single file needs no brackets."""
        return [value] if isinstance(value, str) else value


class TokenizerSettings(Settings):
    kind: Literal["bpe", "word", "character", "byte"] = Field("bpe", description="bpe · word · character · byte")
    vocabulary: Positive = Field(10_000, description="most entries in the vocabulary (byte: always 259)")
    lowercase: bool = Field(False, description="small letters only; what is decoded then has no capitals")
    joint: bool = Field(True, description="one vocabulary for source and target", json_schema_extra=of("translate"))
    dropout: Share = Field(
        0.0,
        description="BPE dropout: chance to skip a merge, in training only",
        json_schema_extra=of("translate"),
    )
    sample_lines: Positive = Field(
        1_000_000, description="most pairs, lines or pieces of 1 MB read to learn the vocabulary"
    )


LONGEST_SIDE = 4096


class ImageSettings(Settings):
    """Every image is brought to one size and one number of channels."""

    size: Positive | list[Positive] = Field(32, description="pixels of a side, or [height, width]")
    colour: bool = Field(True, description="false: grey")
    fit: Literal["crop", "stretch", "pad"] = Field(
        "crop", description="an image of another shape: crop (its middle) · stretch · pad (with black)"
    )

    @field_validator("size")
    @classmethod
    def _two_sides(cls, value: int | list[int]) -> int | list[int]:
        if isinstance(value, list) and len(value) != 2:
            raise ValueError(f"size = {value} is not one side or two; write 32, or [24, 32] for height and width")
        longest = max(value) if isinstance(value, list) else value
        if longest > LONGEST_SIDE:
            raise ValueError(f"size = {value} is more than {LONGEST_SIDE:,} pixels to a side; choose a smaller one")
        return value

    @property
    def height(self) -> int:
        return self.size if isinstance(self.size, int) else self.size[0]

    @property
    def width(self) -> int:
        return self.size if isinstance(self.size, int) else self.size[1]

    @property
    def channels(self) -> int:
        return 3 if self.colour else 1


CLASSES_ONLY = of("classify-image")


class AugmentationSettings(Settings):
    """Every image is changed at random each time it is seen. See `regard.training.augmentation`."""

    crop: NotNegative = Field(0, description="pixels of edge added all around, from which a random part is cut")
    flip: Chance = Field(0.0, description="chance to swap left and right")
    operations: NotNegative = Field(
        0, le=16, description="RandAugment: changes drawn for each image", json_schema_extra=CLASSES_ONLY
    )
    strength: Chance = Field(0.5, description="RandAugment: how strong they may be", json_schema_extra=CLASSES_ONLY)
    erase: Chance = Field(0.0, description="chance to cover a rectangle", json_schema_extra=CLASSES_ONLY)
    mixup: float = Field(
        0.0, ge=0, description="two images blended; the a of Beta(a, a); 0: off", json_schema_extra=CLASSES_ONLY
    )
    cutmix: float = Field(
        0.0,
        ge=0,
        description="a rectangle of another image put in; the a of Beta(a, a); 0: off",
        json_schema_extra=CLASSES_ONLY,
    )
    mix: Chance = Field(1.0, description="chance of mixup or cutmix, where they are on", json_schema_extra=CLASSES_ONLY)
