"""Text tokenised once, and mapped into memory when it is used again.

For each side of a sample, a cache folder holds all ids one after the other (`source.ids`) and where each sentence
starts (`source.offsets`). It is named after the text, the tokenizers and this format: see `regard.data.cache`. A large
text is tokenised in parts, by several processes: see `regard.data.parts`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard.data.cache import Keep, cached_in_parts
from regard.data.labelled import LabelledSource
from regard.data.pairs import PairSource, not_empty
from regard.data.parts import Texts, encoded_parts
from regard.data.ragged import Ragged
from regard.data.text import TextSource, not_utf8
from regard.data.tokenising import Running, Sides, dtype_of
from regard.data.tokenizers import END, START, TextTokenizer
from regard.errors import RegardError

FORMAT = "tokens-3"

Progress = Callable[[int], None]  # called with the number of samples, or of bytes, that are done


@dataclass(frozen=True)
class TokenisedPairs:
    """Sentence i of `source` goes with sentence i of `target`."""

    source: Ragged
    target: Ragged

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: NDArray[np.int64]) -> TokenisedPairs:
        return TokenisedPairs(self.source.take(rows), self.target.take(rows))


@dataclass(frozen=True)
class TokenisedTexts:
    """Texts, and the number of each one's class."""

    texts: Ragged
    classes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: NDArray[np.int64]) -> TokenisedTexts:
        return TokenisedTexts(self.texts.take(rows), self.classes[rows])


def tokenise_pairs(
    pairs: PairSource,
    tokenizers: tuple[TextTokenizer, TextTokenizer],
    cache: Path,
    progress: Progress = lambda done: None,
) -> TokenisedPairs:
    """The pairs with text on both sides."""
    sides = dict(zip(("source", "target"), tokenizers, strict=True))
    key = [FORMAT, "pairs", pairs.fingerprint, *(tokenizer.to_json() for tokenizer in tokenizers)]

    def write(folder: Path, keep: Keep) -> None:
        write_sides(folder, sides, not_empty(pairs), progress, keep, pairs.settings.workers)

    folder = cached_in_parts(cache, key, write)
    return TokenisedPairs(*(read_side(folder, side, tokenizer) for side, tokenizer in sides.items()))


def tokenise_labelled(
    examples: LabelledSource,
    tokenizer: TextTokenizer,
    classes: Sequence[str],
    cache: Path,
    progress: Progress = lambda done: None,
) -> TokenisedTexts:
    """Labelled texts; a label that is none of the classes is an error."""
    number_of = {name: number for number, name in enumerate(classes)}

    def write(folder: Path, keep: Keep) -> None:
        def texts(numbers: BinaryIO) -> Iterator[tuple[str]]:
            for example in examples:
                if example.label not in number_of:
                    raise RegardError(
                        f"The label '{example.label}' does not occur in the training data.",
                        f"The classes are: {', '.join(classes[:20])}{' …' if len(classes) > 20 else ''}.",
                        f"It stands before '{example.text[:40]}'. Correct it, or train with texts of that class.",
                    )
                numbers.write(number_of[example.label].to_bytes(8, sys.byteorder))
                yield (example.text,)

        with (folder / "classes").open("wb") as numbers:
            sides = {"text": tokenizer}
            write_sides(folder, sides, texts(numbers), progress, keep, examples.settings.workers)

    key = [FORMAT, "labelled", examples.fingerprint, json.dumps(classes), tokenizer.to_json()]
    folder = cached_in_parts(cache, key, write)
    return TokenisedTexts(read_side(folder, "text", tokenizer), np.fromfile(folder / "classes", np.int64))


def tokenise_text(
    text: TextSource,
    tokenizer: TextTokenizer,
    cache: Path,
    starts: bool = False,
    progress: Progress = lambda done: None,
    workers: int = 0,
) -> NDArray[Any]:
    """All ids of a text, one after the other, <end> after every document; with `starts`, <start> before each.

    A text that is one document alone has no <end>: nothing comes after it.
    """
    key = [FORMAT, "starts" if starts else "text", text.fingerprint, tokenizer.to_json()]

    def write(folder: Path, keep: Keep) -> None:
        pieces = _Pieces(text, tokenizer, starts)
        with (folder / "text.ids").open("wb") as file:
            for _, [ids] in encoded_parts(Running([tokenizer]), pieces, keep, workers):
                file.write(ids)
                progress(pieces.bytes)
            file.write(pieces.end if pieces.documents > 1 else b"")

    return _read_ids(cached_in_parts(cache, key, write) / "text.ids", tokenizer)


def write_sides(
    folder: Path,
    sides: dict[str, TextTokenizer],
    samples: Iterable[tuple[str, ...]],
    progress: Progress = lambda done: None,
    keep: Keep | None = None,
    workers: int = 0,
) -> None:
    """Each sample has a text for each side."""
    count, totals = 0, [0] * len(sides)
    texts = (tuple(text.encode() for text in sample) for sample in samples)
    with ExitStack() as opened:
        files = [
            [opened.enter_context((folder / f"{side}.{part}").open("wb")) for part in ("ids", "offsets")]
            for side in sides
        ]
        for _, offsets_file in files:
            offsets_file.write(np.int64(0).tobytes())
        for many, encoded in encoded_parts(Sides([*sides.values()]), texts, keep, workers):
            for side, (ids_file, offsets_file) in enumerate(files):
                offsets = totals[side] + np.frombuffer(encoded[2 * side + 1], np.int64)
                totals[side] = int(offsets[-1])
                ids_file.write(encoded[2 * side])
                offsets_file.write(offsets.tobytes())
            count += many
            progress(count)


def read_side(folder: Path, side: str, tokenizer: TextTokenizer) -> Ragged:
    ids = _read_ids(folder / f"{side}.ids", tokenizer)
    return Ragged(ids, np.memmap(folder / f"{side}.offsets", dtype=np.int64, mode="r"))


class _Pieces:
    """The pieces of a text, each with what is to be written before it; checked as they are read."""

    def __init__(self, text: TextSource, tokenizer: TextTokenizer, starts: bool):
        self.text, self.tokenizer = text, tokenizer
        start, self.end = (dtype_of(tokenizer).type(mark).tobytes() for mark in (START, END))
        self.start = start if starts else b""
        self.documents = self.bytes = 0

    def __iter__(self) -> Iterator[Texts]:
        begins = True
        for piece, ends_document in self.text.pieces():
            try:
                self.tokenizer.readable(piece)
            except UnicodeDecodeError as error:
                raise not_utf8(self.text, piece, error) from None
            before = (self.end if self.documents else b"") + self.start if begins else b""
            self.documents += begins
            self.bytes += len(piece)
            begins = ends_document
            yield piece, before


def _read_ids(path: Path, tokenizer: TextTokenizer) -> NDArray[Any]:
    dtype = dtype_of(tokenizer)
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.empty(0, dtype)
