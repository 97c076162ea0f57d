"""Where the data of a task is, in what form, and how it is divided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from regard.settings.base import FileList, Length, NotNegative, Problem, Settings, Share

NOT_IN_THE_RESULT = ("data.cache", "data.workers")  # only how the data is prepared, and where


class DataSettings(Settings):
    """What all files have in common."""

    root: str = Field(".", description="where relative paths start; `--data DIR` sets it")
    valid: FileList = Field([], description="as the training data; empty: a share of that is held out")
    test: FileList = Field([], description="as the training data; empty: a share of that is held out")
    held_out: float = Field(
        0.01, ge=0.0, lt=0.5, description="the share held out for validation, and for a test where none is named"
    )
    cache: str = Field("", description="folder for tokenised text and decoded images; empty: the user's cache folder")

    @field_validator("train", "valid", "test", "boxes", mode="before", check_fields=False)
    @classmethod
    def _one_file(cls, value: Any) -> Any:
        """A single file needs no brackets."""
        return [value] if isinstance(value, str) else value


class TokenisedData(DataSettings):
    """Text that is tokenised once, and kept."""

    workers: NotNegative = Field(
        0, le=1024, description="processes that tokenise a large corpus; 0: one for each core · 1: none beside this one"
    )


class LineData(TokenisedData):
    """Files with one example on a line."""

    columns: list[NotNegative] = Field(
        [0, 1],
        min_length=2,
        max_length=2,
        description="columns of a TSV, from 0: source and target, or label and text",
    )
    bad_lines: Literal["error", "skip"] = Field("error", description="invalid UTF-8 or a line over 1 MB: error · skip")


class PairFiles(LineData):
    """Two texts on a line: what is read, and what is written for it."""

    sample: str = Field("", description="built-in pairs instead of files")
    train: FileList = Field([], description="two line-aligned files, one TSV or .jsonl; several as a list of lists")
    max_length: Length = Field(128, description="in tokens: longer pairs are left out of training")

    @property
    def fields(self) -> tuple[str, str]:
        """Where both are in .jsonl."""
        return "source", "target"

    @property
    def more_columns(self) -> list[int]:
        """Columns of a test file with further targets, each as good as the first."""
        return []


class PairData(PairFiles):
    """Sentence pairs."""

    sample: Literal["", "english-german", "stories"] = Field(
        "",
        description="built-in pairs instead of files: english-german · stories (a question and its story, the answer)",
    )


class SummaryData(PairFiles):
    """Texts with a summary each."""

    sample: Literal["", "package-descriptions"] = Field(
        "", description="built-in texts, all made up, instead of files: package-descriptions"
    )
    max_length: Length = Field(512, description="in tokens: of a longer text only the beginning is read")
    max_summary: Length = Field(128, description="in tokens: pairs with a longer summary are left out of training")
    text_field: str = Field("text", description="where the text is in .jsonl")
    summary_field: str = Field("summary", description="where the summary is in .jsonl, or a list of several")
    references: list[NotNegative] = Field(
        [], description="columns of a test TSV with further summaries; scores are means over all of a text"
    )

    @property
    def fields(self) -> tuple[str, str]:
        return self.text_field, self.summary_field

    @property
    def more_columns(self) -> list[int]:
        return self.references


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


class ChatData(DataSettings):
    """Conversations."""

    sample: Literal["", "small-talk"] = Field(
        "", description="built-in conversations, all made up, instead of files: small-talk"
    )
    train: FileList = Field([], description="conversations: .jsonl; or .tsv and .txt, one on a line")
    max_length: Length = Field(128, description="in tokens, the context: a longer conversation is cut between turns")
    us: str = Field(
        "second", description="whose turns are learned: second (to speak) · both (everybody's) · a speaker's name"
    )
    turns_field: str = Field("turns", description="where the turns are in .jsonl: texts, or objects with who and text")
    column: NotNegative = Field(0, description="column of a TSV, from 0")
    separator: str = Field(" ↵ ", min_length=1, description="what is between two turns of a line in .tsv and .txt")
    name_until: str = Field(": ", description="there, a turn begins with its speaker's name up to this; empty: no name")


class QuestionData(LineData):
    """Questions, each with the text that has its answer."""

    sample: Literal["", "stories"] = Field("", description="built-in questions instead of files: stories")
    train: FileList = Field([], description="questions with context and answers: .json or .jsonl as in SQuAD, or .tsv")
    columns: list[NotNegative] = Field(
        [0, 1, 2], min_length=3, max_length=3, description="columns of a TSV, from 0: question, context and answer"
    )
    no_answer: bool = Field(True, description="whether a context may be without an answer, and the model may say so")
    max_length: Length = Field(384, description="in tokens: what is read at once of a question and its context")
    stride: Length = Field(128, description="tokens from one window to the next, where a context is longer than that")


class TextData(TokenisedData):
    """Running text."""

    text: str | list[str] = Field([], description="text files, folders of them, or .jsonl")
    held_out_test: float = Field(0.0, ge=0.0, lt=0.5, description="the share held out for a test, where none is named")
    documents: Literal["together", "apart"] = Field(
        "together", description="together: one long text · apart: each document starts fresh and sees no other"
    )
    text_field: str = Field("text", description="where the text is in .jsonl")


class PictureData(DataSettings):
    """Images, with whatever belongs to them."""

    sample: Literal["", "digits", "scenes"] = Field("", description="built-in images instead of files")
    images: str = Field("", description="a folder or .tar with the images")
    train: FileList = Field([], description="as `images`, if they are in several places")
    held_out_test: float = Field(
        0.0, ge=0.0, lt=0.5, description="the share held out for a test, where none is named; 0: as held_out"
    )


class ImageData(PictureData):
    """Images, with labels where they are needed."""

    sample: Literal["", "digits"] = Field("", description="built-in images instead of files: digits")
    images: str = Field(
        "", description="a folder or .tar with train, valid and test in it, or with all images; or a .csv, or idx files"
    )
    image_field: str = Field(
        "path", description="where the path of an image is in a .csv; paths start from the folder of that file"
    )
    label_field: str = Field("label", description="where the label is in a .csv")


class GameData(DataSettings):
    """Games, from files or made by their rules."""

    game: Literal["tic-tac-toe", "othello", "chess"] = Field(
        "tic-tac-toe", description="tic-tac-toe · othello · chess (needs python-chess)"
    )
    train: FileList = Field(
        [], description="games, one on a line: result and moves, or .pgn of chess; empty: they are made"
    )
    games: Length = Field(60_000, description="how many games are made at random, where no files are named")
    perfect: Share = Field(
        0.0, description="share of the players in games that are made who play perfectly; the others play at random"
    )
    columns: list[NotNegative] = Field(
        [0, 1], min_length=2, max_length=2, description="where a line has result and moves: columns of a TSV, from 0"
    )
    max_length: Length = Field(256, description="in moves: of longer games, only the beginning is used")

    def check(self) -> Iterator[Problem]:
        if self.perfect and (self.game != "tic-tac-toe" or self.train):
            what = "games from files are" if self.train else f"{self.game} is"
            yield Problem(f"data.perfect = {self.perfect:g}, but {what} not played perfectly", "set it to 0")

    @property
    def longest(self) -> int:
        """The most moves of a game that are used."""
        return min(self.max_length, {"tic-tac-toe": 9, "othello": 60}.get(self.game, self.max_length))


class CaptionData(PictureData):
    """Images, each with one caption or more."""

    sample: Literal["", "scenes"] = Field("", description="built-in images instead of files: scenes")
    images: str = Field(
        "",
        description="a folder or .tar of images with NAME.txt beside each, a caption on a line; or a .jsonl or .tsv of "
        "images and captions; may have train, valid and test in it",
    )
    pictures: str = Field(
        "", description="where the images of a .jsonl or .tsv are: a folder or .tar; empty: in the folder of that file"
    )
    image_field: str = Field("image", description="where the path of an image is in .jsonl")
    caption_field: str = Field("captions", description="where the captions are in .jsonl: a list, or one text")
    max_length: Length = Field(64, description="in tokens, with <end>: longer captions are cut")


class MaskData(PictureData):
    """Images, each with a mask: a PNG of the same size whose pixels are numbers of classes."""

    sample: Literal["", "scenes"] = Field("", description="built-in images instead of files: scenes")
    images: str = Field("", description="a folder or .tar with images/a.jpg and masks/a.png, or such in train and test")
    image_folder: str = Field("images", min_length=1, description="what the folder of the images is called")
    mask_folder: str = Field("masks", min_length=1, description="what the folder of the masks is called")
    split_file: str = Field(
        "", description="a .jsonl with `name` and `split` of each image, below the folder of `images`; or beside a .tar"
    )
    values: list[Annotated[int, Field(ge=0, le=255)]] = Field(
        [], description="the numbers in masks that are classes; empty: all in the training masks but `ignore`"
    )
    classes: list[str] = Field([], description="their names, in the order of the numbers; empty: the numbers")
    ignore: int = Field(255, ge=-1, le=255, description="the number of pixels that count for nothing; -1: none")


class BoxData(ImageData):
    """Images with boxes around what is in them."""

    sample: Literal["", "scenes"] = Field("", description="built-in images instead of files: scenes")  # type: ignore[assignment]
    images: str = Field(
        "",
        description="a file of boxes with its images beside it: .jsonl, .json (COCO), a folder of .xml (VOC); where "
        "data.boxes is set: the images, as a folder, .tar or .csv",
    )
    boxes: FileList = Field([], description="files of boxes that name the images of data.images; empty: that is one")
    box_unit: Literal["pixels", "shares"] = Field(
        "pixels", description="what the corners of boxes are: pixels · shares (of width and height)"
    )
