"""Tokenizers: text becomes numbers, and comes back unchanged.

All four kinds are settings of one model of the `tokenizers` library, so all are equally fast, all are
saved as the same `tokenizer.json`, and all give back any Unicode text exactly:

    bpe        bytes, joined by learned merges
    byte       bytes, no merges
    character  the characters seen in training; any other is spelled in bytes
    word       the words seen in training, each with the space before it; any other is spelled in bytes

Ids 0, 1, 2 are <pad>, <start>, <end>. They cannot be written in text: "<end>" in a sentence is five
ordinary characters.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from regard.errors import RegardError
from regard.files import read_small

if TYPE_CHECKING:  # processes that tokenise do without the settings
    from regard.settings import TokenizerSettings

PAD, START, END = 0, 1, 2
SPECIALS = ["<pad>", "<start>", "<end>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]

LARGEST = 128 * 2**20  # bytes of a tokenizer's file

# A word with the space before it, or a run of marks, or spaces. Words never hold marks.
WORDS = r" ?[\p{L}\p{M}\p{N}]+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"


class TextTokenizer:
    """Text to ids and back."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self.size: int = tokenizer.get_vocab_size()
        self._sizes: dict[str, int] = {}  # of characters, in bytes

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without <start> or <end>."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts))]

    def encode_bytes(self, raw: bytes) -> list[int] | NDArray[np.int64]:
        """The ids of a piece of text as it lies in a file. A byte vocabulary takes any bytes at all."""
        return self.encode_pieces([self.readable(raw)])[0]

    def readable(self, raw: bytes) -> bytes | str:
        """A piece of text as it lies in a file, decoded unless that is not needed; an error where it is not UTF-8."""
        return raw if self._bytes_only else raw.decode()

    def encode_pieces(self, pieces: Sequence[bytes | str]) -> Sequence[list[int] | NDArray[np.int64]]:
        """The ids of each piece that `readable` gave."""
        if self._bytes_only:
            return [_ID_OF_BYTE[np.frombuffer(cast(bytes, piece), np.uint8)] for piece in pieces]
        if self._characters is not None:
            return [self._characters.encode(cast(str, piece)) for piece in pieces]
        return self.encode(cast(Sequence[str], pieces))

    @property
    def _bytes_only(self) -> bool:
        bytes_only = self.size == len(SPECIALS) + 256 and not self._tokenizer.model.byte_fallback
        return bytes_only and self._tokenizer.normalizer is None

    @cached_property
    def _characters(self) -> CharacterTable | None:
        return CharacterTable.of(self._tokenizer)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of ids; special ids are left out."""
        plain = [[token for token in row if token >= len(SPECIALS)] for row in ids]
        return self._tokenizer.decode_batch(plain, skip_special_tokens=False)

    def pieces(self, text: str) -> list[str]:
        """Each token of a text, as a person would write it."""
        return [self.piece(token) for token in self.encode([text])[0]]

    def piece(self, token: int) -> str:
        """One token as a person would write it; part of a character shows as its bytes."""
        if token < len(SPECIALS):
            return SPECIALS[token]
        name: str = self._tokenizer.id_to_token(token) or ""
        if name in _BYTE_NAMES:
            return name
        if not self._tokenizer.model.byte_fallback:
            raw = bytes(_BYTE_OF_LETTER[letter] for letter in name)
            try:
                return raw.decode()
            except UnicodeDecodeError:
                return "".join(f"<0x{byte:02X}>" for byte in raw)
        return name

    def byte_lengths(self) -> NDArray[np.int64]:
        """How many bytes of text each id stands for; none for the special ones."""
        lengths = np.zeros(self.size, np.int64)
        for token in range(len(SPECIALS), self.size):
            name = self._tokenizer.id_to_token(token) or ""
            byte_level = not self._tokenizer.model.byte_fallback
            lengths[token] = 1 if name in _BYTE_NAMES else len(name) if byte_level else len(name.encode())
        return lengths

    def places(self, text: str, ids: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
        """Which characters of a text each of its ids stands for: [T, 2], the first, and the one after the last.

        A space that the tokenizer puts before the text belongs to its first character; where ids share a character,
        each has the whole of it.
        """
        sizes = np.array([self._size_of(letter) for letter in text], np.int64)
        sizes[:1] += self._added
        character_of_byte = np.repeat(np.arange(len(text)), sizes)
        lengths = self._lengths[np.asarray(ids, np.int64)]
        ends = np.cumsum(lengths)
        if len(ids) and (ends[-1] != len(character_of_byte) or not lengths.all()):
            raise ValueError("these are not the ids of this text")
        return np.stack([character_of_byte[ends - lengths], character_of_byte[ends - 1] + 1], 1)

    @cached_property
    def _lengths(self) -> NDArray[np.int64]:
        return self.byte_lengths()

    @cached_property
    def _added(self) -> int:
        """Bytes put before every text."""
        return len(self._read("a").encode()) - 1

    def _size_of(self, letter: str) -> int:
        """How many bytes are read for a character: as lower case, some have other lengths."""
        if letter not in self._sizes:
            self._sizes[letter] = len(self._read(letter).encode()) - self._added
        return self._sizes[letter]

    def _read(self, text: str) -> str:
        return self._tokenizer.normalizer.normalize_str(text) if self._tokenizer.normalizer else text

    def spelled_out(self, ids: Sequence[int]) -> int:
        """How many of these ids are bytes that stand in for a word or character never seen in training."""
        return sum(self._tokenizer.id_to_token(token) in _BYTE_NAMES for token in ids)

    def merges(self) -> list[tuple[int, int, int]]:
        """Each merge of a byte-pair vocabulary as (left id, right id, joined id), in the order learned."""
        model = json.loads(self.to_json())["model"]
        vocabulary = model["vocab"]
        return [(vocabulary[left], vocabulary[right], vocabulary[left + right]) for left, right in model["merges"]]

    def to_json(self) -> str:
        return self._tokenizer.to_str(pretty=True)

    @classmethod
    def from_json(cls, text: str) -> TextTokenizer:
        """What `to_json` gave."""
        return cls(Tokenizer.from_str(text))

    @classmethod
    def load(cls, path: Path) -> TextTokenizer:
        try:
            tokenizer = Tokenizer.from_str(read_small(path, LARGEST).decode("utf-8"))
        except Exception as error:  # the library raises bare Exception for a malformed file
            raise _unreadable(path, str(error)) from None
        vocabulary = tokenizer.get_vocab()
        if len(vocabulary) < len(SPECIALS) + 256 or sorted(vocabulary.values()) != list(range(len(vocabulary))):
            raise _unreadable(path, "Its ids are not the numbers from 0 on, each once, with every byte among them.")
        if [tokenizer.id_to_token(token) for token in range(len(SPECIALS))] != SPECIALS:
            raise _unreadable(path, f"Its first ids are not {', '.join(SPECIALS)}.")
        return cls(tokenizer)


class CharacterTable:
    """A vocabulary of characters as a table: a megabyte of text takes milliseconds."""

    def __init__(self, id_of: dict[str, int]):
        self.ids = np.full(sys.maxunicode + 1, -1, np.int32)  # by code point; -1 where it is spelled in bytes
        for name, token in id_of.items():
            if len(name) == 1:
                self.ids[ord(name)] = token
        self.bytes = np.array([id_of[name] for name in BYTES], np.int64)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> CharacterTable | None:
        """None for a tokenizer of another kind, or one that changes the text first."""
        described = json.loads(tokenizer.to_str())
        split = {"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": False}
        alone = described["pre_tokenizer"] == split and not described["model"].get("merges")
        plain = described["normalizer"] is None and described["post_processor"] is None
        if not (alone and plain and tokenizer.model.byte_fallback and not described["added_tokens"]):
            return None
        id_of = tokenizer.get_vocab()
        return cls(id_of) if set(BYTES) <= id_of.keys() else None

    def encode(self, text: str) -> NDArray[np.int64]:
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        ids = self.ids[codes].astype(np.int64)
        unknown = np.flatnonzero(ids < 0)
        if not len(unknown):
            return ids
        spelled = [self.bytes[list(text[at].encode())] for at in unknown]
        lengths = np.ones(len(ids), np.int64)
        lengths[unknown] = [len(each) for each in spelled]
        filled = np.repeat(ids, lengths)
        filled[filled < 0] = np.concatenate(spelled)
        return filled


def _unreadable(path: Path, why: str) -> RegardError:
    return RegardError(f"Cannot read the tokenizer '{path}'.", why, "Restore the file, or train again.")


def train_tokenizer(texts: Iterable[str], settings: TokenizerSettings, sentences: bool = True) -> TextTokenizer:
    """Learn a vocabulary from texts: whole sentences, or pieces of running text.

    In sentences every word, the first too, gets a space before it, so that it is the same token wherever
    it stands; running text is taken as it is.
    """
    reading = _Reading(sentences, settings.lowercase)
    if settings.kind == "byte":
        return TextTokenizer(
            _byte_level(_byte_vocabulary(), [], words=False, reading=_Reading(False, settings.lowercase))
        )
    least = len(SPECIALS) + 256
    if settings.vocabulary < least:
        raise RegardError(
            f"tokenizer.vocabulary = {settings.vocabulary} is too small.",
            f"{least} entries are needed for the special tokens and the 256 bytes.",
            f"Set tokenizer.vocabulary to at least {least}.",
        )
    if settings.kind == "bpe":
        return _train_bpe(texts, settings.vocabulary, reading)
    if settings.lowercase:
        # As the tokenizer will: Python's own lower() differs in rare letters.
        texts = map(normalizers.Lowercase().normalize_str, texts)
    if settings.kind == "word":
        counts: Counter[str] = Counter()
        splitter = pre_tokenizers.Split(Regex(WORDS), "isolated")
        for text in texts:
            counts.update(piece for piece, _ in splitter.pre_tokenize_str(" " + text if sentences else text))
        return TextTokenizer(
            _with_fallback(_most_frequent(counts, settings.vocabulary - least), words=True, reading=reading)
        )
    counts = Counter(character for text in texts for character in text)
    reading = _Reading(False, settings.lowercase)
    return TextTokenizer(
        _with_fallback(_most_frequent(counts, settings.vocabulary - least), words=False, reading=reading)
    )


@dataclass(frozen=True)
class _Reading:
    """What is done to a text before it is cut into tokens."""

    sentences: bool  # a space is put before the first word
    lowercase: bool


# What takes the time to learn merges grows with the square of a word, and nothing that long is one.
LONG_WORD = re.compile(r"\w{1000}|[^\w\s]{1000}|\s{1000}")


def _train_bpe(texts: Iterable[str], size: int, reading: _Reading) -> TextTokenizer:
    texts = (LONG_WORD.sub("", text) for text in texts)
    learner = _byte_level(_byte_vocabulary(), [], words=True, reading=reading)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    # The trainer marks the special tokens so that they are found in text; built again, they are not.
    model = json.loads(learner.to_str())["model"]
    return TextTokenizer(
        _byte_level(model["vocab"], [tuple(merge) for merge in model["merges"]], words=True, reading=reading)
    )


def _most_frequent(counts: Counter[str], size: int) -> list[str]:
    return [piece for piece, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:size]]


def _byte_vocabulary() -> dict[str, int]:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    return {piece: index for index, piece in enumerate(SPECIALS + letters)}


def _byte_level(vocabulary: dict[str, int], merges: list[tuple[str, str]], words: bool, reading: _Reading) -> Tokenizer:
    """Bytes, joined by merges that never cross from one word into the next."""
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS), "isolated"), to_bytes])
    tokenizer.pre_tokenizer = split if words else to_bytes
    return _finish(tokenizer, [decoders.ByteLevel()], reading)


def _with_fallback(pieces: list[str], words: bool, reading: _Reading) -> Tokenizer:
    """Whole pieces where known, single bytes where not."""
    vocabulary = {piece: index for index, piece in enumerate(SPECIALS + BYTES + pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS) if words else "", "isolated")
    return _finish(tokenizer, [decoders.ByteFallback(), decoders.Fuse()], reading)


def _finish(tokenizer: Tokenizer, steps: list[Any], reading: _Reading) -> Tokenizer:
    """The way back to text; and, for sentences, the space before the first word and its removal."""
    changes: list[Any] = [normalizers.Lowercase()] if reading.lowercase else []
    if reading.sentences:
        changes.append(normalizers.Prepend(" "))
        steps = [*steps, decoders.Strip(" ", 1, 0)]
    if changes:
        tokenizer.normalizer = changes[0] if len(changes) == 1 else normalizers.Sequence(changes)
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _byte_of_letter() -> dict[str, int]:
    """The byte behind each printable letter of a byte-level vocabulary.

    Printable bytes stand for themselves; the others, in order, are the letters from U+0100 on.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTE_OF_LETTER = _byte_of_letter()
_BYTE_NAMES = frozenset(BYTES)
_ID_OF_BYTE = np.zeros(256, np.int64)
for _letter, _id in _byte_vocabulary().items():
    if _id >= len(SPECIALS):
        _ID_OF_BYTE[_BYTE_OF_LETTER[_letter]] = _id
