"""Byte-pair encoding, shown: the tokens of a text, the merges that made them, and how merges are learned.

    spans         which bytes of the text each token stands for
    merge_steps   how a trained vocabulary joins the bytes of each word
    learn_steps   how merges are learned: the most frequent pair becomes a new symbol, again and again

The classic example, learned from itself:

    aaabdaaabac  →  ZabdZabac  →  ZYdZYac  →  XdXac        Z=aa  Y=ab  X=ZY
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from string import ascii_uppercase
from typing import Any

import numpy as np
from tokenizers import PreTokenizedString, Tokenizer, pre_tokenizers

from regard.data.tokenizers import TextTokenizer
from regard.errors import RegardError, UsageError
from regard.tables import text_table

VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥"}


@dataclass(frozen=True)
class Token:
    """One token, and the bytes `start` to `end` (not included) of the UTF-8 text that it stands for."""

    id: int
    piece: str
    raw: bytes
    start: int
    end: int


@dataclass(frozen=True)
class Step:
    """One word after one merge; where `pair` and `rank` are None, its bytes before the first."""

    number: int  # of the word, from 1
    word: str
    pair: tuple[str, str] | None
    rank: int | None  # 1 is the merge learned first
    ids: tuple[int, ...]
    pieces: tuple[str, ...]


@dataclass(frozen=True)
class LearnStep:
    """One pair learned, and the text after its new symbol has replaced it."""

    pair: tuple[str, str]
    count: int
    symbol: str
    spells: str  # the characters behind the symbol
    text: str


def spans(tokenizer: TextTokenizer, text: str) -> list[Token]:
    """Each token with the bytes of the text that it stands for. Together they are the text, byte for byte.

    A space added before the first word corresponds to no byte, so the first token starts at 0. If lower-casing changes
    the number of bytes of a character that is split between tokens, its bytes are divided proportionally.
    """
    raw = _utf8(text)
    ids = tokenizer.encode([text])[0]
    byte_offsets = _byte_offsets(Tokenizer.from_str(tokenizer.to_json()), text)
    ends = np.cumsum(tokenizer.byte_lengths()[ids]).tolist()
    tokens = []
    for token, (before, after) in zip(ids, itertools.pairwise([0, *ends]), strict=True):
        start, end = byte_offsets[before], byte_offsets[after]
        tokens.append(Token(token, tokenizer.piece(token), raw[start:end], start, end))
    return tokens


def merge_steps(tokenizer: TextTokenizer, text: str) -> list[Step]:
    """Word by word, from its bytes: of all pairs that can be joined, the one learned first is, leftmost first."""
    _utf8(text)
    ranks = {(left, right): (rank, joined) for rank, (left, right, joined) in enumerate(tokenizer.merges(), start=1)}
    if not ranks:
        raise RegardError(
            "This tokenizer has no merges.",
            "This vocabulary was not learned by merging byte pairs.",
            'Ask for the tokens without the merges, or train with tokenizer.kind="bpe".',
        )
    library = Tokenizer.from_str(tokenizer.to_json())
    id_of = library.get_vocab()
    normalized = library.normalizer.normalize_str(text) if library.normalizer else text
    steps = []
    for number, (letters, (start, end)) in enumerate(library.pre_tokenizer.pre_tokenize_str(normalized), start=1):
        ids = [id_of[letter] for letter in letters]
        pieces = [tokenizer.piece(token) for token in ids]
        steps.append(Step(number, normalized[start:end], None, None, tuple(ids), tuple(pieces)))
        while candidates := [
            (*ranks[pair], index) for index, pair in enumerate(itertools.pairwise(ids)) if pair in ranks
        ]:
            rank, joined, index = min(candidates)
            left, right = pieces[index : index + 2]
            ids[index : index + 2] = [joined]
            pieces[index : index + 2] = [tokenizer.piece(joined)]
            steps.append(Step(number, normalized[start:end], (left, right), rank, tuple(ids), tuple(pieces)))
    return steps


def learn_steps(text: str, merges: int | None = None) -> list[LearnStep]:
    """Learn from the text itself, until there are this many merges or no pair occurs twice.

    Occurrences that overlap count once: "aaa" holds "aa" one time. Of pairs equally frequent the one that
    spells the fewest characters is taken; then the one that comes first in the text.
    """
    _utf8(text)
    symbols = list(text)
    spells = {symbol: symbol for symbol in symbols}
    steps: list[LearnStep] = []
    for new in itertools.islice(_new_symbols(text), merges):
        counts = _count_pairs(symbols)
        # `max` keeps the first of equals, and the counts are in the order of the text.
        pair = max(counts, key=lambda pair: (counts[pair], -len(spells[pair[0]] + spells[pair[1]])), default=None)
        if pair is None or counts[pair] < 2:
            break
        symbols = _replace(symbols, pair, new)
        spells[new] = spells[pair[0]] + spells[pair[1]]
        steps.append(LearnStep(pair, counts[pair], new, spells[new], "".join(symbols)))
    return steps


def show_tokens(tokens: Sequence[Token]) -> str:
    """A table of tokens: number, id, piece, bytes start–end, and the bytes themselves."""
    rows = [
        (str(number), str(token.id), visible(token.piece), f"{token.start}–{token.end}", token.raw.hex(" "))
        for number, token in enumerate(tokens, start=1)
    ]
    return text_table(("#", "id", "piece", "bytes", "raw"), rows, ">><><")


def show_merges(steps: Sequence[Step]) -> str:
    """A table of merges: each word once, then the pair joined, its rank, and the pieces after it."""
    rows = []
    for step in steps:
        pieces = " ".join(map(visible, step.pieces))
        if step.pair is None:
            rows.append((visible(step.word), "", "", pieces))
        else:
            rows.append(("", str(step.rank), " + ".join(map(visible, step.pair)), pieces))
    return text_table(("word", "merge", "joins", "pieces"), rows, "<><<")


def show_learning(text: str, steps: Sequence[LearnStep]) -> str:
    """A table of what was learned: the rule, the characters it spells, its count, and the text so far."""
    rows = [
        (
            str(number),
            f"{step.symbol}={visible(''.join(step.pair))}",
            visible(step.spells),
            str(step.count),
            visible(step.text),
        )
        for number, step in enumerate(steps, start=1)
    ]
    start = ("0", "", "", "", visible(text))
    return text_table(("step", "rule", "spells", "count", "text"), [start, *rows], "><<><")


def to_json(rows: Sequence[Token] | Sequence[Step] | Sequence[LearnStep]) -> list[dict[str, Any]]:
    """The same as plain values; bytes are in hex."""
    return [{name: _plain(value) for name, value in asdict(row).items()} for row in rows]


def visible(text: str) -> str:
    """The text with visible spaces, line breaks and control characters."""
    printable = "".join(
        VISIBLE.get(letter, letter if letter.isprintable() else f"⟨U+{ord(letter):04X}⟩") for letter in text
    )
    # A leading combining mark would attach to the character before it, so it is put on a dotted circle.
    return f"◌{printable}" if text and unicodedata.category(text[0]).startswith("M") else printable


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            "The text is not Unicode.",
            f"Character {error.start + 1} is half of a surrogate pair, or a byte that is not UTF-8.",
            "Give the text in UTF-8.",
        ) from None


def _byte_offsets(library: Tokenizer, text: str) -> list[int]:
    """The offset in the text of each byte that the tokenizer reads, and of their end."""
    string = PreTokenizedString(text)
    added = ""
    if library.normalizer:
        string.normalize(library.normalizer.normalize)
        added = library.normalizer.normalize_str("a").removesuffix("a")
    pre_tokenizers.Split("", "isolated").pre_tokenize(string)
    characters = [(letter, span) for letter, span, _ in string.get_splits("original", "byte")]
    offsets = [0] * len(added.encode())
    for (start, end), letters in itertools.groupby(characters[len(added) :], key=itemgetter(1)):
        size = sum(len(letter.encode()) for letter, _ in letters)
        offsets += [start + byte * (end - start) // size for byte in range(size)]
    return [*offsets, len(text.encode())]


def _new_symbols(text: str) -> Iterator[str]:
    """Z, Y, X, … and then ⟨1⟩, ⟨2⟩, …; none that occurs in the text."""
    numbered = (f"⟨{number}⟩" for number in itertools.count(1))
    return (symbol for symbol in itertools.chain(reversed(ascii_uppercase), numbered) if symbol not in text)


def _count_pairs(symbols: Sequence[str]) -> dict[tuple[str, str], int]:
    """How often each pair occurs without overlapping itself, in the order of the first occurrence."""
    counts: dict[tuple[str, str], int] = {}
    last: dict[tuple[str, str], int] = {}
    for index, pair in enumerate(itertools.pairwise(symbols)):
        if last.get(pair) != index - 1:
            counts[pair] = counts.get(pair, 0) + 1
            last[pair] = index
    return counts


def _replace(symbols: Sequence[str], pair: tuple[str, str], new: str) -> list[str]:
    replaced: list[str] = []
    index = 0
    while index < len(symbols):
        matches = tuple(symbols[index : index + 2]) == pair
        replaced.append(new if matches else symbols[index])
        index += 2 if matches else 1
    return replaced


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return list(value) if isinstance(value, tuple) else value
