"""Translate sentences: decoded side by side, the longest first, and given back in their own order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from regard.data.sentences import WIDE_CLOSING, WIDE_MARKS, split_sentences
from regard.data.tokenizers import END, START, TextTokenizer
from regard.decoding.engines import Engines
from regard.decoding.hypothesis import Request, SearchRecord
from regard.decoding.text_search import TextSearch, Written, drawn_with
from regard.settings import BeamSettings

NEXT_SENTENCE = 1 << 32  # from the number of a sentence to that of the next one of the same line
Translation = Written  # one translation of a sentence


class Part(NamedTuple):
    """A sentence of a line."""

    text: str
    line: int
    number: int  # what its samples are drawn with
    follows: bool  # another of the same line


@dataclass(frozen=True)
class Translator:
    source_tokenizer: TextTokenizer
    target_tokenizer: TextTokenizer
    settings: BeamSettings
    max_positions: int
    engines: Engines

    def translate(
        self,
        sentences: Sequence[str],
        prefixes: Sequence[str] | None = None,
        seed: int = 1,
        first_row: int = 0,
        progress: Callable[[int], None] = lambda done: None,
        split: bool = False,
        noticed: Callable[[int, int], None] = lambda line, tokens: None,
        best: int = 0,
        forced: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Translation]]:
        """For each line its `best` translations (0: as many as the beam is wide), best first; none for a blank one.

        A line is a sentence; with `split` it may be several, each translated by itself: a prefix is the first one's,
        and the translations are the best combinations. `noticed` is told the place of each line, from 0, and the
        tokens of each of its sentences. `first_row` numbers the first line, so that a sampled text depends on its
        line's number in the whole input and not on how the input was cut into pieces. `forced`: as ids.
        """
        best = best or self.settings.beam
        parts = list(_parts(sentences, split, first_row))
        encoded = self.source_tokenizer.encode([part.text for part in parts])
        for part, ids in zip(parts, encoded, strict=True):
            noticed(part.line, len(ids) + 1)
        sources = [self._ended(ids) for ids in encoded]
        if forced is None:
            forced = self.target_tokenizer.encode(prefixes) if prefixes else [[] for _ in sentences]
        begun = [[] if part.follows else list(forced[part.line]) for part in parts]
        numbers = [part.number for part in parts]
        asked = [self._request(i, source, begun[i], numbers[i], seed) for i, source in enumerate(sources)]
        results: list[list[Translation]] = [[] for _ in parts]
        for number, best_ones in self._search.texts(asked, best, progress):
            results[number] = best_ones
        of_each: list[list[list[Translation]]] = [[] for _ in sentences]
        for part, translations in zip(parts, results, strict=True):
            of_each[part.line].append(translations)
        return [joined(translations, best) for translations in of_each]

    def record(self, sentence: str, forced: Sequence[int] = ()) -> SearchRecord:
        """How the translations of a sentence were searched for."""
        return self._search.record(self._request(0, self.encode(sentence), list(forced), 0, seed=1))

    @property
    def _search(self) -> TextSearch:
        return TextSearch(self.settings, self.engines, self.target_tokenizer, self.max_positions, "translating")

    def encode(self, sentence: str) -> list[int]:
        """The ids of a source sentence with <end>, cut where the model's positions end."""
        return self._ended(self.source_tokenizer.encode([sentence])[0])

    def _ended(self, ids: list[int]) -> list[int]:
        return [*ids[: self.max_positions - 1], END]

    def _request(self, number: int, source: list[int], prefix: list[int], row: int, seed: int) -> Request:
        limit = min(int(self.settings.max_ratio * len(source)) + 20 + len(prefix), self.max_positions)
        return Request(number, source, START, limit, prefix, drawn_with(self.settings, limit, seed, row))


def _parts(lines: Sequence[str], split: bool, first_row: int) -> Iterator[Part]:
    """What is translated by itself, in order. Blank lines are not."""
    for line, text in enumerate(lines):
        if text.strip():
            for place, sentence in enumerate(split_sentences(text) if split else [text]):
                yield Part(sentence, line, first_row + line + place * NEXT_SENTENCE, place > 0)


def joined(of_sentences: list[list[Translation]], most: int) -> list[Translation]:
    """The best combinations of the translations of a line's sentences, by the sum of their scores."""
    best, *others = [translations for translations in of_sentences if translations] or [[]]
    for translations in others:
        pairs = [
            Translation(
                _after(left.text, right.text),
                left.score + right.score,
                left.log_probability + right.log_probability,
                left.tokens + right.tokens,
            )
            for left in best
            for right in translations
        ]
        best = sorted(pairs, key=lambda pair: -pair.score)[:most]
    return best


def _after(left: str, right: str) -> str:
    """One sentence after the other; Chinese and Japanese write no space between them."""
    apart = " " if left and right and left[-1] not in WIDE_MARKS + WIDE_CLOSING else ""
    return left + apart + right
