"""The shape of a model."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from regard.config.base import RECURRENT, TOKENS, Mixer, NotNegative, Positive, Settings, Share, of

Positions = Literal["sinusoidal", "sinusoidal-halves", "sinusoidal-2d", "learned", "index", "rotary", "none"]


class ModelSettings(Settings):
    layers: Positive = Field(6, description="blocks (of a translator: in the encoder, and in the decoder)")
    decoder_layers: NotNegative = Field(
        0, description="blocks in the decoder; 0: as many as `layers`", json_schema_extra=of("translate")
    )
    width: Positive = Field(512, description="size of every token's vector (d)")
    heads: Positive = Field(8, description="attention heads (h)")
    key_value_heads: NotNegative = Field(
        0, description="heads of keys and values, shared by groups of queries; 0: as heads"
    )
    key_width: NotNegative = Field(0, description="size of a query or key in one head; 0: width / heads")
    value_width: NotNegative = Field(0, description="size of a value in one head; 0: width / heads")
    feedforward: NotNegative = Field(2048, description="inner size of the feed-forward part; 0: none")
    activation: Literal["relu", "relu2", "gelu", "gelu-tanh", "silu"] = Field(
        "relu", description="relu · relu2 (its square) · gelu · gelu-tanh (as in GPT-2) · silu (gated: SwiGLU)"
    )
    gated: bool = Field(False, description="gated feed-forward: activation(x W) * (x V)")
    mixer: Mixer = Field(
        "attention",
        description="how positions look at each other: attention · local (in a window) · hyena · rnn · lstm · gru",
    )
    cross: Literal["multihead", "additive", "none"] = Field(
        "multihead",
        description="how a decoder looks at the source: multihead · additive (Bahdanau) · none (recurrence: "
        "only the last state passes)",
        json_schema_extra=of("translate"),
    )
    positions: Positions = Field(
        "sinusoidal",
        description="sinusoidal · sinusoidal-halves · sinusoidal-2d (images) · learned · index · "
        "rotary (of attention; else none) · none",
    )
    max_positions: Positive = Field(
        1024, description="longest sequence that learned positions can take", json_schema_extra=TOKENS
    )
    norm: Literal["pre", "post"] = Field("post", description="pre · post (as in the paper)")
    norm_kind: Literal["layer", "rms"] = Field("layer", description="layer · rms (no mean, no bias)")
    query_key_norm: bool = Field(False, description="normalise queries and keys in every head")
    window: Positive = Field(
        64,
        description="mixer local: a position sees this many back (and ahead, if it may), itself included; "
        "Swin: patches to a side of a window",
    )
    patch: Positive | list[Positive] = Field(
        4, description="pixels to a side of a patch, or [height, width]", json_schema_extra=of("classify-image")
    )
    stages: list[Positive] = Field(
        [],
        max_length=6,
        description="Swin: blocks before each merging of patches, which doubles width and heads; [] is a plain ViT",
        json_schema_extra=of("classify-image"),
    )
    registers: NotNegative = Field(
        0, le=1024, description="tokens beside the patches, to think in", json_schema_extra=of("classify-image")
    )
    hyena_order: Positive = Field(2, le=8, description="mixer hyena: how many gates (N)")
    hyena_recurrence: Literal["paper", "public"] = Field(
        "public",
        description="mixer hyena: paper (convolve and gate N times) · public (as its public code: once less)",
    )
    hyena_filter_length: NotNegative = Field(
        0,
        le=1 << 24,
        description="mixer hyena: the length filters are made for, and beyond which they go on; 0: of a row",
    )
    hyena_filter_bands: NotNegative = Field(
        8,
        le=1024,
        description="mixer hyena: sines and cosines of time that filters are made from; fewer: smoother filters",
    )
    hyena_filter_width: Positive = Field(
        64, le=16_384, description="mixer hyena: width of the network that makes the filters"
    )
    bias: bool = Field(True, description="biases in the attention projections")
    feedforward_bias: bool = Field(True, description="biases in the feed-forward part")
    embedding_norm: bool = Field(False, description="normalise embeddings before the first block, as BERT does")
    causal: bool = Field(
        False,
        description="a classifier that reads only backwards, as a language model does",
        json_schema_extra=of("classify-text"),
    )
    pooling: Literal["first", "mean", "last", "both"] = Field(
        "mean",
        description="what a class is read from: first token (of images: a class token) · mean of all · "
        "last token (text) · both first and mean (images)",
        json_schema_extra=of("classify-text", "classify-image"),
    )
    dropout: Share = Field(0.1, description="on embeddings and on what each part adds")
    attention_dropout: Share = Field(0.0, description="on the attention weights")
    feedforward_dropout: Share = Field(0.0, description="inside the feed-forward part")
    stochastic_depth: Share = Field(
        0.0, description="chance to skip the last block's parts in training; less for those before it"
    )
    layer_scale: float = Field(
        0.0, ge=0, description="what a part adds is multiplied by learned numbers that start here; 0: it is not"
    )
    tie_embeddings: Literal["all", "target", "none"] = Field(
        "all",
        description="share tables: all (source, target, output) · target (target, output) · none",
        json_schema_extra=TOKENS,
    )
    logit_cap: float = Field(
        0.0, ge=0, description="logits are bent to stay within plus or minus this; 0: free", json_schema_extra=TOKENS
    )
    initialisation: Literal["paper", "gpt2", "zero-out"] = Field(
        "paper", description="paper (Xavier) · gpt2 (normal, .02) · zero-out (each part starts by adding nothing)"
    )
    scale_embeddings: bool = Field(
        True, description="multiply embeddings by the square root of width", json_schema_extra=TOKENS
    )

    @field_validator("patch")
    @classmethod
    def _two_sides(cls, value: int | list[int]) -> int | list[int]:
        if isinstance(value, list) and len(value) != 2:
            raise ValueError(f"patch = {value} is not one side or two; write 4, or [2, 4] for height and width")
        return value

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
        if self.positions in ("sinusoidal", "sinusoidal-halves") and self.width % 2:
            raise ValueError(f"width = {self.width} is odd, and sinusoidal positions need pairs; use an even width")
        if self.mixer == "hyena" and self.hyena_recurrence == "public" and self.hyena_order < 2:
            raise ValueError(
                'hyena_order = 1 leaves no convolution with hyena_recurrence = "public"; '
                'use an order of 2 or more, or hyena_recurrence = "paper"'
            )
        if self.cross == "none" and self.mixer not in RECURRENT:
            raise ValueError(
                f'cross = "none" leaves a decoder with mixer = "{self.mixer}" nothing of the source; '
                'use mixer = "gru", "lstm" or "rnn", or another cross'
            )
        if self.positions == "rotary" and self.head_key_width % 2:
            raise ValueError(f"a head of {self.head_key_width} is odd, and rotary positions need pairs")
        return self

    @property
    def head_key_width(self) -> int:
        return self.key_width or self.width // self.heads

    @property
    def head_value_width(self) -> int:
        return self.value_width or self.width // self.heads

    @property
    def patch_height(self) -> int:
        return self.patch if isinstance(self.patch, int) else self.patch[0]

    @property
    def patch_width(self) -> int:
        return self.patch if isinstance(self.patch, int) else self.patch[1]
