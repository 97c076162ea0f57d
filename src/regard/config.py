"""Every setting, typed, in one place.

A recipe is a TOML file with these sections (`regard.recipes` reads and writes it). What a recipe leaves
out takes the value given here. A setting that only some tasks know is marked with their names.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
FileList = list[str] | list[list[str]]
SMALLEST_VOCABULARY = 259  # three special tokens and every byte

Mixer = Literal["attention", "local", "hyena", "rnn", "lstm", "gru"]
RECURRENT: tuple[Mixer, ...] = ("rnn", "lstm", "gru")
PACKABLE: tuple[Mixer, ...] = ("attention", "local")  # several sequences may share a row

Task = Literal["translate", "language", "masked", "classify-text", "embeddings", "synthetic"]
TASKS: tuple[Task, ...] = get_args(Task)


def of(*tasks: Task) -> dict[str, Any]:
    """Marks a setting that only these tasks know."""
    return {"tasks": list(tasks)}


RUNNING_TEXT = of("language", "masked", "embeddings")
NETWORKS = of("translate", "language", "masked", "classify-text", "synthetic")
TEXT_NETWORKS = of("translate", "language", "masked", "classify-text")
TEXTS = of("translate", "language", "masked", "classify-text", "embeddings")
SAMPLING = of("translate", "language")


class Settings(BaseModel):
    """Frozen, strict, and closed: an unknown key or a wrong type is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class DataSettings(Settings):
    root: str = Field(".", description="where relative paths start; `--data DIR` sets it")
    sample: Literal["", "english-german"] = Field(
        "", description="a built-in corpus instead of files", json_schema_extra=of("translate")
    )
    text: str | list[str] = Field(
        [], description="text files, folders of them, or .jsonl", json_schema_extra=RUNNING_TEXT
    )
    train: FileList = Field(
        [],
        description="pairs: two line-aligned files, or one TSV; labelled text: .tsv, .csv, .jsonl",
        json_schema_extra=of("translate", "classify-text"),
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
        description="the share of running text kept aside for a test",
        json_schema_extra=RUNNING_TEXT,
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
        json_schema_extra=of("classify-text"),
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
    cache: str = Field("", description="folder for tokenised data; empty: the user's cache folder")

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
    positions: Literal["sinusoidal", "sinusoidal-halves", "learned", "index", "rotary", "none"] = Field(
        "sinusoidal",
        description="sinusoidal · sinusoidal-halves · learned · index · rotary (of attention; else none) · none",
    )
    max_positions: Positive = Field(1024, description="longest sequence that learned positions can take")
    norm: Literal["pre", "post"] = Field("post", description="pre · post (as in the paper)")
    norm_kind: Literal["layer", "rms"] = Field("layer", description="layer · rms (no mean, no bias)")
    query_key_norm: bool = Field(False, description="normalise queries and keys in every head")
    window: Positive = Field(
        64, description="mixer local: a position sees this many back (and ahead, if it may), itself included"
    )
    hyena_order: Positive = Field(2, le=8, description="mixer hyena: how many gates (N)")
    hyena_recurrence: Literal["paper", "public"] = Field(
        "public",
        description="mixer hyena: paper (convolve and gate N times) · public (as its public code: once less)",
    )
    hyena_filter_length: NotNegative = Field(
        0,
        le=1 << 24,
        description="mixer hyena: the length filters are made for, and beyond which they go on; 0: training.row_length",
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
    pooling: Literal["first", "mean", "last"] = Field(
        "mean",
        description="what a class is read from: first token · mean of all · last token",
        json_schema_extra=of("classify-text"),
    )
    dropout: Share = Field(0.1, description="on embeddings and on what each part adds")
    attention_dropout: Share = Field(0.0, description="on the attention weights")
    feedforward_dropout: Share = Field(0.0, description="inside the feed-forward part")
    tie_embeddings: Literal["all", "target", "none"] = Field(
        "all", description="share tables: all (source, target, output) · target (target, output) · none"
    )
    logit_cap: float = Field(0.0, ge=0, description="logits are bent to stay within plus or minus this; 0: free")
    initialisation: Literal["paper", "gpt2", "zero-out"] = Field(
        "paper", description="paper (Xavier) · gpt2 (normal, .02) · zero-out (each part starts by adding nothing)"
    )
    scale_embeddings: bool = Field(True, description="multiply embeddings by the square root of width")

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


class TrainingSettings(Settings):
    steps: Positive = Field(100_000, description="updates of the weights")
    tokens_per_batch: Positive = Field(8192, description="target positions in one update", json_schema_extra=NETWORKS)
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
        json_schema_extra=NETWORKS,
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
        description="a run whose blocks and tokenizer to start from; `--from RUN` sets it",
        json_schema_extra=of("language", "masked", "classify-text"),
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


class MaskingSettings(Settings):
    """BERT's game: some tokens are chosen to be predicted, and most of those are hidden."""

    share: float = Field(0.15, gt=0.0, lt=1.0, description="tokens to be predicted, of all")
    random: Share = Field(0.1, description="of these, replaced by another token instead of the mask")
    same: Share = Field(0.1, description="of these, left as they are")

    @model_validator(mode="after")
    def _some_are_hidden(self) -> Self:
        if self.random + self.same > 1:
            raise ValueError(f"random = {self.random} and same = {self.same} are more than all; lower one of them")
        return self


class EmbeddingSettings(Settings):
    """CBOW with negative sampling: a word is guessed from the mean of the words around it."""

    width: Positive = Field(100, description="size of every word's vector")
    window: Positive = Field(5, description="words to each side, at most; how many is drawn for every word")
    negatives: Positive = Field(5, description="wrong words that each right one is told from")
    subsample: float = Field(1e-3, ge=0, description="words above this share of the text are often left out; 0: none")
    minimum_count: Positive = Field(5, description="rarer words get no vector")
    words_per_batch: Positive = Field(4096, description="words guessed in one update")


class SyntheticSettings(Settings):
    """Made-up sequences that say what a mixer can remember. See `regard.data.synthetic`."""

    kind: Literal["copy", "reverse", "sort", "recall", "recall-one-shot", "recall-multi"] = Field(
        "recall",
        description="copy · reverse · sort · recall (the value of a key) · recall-one-shot · recall-multi",
    )
    vocabulary: int = Field(
        30, ge=4, le=1 << 20, description="symbols; for recall, half of them are keys and half values"
    )
    length: int = Field(1024, ge=4, le=1 << 24, description="tokens of a whole sequence, its answer included")
    learn_from: Literal["query", "all"] = Field(
        "query",
        description="recall learns from: query (the last position) · all (every key that has occurred before)",
    )
    test_sequences: Positive = Field(1000, description="sequences to validate on, and as many others to test on")

    @model_validator(mode="after")
    def _sequences_can_be_made(self) -> Self:
        recall = self.kind.startswith("recall")
        if self.length % 2:
            raise ValueError(
                f"length = {self.length} is odd, and a sequence is made of pairs or of two halves; use an even length"
            )
        if recall and self.vocabulary % 2:
            raise ValueError(
                f"vocabulary = {self.vocabulary} is odd, and half of it are keys, half values; use an even vocabulary"
            )
        if self.kind == "recall-one-shot" and self.length < self.vocabulary + 2:
            raise ValueError(
                f"length = {self.length} has no room for each of {self.vocabulary // 2} keys with its value, and a "
                f"query; set length to {self.vocabulary + 2} or more"
            )
        return self


class DecodingSettings(Settings):
    beam: int = Field(5, gt=0, le=1000, description="hypotheses kept; 1: greedy", json_schema_extra=of("translate"))
    length_penalty: float = Field(
        0.6,
        ge=0,
        description="scores are divided by ((5 + length) / 6) ** this",
        json_schema_extra=of("translate"),
    )
    max_ratio: float = Field(
        2.0,
        gt=0,
        description="a translation has at most this times the source's tokens + 20",
        json_schema_extra=of("translate"),
    )
    batch_tokens: Positive = Field(4096, description="tokens read together")
    temperature: float = Field(0.0, ge=0, description="above 0: sample; 0: the likeliest", json_schema_extra=SAMPLING)
    top_k: NotNegative = Field(
        0, description="sample from the k likeliest tokens; 0: from all", json_schema_extra=SAMPLING
    )
    top_p: float = Field(
        1.0, gt=0, le=1.0, description="sample from the likeliest tokens that sum to p", json_schema_extra=SAMPLING
    )
    min_p: float = Field(
        0.0,
        ge=0,
        le=1.0,
        description="sample from tokens with this share of the likeliest's probability",
        json_schema_extra=of("language"),
    )
    repetition_penalty: float = Field(
        1.0, ge=1.0, description="makes tokens already written less likely", json_schema_extra=of("language")
    )
    max_tokens: Positive = Field(200, description="most tokens written", json_schema_extra=of("language"))


class SystemSettings(Settings):
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto · cpu · cuda · cuda:1")
    precision: Literal["auto", "float32", "bfloat16"] = Field("auto", description="auto: bfloat16 on CUDA")
    compile: Literal["auto", "yes", "no"] = Field("auto", description="torch.compile; auto: on CUDA, for long runs")
    threads: NotNegative = Field(0, description="CPU threads; 0: as torch chooses")


class Config(Settings):
    task: Task = Field("translate", description=" · ".join(TASKS))
    recipe: str = Field("", description="name of the recipe this came from")
    seed: NotNegative = Field(1, description="every random choice follows from it")
    data: DataSettings = Field(DataSettings(), json_schema_extra=TEXTS)
    tokenizer: TokenizerSettings = Field(TokenizerSettings(), json_schema_extra=TEXTS)
    model: ModelSettings = Field(ModelSettings(), json_schema_extra=NETWORKS)
    training: TrainingSettings = TrainingSettings()
    masking: MaskingSettings = Field(MaskingSettings(), json_schema_extra=of("masked"))
    embeddings: EmbeddingSettings = Field(EmbeddingSettings(), json_schema_extra=of("embeddings"))
    synthetic: SyntheticSettings = Field(SyntheticSettings(), json_schema_extra=of("synthetic"))
    decoding: DecodingSettings = Field(
        DecodingSettings(), json_schema_extra=of("translate", "language", "classify-text")
    )
    system: SystemSettings = SystemSettings()

    @model_validator(mode="before")
    @classmethod
    def _filters_as_long_as_rows(cls, tree: Any) -> Any:
        """Hyena's filters are made for the length of the rows, unless another is given."""
        model = tree.get("model") if isinstance(tree, dict) else None
        if not isinstance(model, dict) or model.get("mixer") != "hyena" or model.get("hyena_filter_length"):
            return tree
        made_up = tree.get("task") == "synthetic"
        section, name = ("synthetic", "length") if made_up else ("training", "row_length")
        default = (SyntheticSettings if made_up else TrainingSettings).model_fields[name].default
        settings = tree.get(section)
        length = settings.get(name, default) if isinstance(settings, dict) else default
        return {**tree, "model": {**model, "hyena_filter_length": length}}

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        training = self.training
        row_name, row_length = (
            ("synthetic.length", self.synthetic.length)
            if self.task == "synthetic"
            else ("training.row_length", training.row_length)
        )
        rows = training.tokens_per_batch // row_length
        if rows < 1:
            raise ValueError(
                f"training.tokens_per_batch = {training.tokens_per_batch} is less than one row of "
                f"{row_name} = {row_length}; raise the first or lower the second"
            )
        if rows < training.micro_batches:
            raise ValueError(
                f"training.micro_batches = {training.micro_batches}, but a batch has only {rows} rows; "
                "raise training.tokens_per_batch or lower training.micro_batches"
            )
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
        packable = self.model.mixer in PACKABLE
        if self.training.packing == "yes" and not packable:
            raise ValueError(
                f'training.packing = "yes", but model.mixer = "{self.model.mixer}" would run from one sentence into '
                'the next; use "auto" or "no"'
            )
        if self.data.documents == "apart" and not packable:
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
        name, longest = ("data.max_length", self.data.max_length) if sentences else (row_name, row_length)
        if self.task != "embeddings" and self.model.positions == "learned" and longest > self.model.max_positions:
            raise ValueError(f"{name} = {longest} is more than model.max_positions = {self.model.max_positions}")
        scores = {"bleu": ("translate",), "accuracy": ("classify-text", "synthetic")}
        if self.task not in scores.get(self.training.select, TASKS):
            raise ValueError(
                f'training.select = "{self.training.select}" is not measured for the task "{self.task}"; use "loss"'
            )
        return self

    @property
    def packed(self) -> bool:
        """Whether several sequences share a row."""
        return self.training.packing == "yes" or (self.training.packing == "auto" and self.model.mixer in PACKABLE)

    @property
    def worth_compiling(self) -> bool:
        """Whether all batches have one shape, and the mixer is not a library's kernel already."""
        sentences = self.task in ("translate", "classify-text")
        return (self.packed or not sentences) and self.model.mixer not in RECURRENT
