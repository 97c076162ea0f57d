"""Running text made ready to train on: read, tokenised, and divided; and what tasks over it share."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic

from numpy.typing import NDArray
from torch import Tensor, nn

from regard import console
from regard.settings import Config
from regard.data.batch import DataState
from regard.data.shards import cache_folder, tokenise_text
from regard.data.text import TextSource, not_utf8
from regard.data.text_batches import AnyBatch, TextStream
from regard.data.tokenizers import TextTokenizer, train_tokenizer
from regard.errors import RegardError
from regard.hardware import Hardware
from regard.tasks.common import draw_curves
from regard.tasks.same_data import remember_data
from regard.training.folder import RunFolder
from regard.training.loss import training_loss


@dataclass(frozen=True)
class PreparedText:
    tokenizer: TextTokenizer
    train: NDArray[Any]
    valid: NDArray[Any]
    test: NDArray[Any]

    @property
    def held_out(self) -> NDArray[Any]:
        """What the final figures are measured on: the test, or where there is none, the validation text."""
        return self.test if len(self.test) else self.valid


def prepare(config: Config, folder: RunFolder, starts: bool = False) -> PreparedText:
    """Read the text, learn the tokenizer where the run has none yet, and divide.

    With `starts`, every document begins with <start>.
    """
    text = TextSource.of(config.data.text, config.data)
    remember_data(folder, fingerprints(config, text))
    path = folder.path / "tokenizer.json"
    if path.exists():
        tokenizer = TextTokenizer.load(path)
    else:
        tokenizer = learn_tokenizer(config, text)
        folder.write_text("tokenizer.json", tokenizer.to_json())
    data = divide(config, text, tokenizer, starts)
    if not len(data.train) and not len(data.valid):
        raise RegardError(
            "The text is empty.",
            f"Nothing stands in {', '.join(str(path) for path in text.paths[:3])}.",
            "Check the files that data.text names.",
        )
    if len(data.valid) < 2:
        raise RegardError(
            "There is no text to validate on.",
            f"data.held_out = {config.data.held_out} of {len(data.train):,} tokens is nothing.",
            "Add text, raise data.held_out, or name a file in data.valid.",
        )
    return data


def fingerprints(config: Config, text: TextSource) -> dict[str, str]:
    """Of the files of each split; those that are the last parts of the text change with it."""
    listed = {name: getattr(config.data, name) for name in ("valid", "test")}
    held_out = {name: TextSource.of(names, config.data) if names else text for name, names in listed.items()}
    return {name: source.fingerprint for name, source in ({"train": text} | held_out).items()}


def learn_tokenizer(config: Config, text: TextSource) -> TextTokenizer:
    def pieces() -> Iterator[str]:
        for piece, _ in itertools.islice(text.pieces(), config.tokenizer.sample_lines):
            try:
                yield piece.decode()
            except UnicodeDecodeError as error:
                raise not_utf8(text, piece, error) from None

    # Single words and documents are looked at apart, so that a word is the same token wherever it stands.
    return train_tokenizer(pieces(), config.tokenizer, sentences=config.task != "language")


def divide(config: Config, text: TextSource, tokenizer: TextTokenizer, starts: bool = False) -> PreparedText:
    """Train, valid and test: the files named, or else the last parts of the text, in this order."""
    cache, data = cache_folder(config.data.cache), config.data
    with console.progress(0, "tokenising"):
        ids = tokenise_text(text, tokenizer, cache, starts)
    parts = {}
    for name, share in (("test", data.held_out_test), ("valid", data.held_out)):
        listed = getattr(data, name)
        if listed:
            parts[name] = tokenise_text(TextSource.of(listed, data), tokenizer, cache, starts)
        else:
            cut = len(ids) - int(len(ids) * share)
            ids, parts[name] = ids[:cut], ids[cut:]
    return PreparedText(tokenizer, ids, parts["valid"], parts["test"])


class RunningTextTask(ABC, Generic[AnyBatch]):
    """What language models and masked language models have in common."""

    def __init__(self, config: Config, folder: RunFolder, hardware: Hardware, starts: bool):
        self.config, self.folder, self.hardware = config, folder, hardware
        self.data = prepare(config, folder, starts)
        self.rows = config.training.tokens_per_batch // config.training.row_length
        self.stream = self.make_stream()

    @abstractmethod
    def make_stream(self) -> TextStream[AnyBatch]: ...

    @abstractmethod
    def logits(self, model: nn.Module, batch: AnyBatch) -> Tensor: ...

    @abstractmethod
    def measure(self, model: nn.Module, ids: NDArray[Any]) -> dict[str, float]:
        """The figures of a text."""

    def size(self) -> str:
        return f"{len(self.data.train):,} tokens · vocabulary {self.data.tokenizer.size:,}"

    def batches(self, state: DataState) -> Iterator[tuple[AnyBatch, DataState]]:
        return self.stream.batches(state)

    def loss(self, model: nn.Module, batch: AnyBatch) -> Tensor:
        settings = self.config.training
        return training_loss(
            lambda rows: self.logits(model, rows), batch, settings.label_smoothing, settings.consistency
        )

    def validate(self, model: nn.Module, step: int) -> dict[str, float]:
        return self.measure(model, self.data.valid)

    def test(self, model: nn.Module) -> dict[str, float]:
        return self.measure(model, self.data.held_out)

    def draw(self) -> None:
        draw_curves(self.folder)
