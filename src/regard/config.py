"""Every setting, typed, in one place.

A recipe is a TOML file with these sections. What a recipe leaves out takes the value given here.
`resolve` turns a recipe and its overrides (`training.steps=500`) into one frozen `Config`.
`to_toml` writes a config back, complete and commented: it is what `regard init` prints.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from regard.errors import UsageError, did_you_mean

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
FileList = list[str] | list[list[str]]
SMALLEST_VOCABULARY = 259  # three special tokens and every byte


class Settings(BaseModel):
    """Frozen, strict, and closed: an unknown key or a wrong type is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class DataSettings(Settings):
    root: str = Field(".", description="where relative paths start; `--data DIR` sets it")
    sample: Literal["", "english-german"] = Field("", description="a built-in corpus instead of files")
    train: FileList = Field(
        [], description="two line-aligned files, or one TSV; a list of such lists names several corpora"
    )
    valid: FileList = Field([], description="same form; empty: a share of train is kept aside")
    test: FileList = Field([], description="same form; empty: a share of train is kept aside")
    columns: list[NotNegative] = Field(
        [0, 1], min_length=2, max_length=2, description="source and target column of a TSV"
    )
    held_out: float = Field(0.01, ge=0.0, lt=0.5, description="share of train kept aside for each of valid and test")
    bad_lines: Literal["error", "skip"] = Field("error", description="invalid UTF-8 or a line over 1 MB: error · skip")
    max_length: Positive = Field(128, description="longer sentences, in tokens, are left out of training")
    cache: str = Field("", description="folder for tokenised data; empty: the user's cache folder")


class TokenizerSettings(Settings):
    kind: Literal["bpe", "word", "character", "byte"] = Field("bpe", description="bpe · word · character · byte")
    vocabulary: Positive = Field(10_000, description="most entries in the vocabulary (byte: always 259)")
    joint: bool = Field(True, description="one vocabulary for source and target")
    dropout: Share = Field(0.0, description="BPE dropout: chance to skip a merge, in training only")
    sample_lines: Positive = Field(1_000_000, description="most sentence pairs read to learn the vocabulary")


class ModelSettings(Settings):
    layers: Positive = Field(6, description="blocks in the encoder, and in the decoder")
    decoder_layers: NotNegative = Field(0, description="blocks in the decoder; 0: as many as `layers`")
    width: Positive = Field(512, description="size of every token's vector (d)")
    heads: Positive = Field(8, description="attention heads (h)")
    key_width: NotNegative = Field(0, description="size of a query or key in one head; 0: width / heads")
    value_width: NotNegative = Field(0, description="size of a value in one head; 0: width / heads")
    feedforward: Positive = Field(2048, description="inner size of the feed-forward part")
    activation: Literal["relu", "gelu", "silu"] = Field("relu", description="relu · gelu · silu")
    gated: bool = Field(False, description="gated feed-forward: activation(x W) * (x V)")
    mixer: Literal["attention"] = Field("attention", description="what lets positions look at each other")
    positions: Literal["sinusoidal", "sinusoidal-halves", "learned", "index", "rotary", "none"] = Field(
        "sinusoidal", description="sinusoidal · sinusoidal-halves · learned · index · rotary · none"
    )
    max_positions: Positive = Field(1024, description="longest sequence that learned positions can take")
    norm: Literal["pre", "post"] = Field("post", description="pre · post (as in the paper)")
    bias: bool = Field(True, description="biases in the attention projections")
    dropout: Share = Field(0.1, description="on embeddings and on what each part adds")
    attention_dropout: Share = Field(0.0, description="on the attention weights")
    feedforward_dropout: Share = Field(0.0, description="inside the feed-forward part")
    tie_embeddings: Literal["all", "target", "none"] = Field(
        "all", description="share tables: all (source, target, output) · target (target, output) · none"
    )
    scale_embeddings: bool = Field(True, description="multiply embeddings by the square root of width")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if not (self.key_width and self.value_width) and self.width % self.heads:
            raise ValueError(
                f"heads = {self.heads} does not divide width = {self.width}; choose heads that divide it, "
                "or set key_width and value_width"
            )
        if self.positions in ("sinusoidal", "sinusoidal-halves") and self.width % 2:
            raise ValueError(f"width = {self.width} is odd, and sinusoidal positions need pairs; use an even width")
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
    tokens_per_batch: Positive = Field(8192, description="target tokens in one update")
    row_length: Positive = Field(128, description="tokens in one row of a batch; several sentences share a row")
    micro_batches: Positive = Field(1, description="compute one update in this many pieces, to save memory")
    optimizer: Literal["adam", "adamw"] = Field("adam", description="adam · adamw")
    beta1: Share = Field(0.9, description="Adam's memory of the gradient")
    beta2: Share = Field(0.98, description="Adam's memory of its square")
    epsilon: float = Field(1e-9, gt=0, description="Adam's epsilon")
    weight_decay: float = Field(0.0, ge=0, description="pulls weights to zero (adamw: decoupled)")
    learning_rate: float = Field(1.0, gt=0, description="highest rate; for the schedule `paper`, a factor")
    schedule: Literal["paper", "inverse-sqrt", "cosine", "constant"] = Field(
        "paper", description="paper · inverse-sqrt · cosine · constant; each after a linear warm-up"
    )
    warmup: NotNegative = Field(4000, description="steps of linear warm-up")
    final_learning_rate: float = Field(0.0, ge=0, description="where the cosine schedule ends")
    clip_norm: float = Field(0.0, ge=0, description="largest gradient norm; 0: no clipping")
    label_smoothing: Share = Field(0.1, description="probability spread over all tokens")
    consistency: float = Field(
        0.0, ge=0, description="R-Drop: weight of the divergence between two passes with different dropout"
    )
    ema: Share = Field(0.0, description="decay of an exponential moving average of the weights; 0: off")
    average_checkpoints: NotNegative = Field(0, description="the final model is the mean of the last N saved; 0: off")
    validate_every: Positive = Field(1000, description="steps between validations")
    validate_bleu: bool = Field(True, description="also translate the validation set (greedily) and score it")
    select: Literal["loss", "bleu"] = Field("loss", description="what makes a checkpoint the best: loss · bleu")
    patience: NotNegative = Field(0, description="stop after this many validations without a better one; 0: never")
    save_every: NotNegative = Field(0, description="steps between checkpoints; 0: at every validation")
    keep_checkpoints: int = Field(2, ge=2, description="checkpoints kept, besides the best")
    log_every: Positive = Field(50, description="steps between lines in metrics.jsonl")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        rows = self.tokens_per_batch // self.row_length
        if rows < 1:
            raise ValueError(
                f"tokens_per_batch = {self.tokens_per_batch} is less than one row of row_length = {self.row_length}"
            )
        if rows < self.micro_batches:
            raise ValueError(
                f"micro_batches = {self.micro_batches}, but a batch has only {rows} rows; "
                "raise tokens_per_batch or lower micro_batches"
            )
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


class DecodingSettings(Settings):
    beam: int = Field(5, gt=0, le=1000, description="hypotheses kept; 1: greedy")
    length_penalty: float = Field(0.6, ge=0, description="scores are divided by ((5 + length) / 6) ** this")
    max_ratio: float = Field(2.0, gt=0, description="a translation has at most this times the source's tokens + 20")
    batch_tokens: Positive = Field(4096, description="source tokens decoded together")
    temperature: float = Field(0.0, ge=0, description="above 0: sample instead of searching")
    top_k: NotNegative = Field(0, description="sample from the k likeliest tokens; 0: from all")
    top_p: float = Field(1.0, gt=0, le=1.0, description="sample from the likeliest tokens that sum to p")


class SystemSettings(Settings):
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto · cpu · cuda · cuda:1")
    precision: Literal["auto", "float32", "bfloat16"] = Field("auto", description="auto: bfloat16 on CUDA")
    compile: Literal["auto", "yes", "no"] = Field("auto", description="torch.compile; auto: on CUDA, for long runs")
    threads: NotNegative = Field(0, description="CPU threads; 0: as torch chooses")


class Config(Settings):
    task: Literal["translate"] = Field("translate", description="what to train")
    recipe: str = Field("", description="name of the recipe this came from")
    seed: NotNegative = Field(1, description="every random choice follows from it")
    data: DataSettings = DataSettings()
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    decoding: DecodingSettings = DecodingSettings()
    system: SystemSettings = SystemSettings()

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        if self.data.max_length > self.training.row_length:
            raise ValueError(
                f"data.max_length = {self.data.max_length} does not fit into "
                f"training.row_length = {self.training.row_length}; lower the first or raise the second"
            )
        if self.model.tie_embeddings == "all" and not self.tokenizer.joint:
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
        if self.model.positions == "learned" and self.data.max_length > self.model.max_positions:
            raise ValueError(
                f"data.max_length = {self.data.max_length} is more than "
                f"model.max_positions = {self.model.max_positions}"
            )
        return self


# ---------------------------------------------------------------- reading recipes


TASKS = ("translate",)


def recipe_names() -> list[str]:
    """The ready-made recipes that come with Regard."""
    return sorted(
        Path(entry.name).stem for entry in resources.files("regard.recipes").iterdir() if entry.name.endswith(".toml")
    )


def recipe_text(recipe: str) -> str:
    """The TOML text of a recipe, given by name or as a file."""
    path = Path(recipe)
    if path.suffix == ".toml" or path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"Cannot read the recipe '{recipe}'.",
                f"{error}",
                "Check the path, or run `regard recipes` for the ready-made ones.",
            ) from None
    if recipe not in recipe_names():
        raise UsageError(
            f"There is no recipe '{recipe}'.",
            "It is neither a ready-made recipe nor a .toml file here.",
            did_you_mean(recipe, recipe_names()) + " Run `regard recipes`.",
        )
    return (resources.files("regard.recipes") / f"{recipe}.toml").read_text(encoding="utf-8")


def recipe_summary(recipe: str) -> str:
    """The first line of a ready-made recipe: what it is."""
    return recipe_text(recipe).splitlines()[0].removeprefix("#").strip()


def resolve(recipe: str, overrides: Iterable[str] = ()) -> Config:
    """A recipe by name or path, with `section.key=value` overrides, as one complete config."""
    return from_toml(recipe_text(recipe), name=Path(recipe).stem, overrides=overrides)


def from_toml(text: str, name: str = "", overrides: Iterable[str] = ()) -> Config:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"The recipe '{name}' cannot be read as TOML.",
            f"{error}",
            "Mend that line; `regard init translate` shows the form.",
        ) from None
    for override in overrides:
        _apply(tree, override)
    return validate({**tree, "recipe": tree.get("recipe") or name})


def _apply(tree: dict[str, Any], override: str) -> None:
    """Set `a.b=value` in a nested dict; the value is read as TOML, or else as a plain string."""
    key, equals, value = override.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            f"'{override}' is not a setting.",
            "An override has the form section.key=value.",
            "For example: training.steps=500",
        )
    *sections, leaf = key.strip().split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise UsageError(
                f"'{key}' is not a setting.",
                f"'{section}' is a value, not a section.",
                "Run `regard init translate` for all keys.",
            )
    try:
        tree[leaf] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        tree[leaf] = value


def validate(tree: Mapping[str, Any]) -> Config:
    """A nested dict as a Config; the first mistake becomes an error that names key, value and nearest name."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        # A union type adds its branch names to the location; keep only real keys.
        keys = _real_keys(first["loc"])
        key = ".".join(keys)
        value = first["input"]
        if first["type"] == "extra_forbidden":
            raise UsageError(
                f"Unknown setting '{key}' (value {value!r}).",
                f"There is no such key in {'the section [' + '.'.join(keys[:-1]) + ']' if keys[:-1] else 'a recipe'}.",
                _nearest_setting(keys),
            ) from None
        if first["type"] == "value_error":
            reason = str(first["ctx"]["error"])
            raise UsageError(
                f"The settings{' in [' + key + ']' if key else ''} do not fit together.",
                reason.partition(";")[0] + ".",
                _sentence(reason.partition(";")[2].strip() or "change one of them"),
            ) from None
        raise UsageError(
            f"The setting '{key}' cannot be {value!r}.",
            first["msg"] + ".",
            f"'{keys[-1]}' is: {_description(keys)}."
            if keys and _description(keys)
            else "Run `regard init translate` for the form.",
        ) from None


def _real_keys(location: tuple[int | str, ...]) -> list[str]:
    keys: list[str] = []
    model: Any = Config
    for part in location:
        if not (isinstance(model, type) and issubclass(model, Settings)):
            break
        keys.append(str(part))
        field = model.model_fields.get(str(part))
        model = field.annotation if field else None
    return keys


def _sentence(text: str) -> str:
    # A setting's name keeps its small letter.
    starts_with_name = "." in text.split(" ")[0] or "_" in text.split(" ")[0]
    return (text if starts_with_name else text[0].upper() + text[1:]) + "."


def _nearest_setting(keys: list[str]) -> str:
    """The key of the same name in another section, or else the nearest name beside it."""
    for section, field in Config.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Settings) and keys[-1] in inner.model_fields:
            return f"Did you mean '{section}.{keys[-1]}'?"
    return did_you_mean(keys[-1], _keys_beside(keys))


def _section(keys: list[str]) -> type[Settings]:
    model: type[Settings] = Config
    for key in keys[:-1]:
        annotation = model.model_fields[key].annotation
        assert isinstance(annotation, type) and issubclass(annotation, Settings)
        model = annotation
    return model


def _keys_beside(keys: list[str]) -> list[str]:
    return list(_section(keys).model_fields)


def _description(keys: list[str]) -> str:
    return _section(keys).model_fields[keys[-1]].description or ""


# ---------------------------------------------------------------- writing recipes


def starter_recipe(task: str) -> str:
    """A complete recipe to edit, small enough to train on a laptop."""
    return "# Edit data.train; the rest works as it is for some 10,000 to 1,000,000 pairs.\n" + to_toml(
        resolve("starter").model_copy(update={"recipe": ""})
    )


def to_toml(config: Config) -> str:
    """A complete recipe with a comment on every line."""
    lines = [_line(config, name) for name in ("task", "recipe", "seed")]
    for section, field in Config.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            settings = getattr(config, section)
            lines += ["", f"[{section}]"] + [_line(settings, name) for name in type(settings).model_fields]
    return "\n".join(lines) + "\n"


def _line(settings: Settings, name: str) -> str:
    assignment = f"{name} = {_toml_value(getattr(settings, name))}"
    return f"{assignment:<35} # {type(settings).model_fields[name].description}"


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A JSON string is a TOML string, but for one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return repr(value)
