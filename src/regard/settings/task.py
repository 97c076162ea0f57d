"""The settings of a task: a name, a seed, and the sections that this task has.

Every task declares its own class, made of the sections in this package; an unknown key is an error, so a setting that
has no effect on a task cannot be set. What several sections must agree on is told by `check`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from regard.settings.base import NotNegative, Problem, Settings
from regard.settings.data import ChatData, ImageData, LabelledData, PairFiles, PictureData, QuestionData, TextData
from regard.settings.images import CropSettings, ImageSettings
from regard.settings.model import ModelSettings
from regard.settings.system import SystemSettings
from regard.settings.tokenizer import TokenizerSettings
from regard.settings.training import ImageTraining, PackedTraining, RunningTextTraining, TrainingSettings

MOST_TOKENS = 65_536
# Seconds that compiling a block saves on a GPU, forwards and backwards: for each pass, and for each number that passes
# it. From three trainings on an H200: 1.1 ms with 6 million numbers, 1.2 ms with 4, 1.5 ms with 50.
SAVED_BY_PASS, SAVED_BY_NUMBER = 1e-3, 1e-11
LAST = ("model", "training", "decoding", "system")  # the sections that stand at the end of a recipe, in this order


class TaskSettings(Settings):
    """One task's settings. A subclass adds its sections and narrows `training`."""

    BATCH: ClassVar[str] = "training.tokens_per_batch"  # what is to be lowered when memory runs out
    SELECT: ClassVar[tuple[str, ...]] = ("loss",)  # the metrics that may choose the best checkpoint

    task: str = Field(description="what is trained")
    recipe: str = Field("", description="name of the recipe this came from")
    seed: NotNegative = Field(1, description="every random choice follows from it")
    training: TrainingSettings = TrainingSettings()
    system: SystemSettings = SystemSettings()

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        for problem in self.check():
            raise ValueError(str(problem))
        return self

    def check(self) -> Iterator[Problem]:
        """What the sections do not agree on. Parts are not asked here: that is `check_parts`."""
        if self.training.select not in self.SELECT:
            yield Problem(
                f'training.select = "{self.training.select}" is not measured for the task "{self.task}"',
                f"use {' or '.join(self.SELECT)}",
            )
        if self.system.precision == "float8" and not self.eight_bits:
            yield Problem(
                'system.precision = "float8" is for blocks of attention and a feed-forward part without gates, whose '
                "widths are multiples of 16 and 128",
                'use system.precision = "auto", or another model',
            )
        if self.training.shard:
            no = {"system.compile": self.system.compile == "yes", "system.precision": self.system.precision == "float8"}
            for name in [name for name, asked in no.items() if asked]:
                yield Problem(f"training.shard = true needs blocks as they are, without {name}", f'use {name} = "auto"')

    def check_parts(self) -> Iterator[Problem]:
        """What does not fit together with the mixer, the positions or the optimizer, whose classes bring torch."""
        yield from ()

    def completed(self) -> Self:
        """With the own settings of all parts written out."""
        return self.model_copy(update={"training": self.training.completed()})

    def remarks(self) -> list[str]:
        """What to warn about before training."""
        return []

    @property
    @abstractmethod
    def width(self) -> int:
        """Size of a token's vector, by which the paper's schedule scales the learning rate."""

    @property
    def saved_by_compiling(self) -> float:
        """About how many seconds of the whole training on a GPU; 0 where a model is not made of blocks."""
        return 0.0

    @property
    def eight_bits(self) -> bool:
        """Whether products can be in eight bits in training."""
        return False

    @property
    def tokens_per_step(self) -> int:
        """How many tokens an update sees: what `regard compare --tokens` counts."""
        return self.batch_size

    @property
    def batch_size(self) -> int:
        section, _, name = self.BATCH.partition(".")
        size: int = getattr(getattr(self, section), name)
        return size

    @property
    def parts(self) -> dict[str, str]:
        """The parts that these settings name, by their kind in the registry."""
        named = {"tasks": self.task}
        for section in self.sections().values():
            for setting, kind in getattr(section, "PARTS", {}).items():
                named[kind] = getattr(section, setting)
        return named

    def sections(self) -> dict[str, Settings]:
        """The sections in the order in which a recipe has them."""
        named = {name: value for name in type(self).model_fields if isinstance(value := getattr(self, name), Settings)}
        first = {name: section for name, section in named.items() if name not in LAST}
        return first | {name: named[name] for name in LAST if name in named}

    def with_section(self, section: str, **changes: Any) -> Self:
        """With these settings of a section changed. They are not checked again."""
        return self.model_copy(update={section: getattr(self, section).model_copy(update=changes)})


class NetworkSettings(TaskSettings):
    """Of a task whose model is made of blocks."""

    model: ModelSettings = ModelSettings()

    @property
    @abstractmethod
    def row(self) -> tuple[str, int]:
        """How many positions a row of a batch has, and which setting says so."""

    @property
    def longest(self) -> tuple[str, int]:
        """How many positions the longest sequence has, and which setting says so."""
        return self.row

    def check_parts(self) -> Iterator[Problem]:
        yield from self.model.check_parts()
        yield from self.model.part("positions").check_length(self.model, *self.longest)

    def completed(self) -> Self:
        return super().completed().model_copy(update={"model": self.model.for_length(self.row[1])})

    def remarks(self) -> list[str]:
        remarks: list[str] = self.model.part("mixer").remarks(self.model, self.row[1])
        return remarks

    @property
    def width(self) -> int:
        return self.model.width

    @property
    def eight_bits(self) -> bool:
        return self.model.eight_bits

    @property
    def saved_by_compiling(self) -> float:
        """From the work ahead: every number that passes a block, in every update. Nothing where kernels are written."""
        fused = self.model.fused and self.system.precision != "float32"
        if fused or self.training.shard or self.model.in_order or not self.model.part("mixer").compiles:
            return 0.0
        training = self.training
        numbers = self.tokens_per_step * self.width * (2 if getattr(training, "consistency", 0.0) else 1)
        a_block = numbers * SAVED_BY_NUMBER + training.pieces * SAVED_BY_PASS
        return training.steps * self.model.blocks * a_block


class SentenceSettings(NetworkSettings):
    """Of a task over sentences or texts, several of which may share a row."""

    data: PairFiles | LabelledData | QuestionData | ChatData
    tokenizer: TokenizerSettings = TokenizerSettings()
    training: PackedTraining = PackedTraining()

    @property
    def row(self) -> tuple[str, int]:
        return "training.row_length", self.training.row_length

    @property
    def longest(self) -> tuple[str, int]:
        return "data.max_length", self.data.max_length

    @property
    def longest_in_a_row(self) -> tuple[str, int]:
        """How much of a row the longest text takes, and which setting says so."""
        return self.longest

    @property
    def packed(self) -> bool:
        """Whether several sequences share a row."""
        shares_rows: bool = self.model.part("mixer").shares_rows
        return self.training.packing == "yes" or (self.training.packing == "auto" and shares_rows)

    @property
    def saved_by_compiling(self) -> float:
        """Nothing unpacked: batches come in many shapes, and each would be compiled."""
        return super().saved_by_compiling if self.packed else 0.0

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        yield from self.training.check_rows(*self.row)
        yield from self.tokenizer.check()
        name, longest = self.longest_in_a_row
        if longest > self.training.row_length:
            yield Problem(
                f"{name} = {longest} does not fit into training.row_length = {self.training.row_length}",
                "lower the first or raise the second",
            )

    def check_parts(self) -> Iterator[Problem]:
        yield from super().check_parts()
        if self.training.packing == "yes" and not self.model.part("mixer").shares_rows:
            yield Problem(
                f'training.packing = "yes", but model.mixer = "{self.model.mixer}" would run from one sentence into '
                "the next",
                'use "auto" or "no"',
            )


class RunningTextSettings(TaskSettings):
    """Of a task over running text."""

    data: TextData = TextData()
    tokenizer: TokenizerSettings = TokenizerSettings()

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        yield from self.tokenizer.check()


class TextModelSettings(NetworkSettings, RunningTextSettings):
    """Of a model of running text."""

    training: RunningTextTraining = RunningTextTraining()

    @property
    def row(self) -> tuple[str, int]:
        return "training.row_length", self.training.row_length

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        yield from self.training.check_rows(*self.row)

    def check_parts(self) -> Iterator[Problem]:
        yield from super().check_parts()
        if self.data.documents == "apart" and not self.model.part("mixer").shares_rows:
            yield Problem(
                f'data.documents = "apart" cannot be kept with model.mixer = "{self.model.mixer}", which runs on from '
                "one document into the next",
                'use data.documents = "together", or another mixer',
            )


class PictureTaskSettings(NetworkSettings):
    """Of a task over images, with whatever belongs to them."""

    BATCH: ClassVar[str] = "training.images_per_batch"

    data: PictureData = PictureData()
    images: ImageSettings = ImageSettings()
    augmentation: CropSettings = CropSettings()
    training: ImageTraining = ImageTraining()

    @property
    def tokens_per_step(self) -> int:
        """An image counts as the tokens that it is read as."""
        return self.batch_size * self.row[1]

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        yield from self.training.check_images()
        named = [name for name in ("sample", "images", "train") if getattr(self.data, name)]
        if len(named) > 1:
            yield Problem(
                f"data.{named[0]} and data.{named[1]} both name the images to train on", "leave one of them empty"
            )
        if self.data.held_out + (self.data.held_out_test or self.data.held_out) >= 1:
            yield Problem("data.held_out and data.held_out_test leave nothing to train on", "lower one of them")
        yield from self.augmentation.check(self.images)

    def check_tokens(self, remedy: str) -> Iterator[Problem]:
        name, tokens = self.row
        if tokens > MOST_TOKENS:
            yield Problem(
                f"{name} is {tokens:,}, more than the {MOST_TOKENS:,} that attention can still be computed for",
                f"choose a smaller images.size{remedy}",
            )


class ImageTaskSettings(PictureTaskSettings):
    """Of a task over images with labels, or none."""

    data: ImageData = ImageData()
