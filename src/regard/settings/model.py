"""The shape of a model: what all have in common, and what only some have."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from regard import registry
from regard.settings.base import Layers, Length, NotNegative, Positive, Problem, Share, Width
from regard.settings.parts import PartSection, registered


class ModelSettings(PartSection):
    """A stack of blocks."""

    PARTS: ClassVar[dict[str, str]] = {"mixer": "mixers", "positions": "positions"}

    layers: Layers = Field(6, description="blocks (of a translator: in the encoder, and in the decoder)")
    width: Width = Field(512, description="size of every token's vector (d)")
    heads: Width = Field(8, description="attention heads (h)")
    key_value_heads: NotNegative = Field(
        0, description="heads of keys and values, shared by groups of queries; 0: as heads"
    )
    key_width: NotNegative = Field(0, le=1 << 17, description="size of a query or key in one head; 0: width / heads")
    value_width: NotNegative = Field(0, le=1 << 17, description="size of a value in one head; 0: width / heads")
    feedforward: NotNegative = Field(2048, le=1 << 20, description="inner size of the feed-forward part; 0: none")
    activation: Literal["relu", "relu2", "gelu", "gelu-tanh", "silu"] = Field(
        "relu", description="relu · relu2 (its square) · gelu · gelu-tanh (as in GPT-2) · silu (gated: SwiGLU)"
    )
    gated: bool = Field(False, description="gated feed-forward: activation(x W) * (x V)")
    mixer: Annotated[str, registered("mixers")] = Field(
        "attention",
        description=f"how positions see each other: {' · '.join(registry.MIXERS)}; its own settings: [model.NAME]",
    )
    positions: Annotated[str, registered("positions")] = Field(
        "sinusoidal", description=f"{' · '.join(registry.POSITIONS)} (sinusoidal-2d: of images; rotary: of attention)"
    )
    norm: Literal["pre", "post"] = Field("post", description="pre · post (as in the paper)")
    norm_kind: Literal["layer", "rms"] = Field("layer", description="layer · rms (no mean, no bias)")
    norm_epsilon: float = Field(1e-5, gt=0, description="what norms add under the root: BERT has 1e-12")
    query_key_norm: bool = Field(False, description="normalise queries and keys in every head")
    bias: bool = Field(True, description="biases in the attention projections")
    feedforward_bias: bool = Field(True, description="biases in the feed-forward part")
    embedding_norm: bool = Field(False, description="normalise embeddings before the first block, as BERT does")
    dropout: Share = Field(0.1, description="on embeddings and on what each part adds")
    attention_dropout: Share = Field(0.0, description="on the attention weights")
    feedforward_dropout: Share = Field(0.0, description="inside the feed-forward part")
    stochastic_depth: Share = Field(
        0.0, description="chance to skip the last block's parts in training; less for those before it"
    )
    layer_scale: float = Field(
        0.0, ge=0, description="what a part adds is multiplied by learned numbers that start here; 0: it is not"
    )
    initialisation: Literal["paper", "gpt2", "zero-out"] = Field(
        "paper", description="paper (Xavier) · gpt2 (normal, .02) · zero-out (each part starts by adding nothing)"
    )

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if not (self.key_width and self.value_width) and self.width % self.heads:
            raise ValueError(
                f"heads = {self.heads} does not divide width = {self.width}; choose heads that divide it, "
                "or set key_width and value_width"
            )
        if self.key_value_heads and self.heads % self.key_value_heads:
            raise ValueError(
                f"key_value_heads = {self.key_value_heads} does not divide heads = {self.heads}; "
                "choose a number that divides it"
            )
        return self

    def for_length(self, length: int) -> Self:
        """With the mixer's own settings complete, for sequences of this many positions."""
        return self.with_own("mixer", self.own("mixer", self.part("mixer").Settings).for_length(length))

    def check_parts(self) -> Iterator[Problem]:
        """What the parts themselves know: asked last, since their classes bring torch."""
        for setting in self.PARTS:
            yield from self.own(setting, self.part(setting).Settings).check(self)

    @property
    def blocks(self) -> int:
        """How many there are."""
        return self.layers

    @property
    def fused(self) -> bool:
        """Whether there are kernels for training its blocks on a GPU: `layers/fused/stack.py` asks the same of them."""
        feedforward = self.feedforward > 0 and self.feedforward % 128 == 0 and not self.gated and not self.layer_scale
        widths = self.head_key_width == self.head_value_width and self.head_key_width % 2 == 0 and self.width <= 4096
        return self.mixer == "attention" and not self.in_order and feedforward and widths

    @property
    def in_order(self) -> bool:
        """Whether positions are computed one after the other, in training too."""
        return False

    @property
    def eight_bits(self) -> bool:
        """Whether these kernels can have products in eight bits."""
        keys = self.head_key_width * (self.key_value_heads or self.heads)
        return self.fused and not any(side % 16 for side in (self.width, self.head_key_width * self.heads, keys))

    @property
    def head_key_width(self) -> int:
        return self.key_width or self.width // self.heads

    @property
    def head_value_width(self) -> int:
        return self.value_width or self.width // self.heads


class SequenceModel(ModelSettings):
    """A model over tokens."""

    max_positions: Length = Field(1024, description="longest sequence that learned positions can take")
    scale_embeddings: bool = Field(True, description="multiply embeddings by the square root of width")


class TokenModel(SequenceModel):
    """A model that predicts tokens."""

    tie_embeddings: Literal["all", "target", "none"] = Field(
        "all", description="share tables: all (source, target, output) · target (target, output) · none"
    )


class CausalModel(TokenModel):
    """A model that predicts the next token."""

    logit_cap: float = Field(0.0, ge=0, description="logits are bent to stay within plus or minus this; 0: free")
    feedback: Literal["none", "shared", "separate"] = Field(
        "none",
        description="Feedback Transformer, each block sees what all blocks made of earlier positions: none · shared "
        "(one W_k and W_v for all blocks) · separate",
    )
    feedback_span: Positive = Field(64, le=1 << 16, description="earlier positions that feedback reaches back to")

    @model_validator(mode="after")
    def _feedback_has_its_own_attention(self) -> Self:
        if self.feedback == "none":
            return self
        if self.mixer != "attention":
            raise ValueError(
                f'feedback = "{self.feedback}" is a kind of attention, and mixer = "{self.mixer}" is none; '
                "use mixer = attention"
            )
        if self.positions == "rotary":
            raise ValueError(
                f'feedback = "{self.feedback}" has relative positions of its own, and positions = "rotary" would be '
                "others; use positions = none"
            )
        return self

    @property
    def in_order(self) -> bool:
        return self.feedback != "none"


class TranslationModel(TokenModel):
    """An encoder and a decoder."""

    decoder_layers: NotNegative = Field(0, le=512, description="blocks in the decoder; 0: as many as `layers`")
    cross: Literal["multihead", "additive", "bahdanau", "none"] = Field(
        "multihead",
        description="how a decoder looks at the source: multihead · additive (Bahdanau's scores, after the mixer) · "
        "bahdanau (as published: before each word, into the recurrence) · none (recurrence: only the last state "
        "passes)",
    )

    @property
    def blocks(self) -> int:
        return self.layers + (self.decoder_layers or self.layers)

    @property
    def fused(self) -> bool:
        return super().fused and self.cross == "multihead"

    def check_parts(self) -> Iterator[Problem]:
        yield from super().check_parts()
        if self.cross == "none" and not self.part("mixer").starts_from_memory:
            able = [name for name in registry.names("mixers") if registry.load("mixers", name).starts_from_memory]
            yield Problem(
                f'model.cross = "none" leaves a decoder with model.mixer = "{self.mixer}" nothing of the source',
                f"use model.mixer = {' or '.join(able)}, or another cross",
            )
        if self.cross == "bahdanau" and self.part("mixer").cell_of_one is None:
            able = [name for name in registry.names("mixers") if registry.load("mixers", name).cell_of_one]
            yield Problem(
                f'model.cross = "bahdanau" feeds a recurrence, which model.mixer = "{self.mixer}" is not',
                f"use model.mixer = {' or '.join(able)}, or another cross",
            )


with warnings.catch_warnings():
    # pydantic has a method of that name, long replaced by `model_copy`.
    warnings.filterwarnings("ignore", 'Field name "copy"', UserWarning)

    class PairModel(TranslationModel):
        """An encoder that reads words and a decoder that writes words."""

        copy: bool = Field(  # type: ignore[assignment]
            False,
            description="a decoder may also write a word by pointing at it in the source; needs tokenizer.joint",
        )


class TextClassifierModel(SequenceModel):
    """A model that names the class of a text."""

    causal: bool = Field(False, description="a classifier that reads only backwards, as a language model does")
    pooling: Literal["first", "mean", "last"] = Field(
        "mean", description="what a class is read from: first token · mean of all · last token"
    )


def _sides(value: int | list[int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


class PatchSettings(ModelSettings):
    """A model over patches of images."""

    patch: Width | list[Width] = Field(4, description="pixels to a side of a patch, or [height, width]")
    registers: NotNegative = Field(0, le=1024, description="tokens beside the patches, to think in")

    @field_validator("patch")
    @classmethod
    def _two_sides(cls, value: int | list[int]) -> int | list[int]:
        if isinstance(value, list) and len(value) != 2:
            raise ValueError(f"patch = {value} is not one side or two; write 4, or [2, 4] for height and width")
        return value

    @property
    def patch_height(self) -> int:
        return _sides(self.patch)[0]

    @property
    def patch_width(self) -> int:
        return _sides(self.patch)[1]

    @property
    def class_token(self) -> bool:
        """Whether a token of its own stands before the patches."""
        return False

    def tokens(self, height: int, width: int) -> int:
        """Of an image in a ViT: its patches, the class token and the registers."""
        patches = (height // self.patch_height) * (width // self.patch_width)
        return patches + self.class_token + self.registers

    def check_patches(self, height: int, width: int) -> Iterator[Problem]:
        """Images of this size are cut into whole patches."""
        if height % self.patch_height or width % self.patch_width:
            yield Problem(
                f"images of {height} x {width} cannot be cut into patches of {self.patch_height} x {self.patch_width}",
                "choose model.patch so that it divides images.size",
            )


class CaptionModel(PatchSettings, TranslationModel):
    """An encoder over patches of an image, and a decoder that writes words."""

    tie_embeddings: Literal["target", "none"] = Field(
        "target", description="share tables: target (words read, words written) · none"
    )


class PatchModel(PatchSettings):
    """A model over patches of images: ViT, or Swin where there are stages."""

    stages: list[Layers] = Field(
        [],
        max_length=6,
        description="Swin: blocks before each merging of patches, which doubles width and heads; [] is a plain ViT",
    )
    window: Positive = Field(64, le=4096, description="Swin: patches to a side of a window")
    narrow: Literal["square", "sides"] = Field(
        "square",
        description="Swin, where a side of the grid is no longer than a window: square (windows of that side, none "
        "shifted, as in the original) · sides (each side on its own, as in timm)",
    )

    @model_validator(mode="before")
    @classmethod
    def _stages_count_their_blocks(cls, tree: Any) -> Any:
        stages = tree.get("stages") if isinstance(tree, dict) else None
        if isinstance(stages, list) and stages and all(isinstance(blocks, int) for blocks in stages):
            return {**tree, "layers": max(1, sum(stages))}
        return tree

    @property
    def fused(self) -> bool:
        return super().fused and not self.stages


class ImageModel(PatchModel):
    """A model that reads one class from the patches."""

    pooling: Literal["first", "mean", "both"] = Field(
        "mean", description="what a class is read from: first (a class token) · mean of all · both"
    )

    @property
    def class_token(self) -> bool:
        return self.pooling in ("first", "both")


class SegmentationModel(PatchModel):
    """A model that reads a class for every pixel from the patches."""

    head: Literal["linear", "class-tokens"] = Field(
        "linear",
        description="linear (from each patch to its pixels) · class-tokens (they attend with the patches; Segmenter)",
    )
    head_layers: Layers = Field(2, description="class-tokens: blocks in which they and the patches attend")

    @property
    def blocks(self) -> int:
        return super().blocks + (self.head_layers if self.head == "class-tokens" else 0)


class DetectorModel(PatchModel):
    """A model that finds objects."""

    head: Literal["dense", "set"] = Field(
        "dense",
        description="dense (a class and a box for every cell) · set (for each of some tokens beside the patches, which "
        "are matched with the objects: needs far more images and updates)",
    )
    cells: Positive = Field(1, le=16, description="dense: cells to a side of a patch")
    queries: Positive = Field(60, le=1024, description="set: tokens, each of which may find one object")

    def tokens(self, height: int, width: int) -> int:
        return super().tokens(height, width) + (self.queries if self.head == "set" else 0)
