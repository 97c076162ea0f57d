"""Where the data of a task is, in what form, and how it is divided."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from regard.settings.base import FileList, Length, NotNegative, Settings


class DataSettings(Settings):
    """What all files have in common."""

    root: str = Field(".", description="where relative paths start; `--data DIR` sets it")
    valid: FileList = Field([], description="as the training data; empty: a share of that is held out")
    test: FileList = Field([], description="as the training data; empty: a share of that is held out")
    held_out: float = Field(
        0.01, ge=0.0, lt=0.5, description="the share held out for validation, and for a test where none is named"
    )
    cache: str = Field("", description="folder for tokenised text and decoded images; empty: the user's cache folder")

    @field_validator("train", "valid", "test", mode="before", check_fields=False)
    @classmethod
    def _one_file(cls, value: Any) -> Any:
        """A single file needs no brackets."""
        return [value] if isinstance(value, str) else value


class LineData(DataSettings):
    """Files with one example on a line."""

    columns: list[NotNegative] = Field(
        [0, 1],
        min_length=2,
        max_length=2,
        description="columns of a TSV, from 0: source and target, or label and text",
    )
    bad_lines: Literal["error", "skip"] = Field("error", description="invalid UTF-8 or a line over 1 MB: error · skip")


class PairData(LineData):
    """Sentence pairs."""

    sample: Literal["", "english-german"] = Field("", description="built-in pairs instead of files: english-german")
    train: FileList = Field([], description="two line-aligned files, or one TSV; several as a list of lists")
    max_length: Length = Field(128, description="in tokens: longer pairs are left out of training")


class LabelledData(LineData):
    """Texts with one label each."""

    train: FileList = Field([], description="labelled texts: .tsv, .csv, .jsonl")
    max_length: Length = Field(128, description="in tokens: longer texts are cut")
    form: Literal["auto", "tsv", "csv", "jsonl", "label-first"] = Field(
        "auto",
        description="auto: by the name · tsv · csv · jsonl · label-first: the first word of a line is its label",
    )
    text_field: str = Field("text", description="where the text is in .jsonl, and in .csv with a header")
    label_field: str = Field("label", description="where the label is in .jsonl, and in .csv with a header")
    label_until: str = Field("", description="a label ends before this: ':' makes 'NUM:date' NUM")
    encoding: Literal["utf-8", "latin-1"] = Field("utf-8", description="how the files are encoded: utf-8 · latin-1")


class TextData(DataSettings):
    """Running text."""

    text: str | list[str] = Field([], description="text files, folders of them, or .jsonl")
    held_out_test: float = Field(0.0, ge=0.0, lt=0.5, description="the share held out for a test, where none is named")
    documents: Literal["together", "apart"] = Field(
        "together", description="together: one long text · apart: a document begins anew and sees no other"
    )
    text_field: str = Field("text", description="where the text is in .jsonl")


class ImageData(DataSettings):
    """Images, with labels where they are needed."""

    sample: Literal["", "digits"] = Field("", description="built-in images instead of files: digits")
    images: str = Field(
        "", description="a folder or .tar with train, valid and test in it, or with all images; or a .csv, or idx files"
    )
    train: FileList = Field([], description="as `images`, if they are in several places")
    held_out_test: float = Field(
        0.0, ge=0.0, lt=0.5, description="the share held out for a test, where none is named; 0: as held_out"
    )
    image_field: str = Field(
        "path", description="where the path of an image is in a .csv; paths start from the folder of that file"
    )
    label_field: str = Field("label", description="where the label is in a .csv")
