"""Running text made ready to train on: read, tokenised, and divided into train, valid and test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from regard import console
from regard.config import Config
from regard.data.shards import cache_folder, tokenise_text
from regard.data.text import TextSource, not_utf8
from regard.data.tokenizers import TextTokenizer, train_tokenizer
from regard.errors import RegardError
from regard.training.folder import RunFolder


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
