"""How a model is trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from regard import registry
from regard.settings.base import (
    Auto,
    BatchSize,
    Length,
    NotNegative,
    Positive,
    Problem,
    Settings,
    Share,
    or_auto,
)
from regard.settings.parts import PartSection, registered


class TrainingSettings(PartSection):
    """What all trainings have in common."""

    PARTS: ClassVar[dict[str, str]] = {"optimizer": "optimizers"}

    steps: Positive = Field(100_000, le=1_000_000_000, description="updates of the weights")
    optimizer: Annotated[str, registered("optimizers")] = Field(
        "adam",
        description=f"{' · '.join(registry.OPTIMIZERS)} (muon: for the matrices of the blocks; adamw for the rest)",
    )
    beta1: Share = Field(0.9, description="Adam's memory of the gradient")
    beta2: Share = Field(0.98, description="Adam's memory of its square")
    epsilon: float = Field(1e-9, gt=0, description="Adam's epsilon")
    weight_decay: float = Field(0.0, ge=0, description="pulls weights to zero (adamw: decoupled)")
    learning_rate: float = Field(1.0, gt=0, description="highest rate; for the schedule `paper`, a factor")
    schedule: Literal["paper", "inverse-sqrt", "cosine", "linear", "constant"] = Field(
        "paper", description="paper · inverse-sqrt · cosine · linear · constant; each after a linear warm-up"
    )
    warmup: NotNegative = Field(4000, description="steps of linear warm-up")
    final_learning_rate: float = Field(0.0, ge=0, description="where the schedules cosine and linear end")
    clip_norm: float = Field(0.0, ge=0, description="largest gradient norm; 0: no clipping")
    ema: Share = Field(0.0, description="decay of a moving average of the weights, which is then the model; 0: off")
    average_checkpoints: NotNegative = Field(0, description="the final model is the mean of the last N saved; 0: off")
    validate_every: Positive = Field(1000, description="steps between validations")
    select: str = Field("loss", description="the metric that makes a checkpoint the best")
    patience: NotNegative = Field(0, description="stop after this many validations without a better one; 0: never")
    save_every: NotNegative = Field(0, description="steps between checkpoints; 0: at every validation")
    keep_checkpoints: int = Field(2, ge=2, description="checkpoints kept, besides the best")
    log_every: Positive = Field(50, description="steps between lines in metrics.jsonl")
    micro_batches: Positive = Field(
        1, description="compute one update in this many pieces, to save memory, or to deal out to processes"
    )
    reduce: Literal["exact", "fast"] = Field(
        "exact", description="exact: micro-batches are added in one order, whatever the number of processes · fast"
    )
    shard: bool = Field(
        False, description="each process holds a part of the model only, for one that does not fit a device"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.validate_every % self.checkpoint_every:
            raise ValueError(
                f"validate_every = {self.validate_every} is not a multiple of save_every = {self.save_every}; "
                "change one, so that every validation has its checkpoint"
            )
        if self.ema and self.average_checkpoints:
            raise ValueError("ema and average_checkpoints both make the final model; set one of them to 0")
        return self

    @property
    def checkpoint_every(self) -> int:
        return self.save_every or self.validate_every

    @property
    def pieces(self) -> int:
        """How many pieces an update is computed in."""
        return self.micro_batches

    def completed(self) -> Self:
        """With the optimizer's own settings complete."""
        return self.with_own("optimizer", self.own("optimizer", self.part("optimizer").Settings))


class NetworkTraining(TrainingSettings):
    """Of a model made of blocks."""

    label_smoothing: Share = Field(0.1, description="probability spread over all tokens, or classes")


class Consistency(Settings):
    consistency: float = Field(
        0.0, ge=0, description="R-Drop: weight of the divergence between two passes with different dropout"
    )


class TokenTraining(Consistency, NetworkTraining):
    """Of a model over rows of tokens."""

    tokens_per_batch: Annotated[BatchSize, or_auto(8192)] = Field(
        8192, description='target positions in one update; "auto": as many as a GPU has memory for'
    )

    def check_rows(self, name: str, length: int) -> Iterator[Problem]:
        """Rows of this length, which the setting `name` says, fill a batch."""
        rows = self.tokens_per_batch // length
        if isinstance(self.tokens_per_batch, Auto):
            return
        if rows < 1:
            yield Problem(
                f"training.tokens_per_batch = {self.tokens_per_batch} is less than one row of {name} = {length}",
                "raise the first or lower the second",
            )
        elif rows < self.micro_batches:
            yield Problem(
                f"training.micro_batches = {self.micro_batches}, but a batch has only {rows} rows",
                "raise training.tokens_per_batch or lower training.micro_batches",
            )


class StartingPoint(Settings):
    """Weights that a training may start from."""

    start_from: str = Field("", description="a run whose blocks (and tokenizer) to start from; `--from RUN` sets it")


class WordVectorStart(Settings):
    embeddings: str = Field(
        "", description="word vectors (word2vec text) to start the embedding from; `--embeddings FILE` sets it"
    )


class TextTraining(WordVectorStart, TokenTraining):
    """Of a model over rows of text."""

    row_length: Length = Field(128, description="tokens in one row of a batch; several texts share a row")


class GameTraining(StartingPoint, TokenTraining):
    """Of a model of games."""


class RunningTextTraining(StartingPoint, TextTraining):
    """Of a model of running text."""


class PackedTraining(TextTraining):
    """Of a model over sentences or texts that are packed into rows."""

    packing: Literal["auto", "yes", "no"] = Field(
        "auto", description="several texts in a row: auto (where the mixer can) · yes · no (rows of similar length)"
    )


class TextClassifierTraining(StartingPoint, PackedTraining):
    """Of a model that names the class of a text."""


class AnswerTraining(StartingPoint, PackedTraining):
    """Of a model that finds answers."""

    label_smoothing: Share = Field(0.0, description="probability spread over all places of a context")


class TranslationTraining(PackedTraining):
    """Of a translator."""

    validate_bleu: bool = Field(True, description="also translate the validation set (greedily) and score it")


class SummaryTraining(PackedTraining):
    """Of what writes summaries."""

    row_length: Length = Field(128, description="summary tokens in one row of a batch; several pairs share a row")
    validate_rouge: bool = Field(True, description="also summarise the validation set (greedily) and score it")


class ImageTraining(NetworkTraining):
    """Of a model over images."""

    images_per_batch: Annotated[BatchSize, or_auto(256)] = Field(
        256, description='images in one update; "auto": as many as a GPU has memory for'
    )

    def check_images(self) -> Iterator[Problem]:
        if self.images_per_batch < self.micro_batches and not isinstance(self.images_per_batch, Auto):
            yield Problem(
                f"training.micro_batches = {self.micro_batches}, but a batch has only {self.images_per_batch} images",
                "raise training.images_per_batch or lower training.micro_batches",
            )


class ImageClassifierTraining(StartingPoint, ImageTraining):
    """Of a model that names the class of an image."""


class CaptionTraining(Consistency, ImageTraining):
    """Of a model that writes about images."""

    validate_bleu: bool = Field(True, description="also caption the validation images (greedily) and score that")


class SegmentationTraining(StartingPoint, ImageTraining):
    """Of a model that names the class of every pixel."""


class PixelTraining(Consistency, ImageTraining):
    """Of a model that predicts pixels."""
