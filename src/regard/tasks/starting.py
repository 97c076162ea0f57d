"""Starting from what was learned before: the settings and blocks of another run, or word vectors."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import console, registry
from regard.errors import RegardError, UsageError
from regard.files import sha256
from regard.recipes import complete, validate
from regard.recipes.writing import toml_value
from regard.settings import TaskSettings
from regard.training.folder import RunFolder

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regard.tasks.task import Task

# What a run that starts from another may still choose for itself.
OWN = ("dropout", "attention_dropout", "feedforward_dropout", "stochastic_depth")
# What reads from the body is learned again.
HEADS = ("to_classes.", "to_span.", "to_logits.", "transform.", "transform_norm.")
START = "start.json"  # the digests of what a run has started from
SHOWN = 6  # inherited settings that are named


def starts_from(settings: TaskSettings) -> str:
    """The run that a training starts from; "" for none."""
    return getattr(settings.training, "start_from", "")


def inherit_settings(settings: TaskSettings, overrides: Iterable[str] = ()) -> Any:
    """The settings with the model, tokenizer and channels of the run that it starts from.

    A recipe's own are replaced; one that was asked for explicitly, and differs, is an error.
    """
    source = RunFolder.open(starts_from(settings))
    other = source.read_settings()
    _check_source(settings, source, other)
    asked = settings.model_dump()
    inherited = _inherited(settings, other)
    tree = asked | {section: asked[section] | values for section, values in inherited.items()}
    for key in (override.partition("=")[0].strip() for override in overrides):
        section, _, name = key.partition(".")
        if name in inherited.get(section, {}) and asked[section].get(name) != tree[section][name]:
            raise UsageError(
                f"{key} cannot be chosen here.",
                f"The run '{source.path}' has {key} = {toml_value(tree[section][name])}.",
                "Leave it out: a model that starts from another has its shape and reads what that read.",
            )
    taken = [
        f"{section}.{name} = {toml_value(value)}"
        for section, values in inherited.items()
        for name, value in values.items()
        if value != asked[section].get(name)
    ]
    if taken:
        more = f" and {len(taken) - SHOWN:,} more" if len(taken) > SHOWN else ""
        console.say(f"As in '{source.path}', not as in the recipe: {', '.join(taken[:SHOWN])}{more}.")
    # Checked as a whole now that the model is known, as if it started from nothing.
    alone = complete(validate(tree | {"training": tree["training"] | {"start_from": ""}}))
    return alone.with_section("training", start_from=str(source.path))


def _check_source(settings: Any, source: RunFolder, other: Any) -> None:
    kind, other_kind = registry.load("tasks", settings.task), registry.load("tasks", other.task)
    if other.task not in kind.starts_from:
        raise UsageError(
            f"'{source.path}' cannot be started from.",
            f"It is {other_kind.about.noun}; a {settings.task} model has other blocks.",
            f"Give a run of the task {' or '.join(kind.starts_from) or 'that can be started from'}.",
        )
    game, other_game = (getattr(each.data, "game", "") for each in (settings, other))
    if game != other_game:
        raise UsageError(
            f"'{source.path}' cannot be started from.",
            f"It plays {other_game}, and data.game is {game}: its moves are others.",
            "Give a run of the same game.",
        )
    if getattr(other.model, "in_order", False) and "feedback" not in type(settings.model).model_fields:
        raise UsageError(
            f"'{source.path}' cannot be started from.",
            f"It has feedback, which a {settings.task} model has not.",
            'Give a run with model.feedback = "none".',
        )
    for name in ("model.safetensors", *other_kind.handed_on):
        if not (source.path / name).is_file():
            raise RegardError(
                f"The run '{source.path}' has no {name} yet.", "Its training is not finished.", "Continue it first."
            )
    causal, other_causal = (getattr(each, "causal", False) for each in (settings, other))
    if causal != other_causal and not _chooses_direction(settings):
        raise UsageError(
            f"'{source.path}' cannot be started from.",
            f"It is {other_kind.about.noun}, which looks at other positions than a {settings.task} model.",
            "Give a run of the same task.",
        )


def _chooses_direction(settings: Any) -> bool:
    """Whether a setting of the model says if it reads only backwards."""
    return "causal" in type(settings.model).model_fields


def _inherited(settings: Any, other: Any) -> dict[str, dict[str, Any]]:
    """What is taken from the other run, by section."""
    fields = set(type(settings.model).model_fields) | set(other.model.model_extra or {})
    own = {*OWN, "pooling"} if _chooses_direction(settings) else set(OWN)
    model = {name: value for name, value in other.model.model_dump().items() if name in fields - own}
    if _chooses_direction(settings):
        model["causal"] = other.causal
        if other.causal and settings.model.pooling == "first":
            model["pooling"] = "last"  # the first position of a causal model has seen nothing
    inherited = {"model": model}
    if hasattr(settings, "tokenizer"):
        inherited["tokenizer"] = other.tokenizer.model_dump()
    if hasattr(settings, "images"):
        inherited["images"] = {"colour": other.images.colour}  # the patches have that many channels
    return inherited


# ---------------------------------------------------------------- files and weights


def taken_over(settings: TaskSettings) -> dict[str, bytes]:
    """The files that a new run has from the one that it starts from: its tokenizer, or the scale of its images."""
    if not (source := starts_from(settings)):
        return {}
    kind = registry.load("tasks", RunFolder.open(source).read_settings().task)
    return {name: RunFolder(source).read_bytes(name) for name in kind.handed_on}


def check_word_vectors(settings: Any) -> None:
    """The word vectors that the settings name are there."""
    named = getattr(settings.training, "embeddings", "")
    if named and not (vectors := Path(settings.data.root, named)).is_file():
        raise RegardError(f"The word vectors '{vectors}' are missing.", "There is no such file.", "Check the path.")


def start_weights(task: Task[Any]) -> None:
    """Put the blocks of another run, or word vectors, in place of random numbers."""
    from regard.training.checkpoint import read_weights

    source, named = starts_from(task.settings), getattr(task.settings.training, "embeddings", "")
    files = [Path(source) / "model.safetensors"] if source else []
    files += [Path(task.settings.data.root, named)] if named else []
    _must_be_the_same(task.folder, files)
    if source:
        copied = copy_body(task.model, read_weights(RunFolder.open(source)))
        console.say(f"Starting from the {copied:,} weights of '{source}'.")
    if named:
        _start_embeddings(task, named)


def _must_be_the_same(folder: RunFolder, files: list[Path]) -> None:
    """A run that begins again, its checkpoints lost, begins with the same weights as before."""
    if not files:
        return
    try:
        digests = {path.name: sha256(path) for path in files}
    except OSError as error:
        raise RegardError(
            f"The run '{folder.path}' cannot be started.", f"{error}", "Restore what it starts from."
        ) from None
    if folder.has(START) and folder.read_json(START, dict[str, str]) != digests:
        raise RegardError(
            f"The run '{folder.path}' cannot begin again.",
            f"What it started from has changed since then: {', '.join(map(str, files))}.",
            "Restore it, or train again with another --out DIR.",
        )
    folder.write_json(START, digests)


def _start_embeddings(task: Task[Any], named: str) -> None:
    from regard.data.tokenizers import TextTokenizer
    from regard.data.word_vectors import WordVectors, initialise_table

    vectors = WordVectors.read(Path(task.settings.data.root, named))
    for table, file in _embedding_tables(task.model, joint=(task.folder.path / "tokenizer.json").exists()):
        tokenizer = TextTokenizer.load(task.folder.checked(file))
        count = initialise_table(table, tokenizer, vectors)
        console.say(f"{count:,} of {tokenizer.size:,} rows of the embedding start from word vectors.")
        if not count:
            raise RegardError(
                f"None of the words in '{named}' is a token of this run.",
                "Nothing can be taken from it.",
                'Use tokenizer.kind="word", or larger vocabularies, or other vectors.',
            )


def copy_body(model: nn.Module, weights: dict[str, Tensor]) -> int:
    """Copy every weight but those of the head; how many numbers.

    Of a longer embedding table, the rows that both have; positions of another grid of patches are resampled.
    """
    import torch

    from regard.layers.positions import resample

    copied = 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(HEADS):
                continue
            given = weights.get(name)
            is_table = name == "trunk.embedding.table.weight"
            if given is not None and is_table:
                given = given[: len(parameter)]
            elif given is not None and name == "trunk.embedding.positions_RSD":
                given = resample(given, (parameter.shape[0], parameter.shape[1]))
            fits = given is not None and given.shape[1:] == parameter.shape[1:]
            if given is None or not fits or (len(given) != len(parameter) and not is_table):
                raise RegardError(
                    f"The weights do not fit: {name}.",
                    f"The run to start from has {list(given.shape) if given is not None else 'none'} "
                    f"where this model has {list(parameter.shape)}.",
                    "Leave the settings of [model] as that run has them.",
                )
            parameter[: len(given)] = given
            copied += given.numel()
    return copied


def _embedding_tables(model: nn.Module, joint: bool) -> list[tuple[Tensor, str]]:
    """Every embedding table once, with the file of its tokenizer."""
    from regard.layers.embedding import Embedding

    tables = {name: part.table.weight for name, part in model.named_modules() if isinstance(part, Embedding)}
    files = {name: "tokenizer.json" if joint else f"{name.partition('_')[0]}_tokenizer.json" for name in tables}
    once = {id(table): (table, files[name]) for name, table in tables.items()}
    return list(once.values())
