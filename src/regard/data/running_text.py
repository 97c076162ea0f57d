"""Running text prepared for training: its tokenizer learned, its ids divided into train, valid and test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from regard import console
from regard.data.cache import cache_folder
from regard.data.text import TextSource, not_utf8, text_source
from regard.data.tokenised import tokenise_text
from regard.data.tokenizers import TextTokenizer, train_tokenizer
from regard.errors import RegardError
from regard.settings import TextData, TokenizerSettings

LEARNED_FROM = 2**29  # bytes of text that a vocabulary is learned from; a distinct word takes 1.3 kB meanwhile


@dataclass(frozen=True)
class TextSplits:
    """The ids of each split."""

    train: NDArray[Any]
    valid: NDArray[Any]
    test: NDArray[Any]

    @property
    def held_out(self) -> NDArray[Any]:
        """What the final metrics are measured on: the test, or where there is none, the validation text."""
        return self.test if len(self.test) else self.valid


def text_fingerprints(data: TextData) -> dict[str, str]:
    """Of the files of each split; those that are the last parts of the text change with it."""
    listed = {"train": data.text, "valid": data.valid or data.text, "test": data.test or data.text}
    return {split: text_source(names, data).fingerprint for split, names in listed.items()}


def learn_text_tokenizer(text: TextSource, settings: TokenizerSettings, sentences: bool) -> TextTokenizer:
    """With `sentences`, words are seen apart from the text, so that a word is the same token wherever it stands.

    Of a text that is too large, pieces from all over it are read.
    """
    size = 0 if settings.kind == "byte" else text.size()
    every = max(1, -(-size // LEARNED_FROM))
    if every > 1:
        console.say(
            f"The vocabulary is learned from one piece in {every:,} of the text, which has {size / 1e9:,.1f} GB."
        )

    def pieces() -> Iterator[str]:
        for piece, _ in itertools.islice(text.pieces(), 0, settings.sample_lines * every, every):
            try:
                yield piece.decode()
            except UnicodeDecodeError as error:
                raise not_utf8(text, piece, error) from None

    return train_tokenizer(pieces(), settings, sentences)


def divide_text(text: TextSource, data: TextData, tokenizer: TextTokenizer, starts: bool = False) -> TextSplits:
    """The files named for valid and test, or else the last parts of the text, test last.

    With `starts`, every document begins with <start>.
    """
    cache = cache_folder(data.cache)
    with console.progress(0 if text.packed else text.size(), "tokenising") as show:
        ids = tokenise_text(text, tokenizer, cache, starts, lambda done: show(done, "bytes"), data.workers)
    parts = {}
    for split, share in (("test", data.held_out_test), ("valid", data.held_out)):
        listed = getattr(data, split)
        if listed:
            parts[split] = tokenise_text(text_source(listed, data), tokenizer, cache, starts, workers=data.workers)
        else:
            end = len(ids) - int(len(ids) * share)
            ids, parts[split] = ids[:end], ids[end:]
    return TextSplits(ids, parts["valid"], parts["test"])


def must_have_text(splits: TextSplits, text: TextSource, data: TextData) -> None:
    """There is text, and some of it to validate on."""
    if not len(splits.train) and not len(splits.valid):
        raise RegardError(
            "The text is empty.",
            f"There is nothing in {', '.join(str(path) for path in text.paths[:3])}.",
            "Check the files that data.text names.",
        )
    if len(splits.valid) < 2:
        raise RegardError(
            "There is no text to validate on.",
            f"data.held_out = {data.held_out} of {len(splits.train):,} tokens is nothing.",
            "Add text, raise data.held_out, or name a file in data.valid.",
        )
