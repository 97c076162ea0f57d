"""Text tokenised once, and mapped into memory when it is used again.

For each side of a sample, a cache folder holds all ids one after the other (`source.ids`) and where each sentence
starts (`source.offsets`). It is named after the text, the tokenizers and this format: see `regard.data.cache`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.cache import cached
from regard.data.labelled import LabelledSource
from regard.data.pairs import PairSource, not_empty
from regard.data.ragged import Ragged
from regard.data.text import TextSource, not_utf8
from regard.data.tokenizers import END, START, TextTokenizer
from regard.errors import RegardError

FORMAT = "tokens-3"
CHUNK = 20_000  # samples tokenised at a time
TOGETHER = 2**22  # bytes of running text tokenised at a time; a token takes a hundred bytes or so meanwhile


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
    progress: Callable[[int], None] = lambda done: None,
) -> TokenisedPairs:
    """The pairs with text on both sides."""
    sides = dict(zip(("source", "target"), tokenizers, strict=True))
    key = [FORMAT, "pairs", pairs.fingerprint, *(tokenizer.to_json() for tokenizer in tokenizers)]
    folder = cached(cache, key, lambda folder: write_sides(folder, sides, not_empty(pairs), progress))
    return TokenisedPairs(*(read_side(folder, side, tokenizer) for side, tokenizer in sides.items()))


def tokenise_labelled(
    examples: LabelledSource, tokenizer: TextTokenizer, classes: Sequence[str], cache: Path
) -> TokenisedTexts:
    """Labelled texts; a label that is none of the classes is an error."""
    number_of = {name: number for number, name in enumerate(classes)}

    def write(folder: Path) -> None:
        numbers: list[int] = []

        def texts() -> Iterator[tuple[str]]:
            for example in examples:
                if example.label not in number_of:
                    raise RegardError(
                        f"The label '{example.label}' does not occur in the training data.",
                        f"The classes are: {', '.join(classes[:20])}{' …' if len(classes) > 20 else ''}.",
                        f"It stands before '{example.text[:40]}'. Correct it, or train with texts of that class.",
                    )
                numbers.append(number_of[example.label])
                yield (example.text,)

        write_sides(folder, {"text": tokenizer}, texts())
        (folder / "classes").write_bytes(np.array(numbers, np.int64).tobytes())

    key = [FORMAT, "labelled", examples.fingerprint, json.dumps(classes), tokenizer.to_json()]
    folder = cached(cache, key, write)
    return TokenisedTexts(read_side(folder, "text", tokenizer), np.fromfile(folder / "classes", np.int64))


def tokenise_text(text: TextSource, tokenizer: TextTokenizer, cache: Path, starts: bool = False) -> NDArray[Any]:
    """All ids of a text, one after the other, <end> after every document; with `starts`, <start> before each.

    A text that is one document alone has no <end>: nothing comes after it.
    """
    key = [FORMAT, "starts" if starts else "text", text.fingerprint, tokenizer.to_json()]
    folder = cached(cache, key, lambda folder: _write_text(folder / "text.ids", text, tokenizer, starts))
    return _read_ids(folder / "text.ids", tokenizer)


def write_sides(
    folder: Path,
    sides: dict[str, TextTokenizer],
    samples: Iterable[tuple[str, ...]],
    progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Each sample has a text for each side."""
    count, totals = 0, [0] * len(sides)
    files = [[(folder / f"{side}.{part}").open("wb") for part in ("ids", "offsets")] for side in sides]
    for _, offsets_file in files:
        offsets_file.write(np.int64(0).tobytes())
    iterator = iter(samples)
    while chunk := list(itertools.islice(iterator, CHUNK)):
        for side, tokenizer in enumerate(sides.values()):
            rows = tokenizer.encode([sample[side] for sample in chunk])
            offsets = totals[side] + np.cumsum([len(row) for row in rows], dtype=np.int64)
            totals[side] = int(offsets[-1])
            files[side][0].write(np.fromiter(itertools.chain.from_iterable(rows), _dtype(tokenizer)).tobytes())
            files[side][1].write(offsets.tobytes())
        count += len(chunk)
        progress(count)
    for file in itertools.chain.from_iterable(files):
        file.close()


def read_side(folder: Path, side: str, tokenizer: TextTokenizer) -> Ragged:
    ids = _read_ids(folder / f"{side}.ids", tokenizer)
    return Ragged(ids, np.memmap(folder / f"{side}.offsets", dtype=np.int64, mode="r"))


def _write_text(path: Path, text: TextSource, tokenizer: TextTokenizer, starts: bool) -> None:
    dtype = _dtype(tokenizer)
    start, end = dtype.type(START).tobytes(), dtype.type(END).tobytes()
    documents, begins = 0, True
    with path.open("wb") as file:
        for pieces in _together(text, tokenizer):
            encoded = tokenizer.encode_pieces([piece for piece, _ in pieces])
            for ids, (_, ends_document) in zip(encoded, pieces, strict=True):
                if begins:
                    file.write((end if documents else b"") + (start if starts else b""))
                    documents += 1
                file.write(np.array(ids, dtype).tobytes())
                begins = ends_document
        file.write(end if documents > 1 else b"")


def _together(text: TextSource, tokenizer: TextTokenizer) -> Iterator[list[tuple[bytes | str, bool]]]:
    """The pieces of a text, so many at a time that they can be tokenised side by side; each checked as it is read."""
    together: list[tuple[bytes | str, bool]] = []
    size = 0
    for piece, ends_document in text.pieces():
        try:
            together.append((tokenizer.readable(piece), ends_document))
        except UnicodeDecodeError as error:
            raise not_utf8(text, piece, error) from None
        size += len(piece)
        if size >= TOGETHER:
            yield together
            together, size = [], 0
    if together:
        yield together


def _read_ids(path: Path, tokenizer: TextTokenizer) -> NDArray[Any]:
    dtype = _dtype(tokenizer)
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.empty(0, dtype)


def _dtype(tokenizer: TextTokenizer) -> np.dtype[Any]:
    """The smallest type that holds every id."""
    return np.dtype(np.uint16 if tokenizer.size <= 2**16 else np.uint32)
