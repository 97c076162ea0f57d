"""Translate sentences: sorted by length, batched, decoded, and given back in their own order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from regard.data.sentences import WIDE_CLOSING, WIDE_MARKS, split_sentences
from regard.data.tokenizers import END, PAD, START, TextTokenizer
from regard.decoding.beam import beam_search
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.sampling import sample
from regard.hardware import memory_errors
from regard.models.seq2seq import Seq2Seq
from regard.settings import BeamSettings

NEXT_SENTENCE = 1 << 32  # from the number of a sentence to that of the next one of the same line


@dataclass(frozen=True)
class Translation:
    """One translation of a sentence. `score` is its log-probability after the length penalty."""

    text: str
    score: float
    log_probability: float
    tokens: list[int]


class Part(NamedTuple):
    """A sentence of a line."""

    text: str
    line: int
    number: int  # what its samples are drawn with
    follows: bool  # another of the same line


@dataclass(frozen=True)
class Translator:
    model: Seq2Seq
    source_tokenizer: TextTokenizer
    target_tokenizer: TextTokenizer
    settings: BeamSettings
    max_positions: int
    device: torch.device

    def translate(
        self,
        sentences: Sequence[str],
        prefixes: Sequence[str] | None = None,
        seed: int = 1,
        first_row: int = 0,
        progress: Callable[[int], None] = lambda done: None,
        split: bool = False,
        noticed: Callable[[int, int], None] = lambda line, tokens: None,
    ) -> list[list[Translation]]:
        """For each line its translations, best first: as many as the beam is wide; none for a blank one.

        A line is a sentence; with `split` it may be several, each translated by itself: a prefix is the first one's,
        and the translations are the best combinations. `noticed` is told the place of each line, from 0, and the
        tokens of each of its sentences. `first_row` numbers the first line that is not blank, so that a sampled text
        depends on its number in the whole input and not on how the input was cut into pieces.
        """
        parts = list(_parts(sentences, split, first_row))
        encoded = self.source_tokenizer.encode([part.text for part in parts])
        for part, ids in zip(parts, encoded, strict=True):
            noticed(part.line, len(ids) + 1)
        sources = [self._ended(ids) for ids in encoded]
        of_lines = self.target_tokenizer.encode(prefixes) if prefixes else [[] for _ in sentences]
        forced = [[] if part.follows else of_lines[part.line] for part in parts]
        numbers = [part.number for part in parts]
        results: list[list[Translation]] = [[] for _ in parts]
        done = 0
        self.model.eval()
        for batch in self._by_length(sources):
            remedy = f"Set decoding.batch_tokens below {self.settings.batch_tokens}, or use a smaller beam."
            with memory_errors(f"on {self.device} while translating {len(batch)} sentences together", remedy):
                decoded = self._search(
                    [sources[i] for i in batch], [forced[i] for i in batch], [numbers[i] for i in batch], seed
                )
            for index, hypotheses in zip(batch, decoded, strict=True):
                texts = self.target_tokenizer.decode([h.tokens for h in hypotheses])
                results[index] = [
                    Translation(text, h.score, h.log_probability, h.tokens)
                    for text, h in zip(texts, hypotheses, strict=True)
                ]
            done += len(batch)
            progress(done)
        of_each: list[list[list[Translation]]] = [[] for _ in sentences]
        for part, translations in zip(parts, results, strict=True):
            of_each[part.line].append(translations)
        return [joined(translations, self.settings.beam) for translations in of_each]

    def encode(self, sentence: str) -> list[int]:
        """The ids of a source sentence with <end>, cut where the model's positions end."""
        return self._ended(self.source_tokenizer.encode([sentence])[0])

    def _ended(self, ids: list[int]) -> list[int]:
        return [*ids[: self.max_positions - 1], END]

    def _by_length(self, sources: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Indices of sentences of similar length, longest first, so that a batch holds little padding."""
        order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        batch: list[int] = []
        for index in order:
            if batch and (len(batch) + 1) * len(sources[batch[0]]) > self.settings.batch_tokens:
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

    @torch.inference_mode()
    def _search(
        self, sources: list[list[int]], prefixes: list[list[int]], numbers: list[int], seed: int
    ) -> list[list[Hypothesis]]:
        settings = self.settings
        longest = max(map(len, sources))
        source_BS = torch.full((len(sources), longest), PAD)
        for row, source in enumerate(sources):
            source_BS[row, : len(source)] = torch.tensor(source)
        source_BS = source_BS.to(self.device)
        max_lengths = [
            min(int(settings.max_ratio * len(source)) + 20 + len(prefix), self.max_positions)
            for source, prefix in zip(sources, prefixes, strict=True)
        ]
        sampling = settings.temperature > 0
        beams = 1 if sampling else settings.beam
        state = self.model.start(source_BS, (source_BS != PAD).long(), beams, max(max_lengths))
        if sampling:
            return sample(
                self.model,
                state,
                max_lengths=max_lengths,
                start=START,
                end=END,
                temperature=settings.temperature,
                top_k=settings.top_k,
                top_p=settings.top_p,
                seed=seed,
                rows=numbers,
                never=(PAD, START),
                prefixes=prefixes,
                device=self.device,
            )
        return beam_search(
            self.model,
            state,
            beams=beams,
            max_lengths=max_lengths,
            start=START,
            end=END,
            never=(PAD, START),
            length_penalty=settings.length_penalty,
            prefixes=prefixes,
            device=self.device,
        )


def _parts(lines: Sequence[str], split: bool, first_row: int) -> Iterator[Part]:
    """What is translated by itself, in order. Blank lines are not, and are not numbered."""
    row = first_row
    for line, text in enumerate(lines):
        if text.strip():
            for place, sentence in enumerate(split_sentences(text) if split else [text]):
                yield Part(sentence, line, row + place * NEXT_SENTENCE, place > 0)
            row += 1


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
