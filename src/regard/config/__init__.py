"""Every setting, typed, in one place.

A recipe is a TOML file with these sections (`regard.recipes` reads and writes it). What a recipe leaves
out takes the value given here. A setting that only some tasks know is marked with their names.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from regard.config.base import (
    FILES,
    IMAGES,
    NETWORKS,
    PACKABLE,
    RECURRENT,
    SMALLEST_VOCABULARY,
    TASKS,
    TEXTS,
    FileList,
    Mixer,
    NotNegative,
    Settings,
    Task,
    of,
)
from regard.config.data import AugmentationSettings, DataSettings, ImageSettings, TokenizerSettings
from regard.config.games import EmbeddingSettings, MaskingSettings, PixelSettings, SyntheticSettings
from regard.config.model import ModelSettings
from regard.config.running import DecodingSettings, SystemSettings
from regard.config.training import TrainingSettings
from regard.config.vision import images_agree, patches

__all__ = [
    "PACKABLE",
    "RECURRENT",
    "TASKS",
    "AugmentationSettings",
    "Config",
    "DataSettings",
    "DecodingSettings",
    "EmbeddingSettings",
    "FileList",
    "ImageSettings",
    "MaskingSettings",
    "Mixer",
    "ModelSettings",
    "PixelSettings",
    "Settings",
    "SyntheticSettings",
    "SystemSettings",
    "Task",
    "TokenizerSettings",
    "TrainingSettings",
]


class Config(Settings):
    task: Task = Field("translate", description=" · ".join(TASKS))
    recipe: str = Field("", description="name of the recipe this came from")
    seed: NotNegative = Field(1, description="every random choice follows from it")
    data: DataSettings = Field(DataSettings(), json_schema_extra=FILES)
    tokenizer: TokenizerSettings = Field(TokenizerSettings(), json_schema_extra=TEXTS)
    images: ImageSettings = Field(ImageSettings(), json_schema_extra=IMAGES)
    pixels: PixelSettings = Field(PixelSettings(), json_schema_extra=of("pixels"))
    augmentation: AugmentationSettings = Field(AugmentationSettings(), json_schema_extra=IMAGES)
    model: ModelSettings = Field(ModelSettings(), json_schema_extra=NETWORKS)
    training: TrainingSettings = TrainingSettings()
    masking: MaskingSettings = Field(MaskingSettings(), json_schema_extra=of("masked"))
    embeddings: EmbeddingSettings = Field(EmbeddingSettings(), json_schema_extra=of("embeddings"))
    synthetic: SyntheticSettings = Field(SyntheticSettings(), json_schema_extra=of("synthetic"))
    decoding: DecodingSettings = Field(
        DecodingSettings(), json_schema_extra=of("translate", "language", "classify-text", "pixels")
    )
    system: SystemSettings = SystemSettings()

    @model_validator(mode="before")
    @classmethod
    def _what_follows_from_other_settings(cls, tree: Any) -> Any:
        """Hyena's filters are made for the length of the rows, unless another is given; stages count their blocks."""
        model = tree.get("model") if isinstance(tree, dict) else None
        if not isinstance(model, dict):
            return tree
        found = dict(model)
        stages = model.get("stages")
        if isinstance(stages, list) and stages and all(isinstance(blocks, int) and blocks > 0 for blocks in stages):
            found["layers"] = sum(stages)
        if model.get("mixer") == "hyena" and not model.get("hyena_filter_length"):
            try:
                found["hyena_filter_length"] = _row(
                    tree.get("task", "translate"),
                    ImageSettings.model_validate(tree.get("images", {})),
                    ModelSettings.model_validate({**found, "mixer": "attention"}),
                    tree.get("synthetic", {}).get("length", SyntheticSettings.model_fields["length"].default),
                    tree.get("training", {}).get("row_length", TrainingSettings.model_fields["row_length"].default),
                )[1]
            except (ValueError, AttributeError, TypeError):
                return tree  # wrong settings, of which the validation will tell
        return {**tree, "model": found}

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        images_agree(self) if self.task in ("classify-image", "pixels") else self._rows_fill_batches()
        self._texts_agree()
        if self.training.packing == "yes" and self.model.mixer not in PACKABLE:
            raise ValueError(
                f'training.packing = "yes", but model.mixer = "{self.model.mixer}" would run from one sentence into '
                'the next; use "auto" or "no"'
            )
        if self.task != "classify-image" and self.model.positions == "sinusoidal-2d":
            raise ValueError('model.positions = "sinusoidal-2d" is for patches of images; use "sinusoidal"')
        name, longest = self.row
        if self.task in ("translate", "classify-text"):
            name, longest = "data.max_length", self.data.max_length
        grid = self.task in ("classify-image", "embeddings")  # which has its own table, or none
        if not grid and self.model.positions == "learned" and longest > self.model.max_positions:
            raise ValueError(f"{name} = {longest} is more than model.max_positions = {self.model.max_positions}")
        scores = {"bleu": ("translate",), "accuracy": ("classify-text", "classify-image", "synthetic")}
        if self.task not in scores.get(self.training.select, TASKS):
            raise ValueError(
                f'training.select = "{self.training.select}" is not measured for the task "{self.task}"; use "loss"'
            )
        return self

    def _rows_fill_batches(self) -> None:
        training, (name, length) = self.training, self.row
        rows = training.tokens_per_batch // length
        if rows < 1:
            raise ValueError(
                f"training.tokens_per_batch = {training.tokens_per_batch} is less than one row of "
                f"{name} = {length}; raise the first or lower the second"
            )
        if rows < training.micro_batches:
            raise ValueError(
                f"training.micro_batches = {training.micro_batches}, but a batch has only {rows} rows; "
                "raise training.tokens_per_batch or lower training.micro_batches"
            )

    def _texts_agree(self) -> None:
        if self.task in ("classify-image", "pixels"):
            return
        sentences = self.task in ("translate", "classify-text")
        if sentences and self.data.max_length > self.training.row_length:
            raise ValueError(
                f"data.max_length = {self.data.max_length} does not fit into "
                f"training.row_length = {self.training.row_length}; lower the first or raise the second"
            )
        if self.task == "classify-text" and self.data.max_length < 3:
            raise ValueError(
                f"data.max_length = {self.data.max_length} leaves no room for a text between <start> and <end>; "
                "set it to the length of your texts"
            )
        if self.task == "classify-text" and self.model.causal and self.model.pooling == "first":
            raise ValueError(
                'model.pooling = "first" reads a class before the text, where a causal model has seen nothing; '
                'use "last" or "mean"'
            )
        if self.data.documents == "apart" and self.model.mixer not in PACKABLE:
            raise ValueError(
                f'data.documents = "apart" cannot be kept with model.mixer = "{self.model.mixer}", which runs on from '
                'one document into the next; use data.documents = "together", or another mixer'
            )
        if self.task == "language" and self.training.row_length < 2:
            raise ValueError("training.row_length = 1 gives a token nothing to follow from; raise it")
        if self.task == "translate" and self.model.tie_embeddings == "all" and not self.tokenizer.joint:
            raise ValueError(
                'model.tie_embeddings = "all" needs tokenizer.joint = true; set that, or use "target" instead of "all"'
            )
        if self.tokenizer.kind != "byte" and self.tokenizer.vocabulary < SMALLEST_VOCABULARY:
            raise ValueError(
                f"tokenizer.vocabulary = {self.tokenizer.vocabulary} is less than the {SMALLEST_VOCABULARY} entries "
                f"for special tokens and bytes; set it to {SMALLEST_VOCABULARY} or more"
            )
        if self.tokenizer.dropout and self.tokenizer.kind != "bpe":
            raise ValueError(f'tokenizer.dropout needs tokenizer.kind = "bpe", not "{self.tokenizer.kind}"')

    @property
    def row(self) -> tuple[str, int]:
        """How many positions a sequence has, and which settings say so."""
        return _row(self.task, self.images, self.model, self.synthetic.length, self.training.row_length)

    @property
    def batch_setting(self) -> str:
        """The setting that says how much goes into one update."""
        if self.task == "embeddings":
            return "embeddings.words_per_batch"
        images = self.task in ("classify-image", "pixels")
        return "training.images_per_batch" if images else "training.tokens_per_batch"

    @property
    def batch_size(self) -> int:
        section, _, name = self.batch_setting.partition(".")
        size: int = getattr(getattr(self, section), name)
        return size

    @property
    def packed(self) -> bool:
        """Whether several sequences share a row."""
        return self.training.packing == "yes" or (self.training.packing == "auto" and self.model.mixer in PACKABLE)

    @property
    def worth_compiling(self) -> bool:
        """Whether all batches have one shape, and the mixer is not a library's kernel already."""
        sentences = self.task in ("translate", "classify-text")
        return (self.packed or not sentences) and self.model.mixer not in RECURRENT


def _row(task: Task, images: ImageSettings, model: ModelSettings, made_up: int, row_length: int) -> tuple[str, int]:
    if task == "synthetic":
        return "synthetic.length", made_up
    if task == "pixels":
        return "the product of both sides in images.size", images.height * images.width
    if task == "classify-image":
        return "the number of patches", patches(images, model)
    return "training.row_length", row_length
