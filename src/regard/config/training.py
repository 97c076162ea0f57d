"""How a model is trained."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from regard.config.base import (
    IMAGES,
    NETWORKS,
    TEXT_NETWORKS,
    TOKEN_NETWORKS,
    TOKENS,
    NotNegative,
    Positive,
    Settings,
    Share,
    of,
)


class TrainingSettings(Settings):
    steps: Positive = Field(100_000, description="updates of the weights")
    tokens_per_batch: Positive = Field(
        8192, description="target positions in one update", json_schema_extra=TOKEN_NETWORKS
    )
    images_per_batch: Positive = Field(256, description="images in one update", json_schema_extra=IMAGES)
    row_length: Positive = Field(
        128,
        description="tokens in one row of a batch; several sentences or texts share a row",
        json_schema_extra=TEXT_NETWORKS,
    )
    packing: Literal["auto", "yes", "no"] = Field(
        "auto",
        description="several sentences or texts in a row: auto (where the mixer can) · yes · no (rows of like length)",
        json_schema_extra=of("translate", "classify-text"),
    )
    micro_batches: Positive = Field(
        1, description="compute one update in this many pieces, to save memory", json_schema_extra=NETWORKS
    )
    optimizer: Literal["adam", "adamw", "muon"] = Field(
        "adam", description="adam · adamw · muon (for the matrices of the blocks; adamw for the rest)"
    )
    muon_learning_rate: float = Field(
        0.02, gt=0, description="Muon's highest rate; same schedule", json_schema_extra=NETWORKS
    )
    muon_momentum: Share = Field(0.95, description="Muon's memory of the gradient", json_schema_extra=NETWORKS)
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
    label_smoothing: Share = Field(
        0.1, description="probability spread over all tokens, or classes", json_schema_extra=NETWORKS
    )
    consistency: float = Field(
        0.0,
        ge=0,
        description="R-Drop: weight of the divergence between two passes with different dropout",
        json_schema_extra=TOKENS,
    )
    ema: Share = Field(0.0, description="decay of an exponential moving average of the weights; 0: off")
    average_checkpoints: NotNegative = Field(0, description="the final model is the mean of the last N saved; 0: off")
    validate_every: Positive = Field(1000, description="steps between validations")
    validate_bleu: bool = Field(
        True,
        description="also translate the validation set (greedily) and score it",
        json_schema_extra=of("translate"),
    )
    select: Literal["loss", "bleu", "accuracy"] = Field(
        "loss",
        description="what makes a checkpoint the best: loss · bleu (translating) · accuracy (classifying, synthetic)",
    )
    patience: NotNegative = Field(0, description="stop after this many validations without a better one; 0: never")
    save_every: NotNegative = Field(0, description="steps between checkpoints; 0: at every validation")
    keep_checkpoints: int = Field(2, ge=2, description="checkpoints kept, besides the best")
    log_every: Positive = Field(50, description="steps between lines in metrics.jsonl")
    start_from: str = Field(
        "",
        description="a run whose blocks (and tokenizer) to start from; `--from RUN` sets it",
        json_schema_extra=of("language", "masked", "classify-text", "classify-image"),
    )
    embeddings: str = Field(
        "",
        description="word vectors (word2vec text) to start the embedding from; `--embeddings FILE` sets it",
        json_schema_extra=TEXT_NETWORKS,
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.validate_every % self.checkpoint_every:
            raise ValueError(
                f"validate_every = {self.validate_every} is not a multiple of save_every = {self.save_every}; "
                "change one, so that every validation has its checkpoint"
            )
        if self.select == "bleu" and not self.validate_bleu:
            raise ValueError('select = "bleu" needs validate_bleu = true')
        if self.ema and self.average_checkpoints:
            raise ValueError("ema and average_checkpoints both make the final model; set one of them to 0")
        return self

    @property
    def checkpoint_every(self) -> int:
        return self.save_every or self.validate_every
