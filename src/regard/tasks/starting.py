"""Starting from what was learned before: the blocks of another run, or word vectors."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from regard import console
from regard.settings import Config
from regard.data.tokenizers import TextTokenizer
from regard.errors import RegardError
from regard.layers.embedding import Embedding
from regard.layers.patches import resample
from regard.training.checkpoint import read_tensors
from regard.training.folder import RunFolder

HEADS = ("to_classes.", "to_logits.", "transform.", "transform_norm.")  # what is read from a body, and learned anew


def start_from_files(config: Config, folder: RunFolder, model: nn.Module) -> None:
    """Put the blocks of another run, or word vectors, in place of random numbers."""
    if config.training.start_from:
        weights = read_tensors(Path(config.training.start_from) / "model.safetensors")
        copied = copy_body(model, weights)
        console.say(f"Starting from the {copied:,} weights of '{config.training.start_from}'.")
    if config.training.embeddings:
        from regard.data.word_vectors import WordVectors, initialise_table

        vectors = WordVectors.read(Path(config.data.root, config.training.embeddings))
        for table, name in _tables(model, joint=(folder.path / "tokenizer.json").exists()):
            tokenizer = TextTokenizer.load(folder.path / name)
            count = initialise_table(table, tokenizer, vectors)
            console.say(f"{count:,} of {tokenizer.size:,} rows of the embedding start from word vectors.")
            if not count:
                raise RegardError(
                    f"None of the words in '{config.training.embeddings}' is a token of this run.",
                    "Nothing can be taken over.",
                    'Use tokenizer.kind="word", or larger vocabularies, or other vectors.',
                )


def copy_body(model: nn.Module, weights: dict[str, Tensor]) -> int:
    """Copy every weight but those of the head. How many numbers.

    Of a longer embedding table, the rows that both have; positions of another grid of patches are resampled.
    """
    copied = 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(HEADS):
                continue
            found = weights.get(name)
            is_table = name == "trunk.embedding.table.weight"
            if found is not None and is_table:
                found = found[: len(parameter)]
            elif found is not None and name == "trunk.embedding.positions_RSD":
                found = resample(found, (parameter.shape[0], parameter.shape[1]))
            if (
                found is None
                or found.shape[1:] != parameter.shape[1:]
                or (len(found) != len(parameter) and not is_table)
            ):
                raise RegardError(
                    f"The weights do not fit: {name}.",
                    f"The run to start from has {list(found.shape) if found is not None else 'none'} "
                    f"where this model has {list(parameter.shape)}.",
                    "Leave the settings of [model] as that run has them.",
                )
            parameter[: len(found)] = found
            copied += found.numel()
    return copied


def _tables(model: nn.Module, joint: bool) -> list[tuple[Tensor, str]]:
    """Every embedding table once, with the file of its tokenizer."""
    tables = {name: part.table.weight for name, part in model.named_modules() if isinstance(part, Embedding)}
    files = {name: "tokenizer.json" if joint else f"{name.partition('_')[0]}_tokenizer.json" for name in tables}
    once = {id(table): (table, files[name]) for name, table in tables.items()}
    return list(once.values())
