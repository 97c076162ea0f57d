"""Translate sentences: decoded side by side, the longest first, and given back in their own order."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch

from regard.data.sentences import WIDE_CLOSING, WIDE_MARKS, split_sentences
from regard.data.tokenizers import END, PAD, START, TextTokenizer
from regard.decoding.beam import Beams, hypotheses
from regard.decoding.engine import Engine, in_classes, rounded
from regard.decoding.engines import Engines
from regard.decoding.hypothesis import Hypothesis, Request
from regard.decoding.sampling import PROBABILITY, TOKEN, Draws
from regard.hardware import memory_errors, mix_seeds, out_of_memory
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
    ) -> list[list[Translation]]:
        """For each line its `best` translations (0: as many as the beam is wide), best first; none for a blank one.

        A line is a sentence; with `split` it may be several, each translated by itself: a prefix is the first one's,
        and the translations are the best combinations. `noticed` is told the place of each line, from 0, and the
        tokens of each of its sentences. `first_row` numbers the first line that is not blank, so that a sampled text
        depends on its number in the whole input and not on how the input was cut into pieces.
        """
        best = best or self.settings.beam
        parts = list(_parts(sentences, split, first_row))
        encoded = self.source_tokenizer.encode([part.text for part in parts])
        for part, ids in zip(parts, encoded, strict=True):
            noticed(part.line, len(ids) + 1)
        sources = [self._ended(ids) for ids in encoded]
        of_lines = self.target_tokenizer.encode(prefixes) if prefixes else [[] for _ in sentences]
        forced = [[] if part.follows else of_lines[part.line] for part in parts]
        numbers = [part.number for part in parts]
        asked = [self._request(i, source, forced[i], numbers[i], seed) for i, source in enumerate(sources)]
        results: list[list[Translation]] = [[] for _ in parts]
        found = list(self._search(asked, best, progress))
        texts = iter(self.target_tokenizer.decode([h.tokens for _, best_ones in found for h in best_ones]))
        for number, best_ones in found:
            results[number] = [Translation(next(texts), h.score, h.log_probability, h.tokens) for h in best_ones]
        of_each: list[list[list[Translation]]] = [[] for _ in sentences]
        for part, translations in zip(parts, results, strict=True):
            of_each[part.line].append(translations)
        return [joined(translations, best) for translations in of_each]

    def encode(self, sentence: str) -> list[int]:
        """The ids of a source sentence with <end>, cut where the model's positions end."""
        return self._ended(self.source_tokenizer.encode([sentence])[0])

    def _ended(self, ids: list[int]) -> list[int]:
        return [*ids[: self.max_positions - 1], END]

    def _request(self, number: int, source: list[int], prefix: list[int], row: int, seed: int) -> Request:
        limit = min(int(self.settings.max_ratio * len(source)) + 20 + len(prefix), self.max_positions)
        uniform = None
        if self.settings.temperature > 0:
            uniform = torch.rand(limit, generator=torch.Generator().manual_seed(mix_seeds(seed, row))).numpy()
        return Request(number, source, START, limit, prefix, uniform)

    def _search(
        self, asked: list[Request], best: int, progress: Callable[[int], None]
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The hypotheses of every sentence, by its number."""
        if not asked:
            return
        self.engines.ready()
        done = _Count(progress)
        for (length, source_length), some in self._classes(asked).items():
            yield from self._search_class(some, length, source_length, best, done.more)

    def _classes(self, asked: list[Request]) -> dict[Any, list[Request]]:
        """By the longest output and the longest source that there must be room for, rounded: so engines serve again.

        A GPU goes over what is there, whatever the room: all are in one class. Elsewhere, all of it is gone over.
        """

        def room(request: Request) -> tuple[int, int]:
            source = min(-(-rounded(len(request.reads)) // 32) * 32, self.max_positions)
            return -(-request.limit // 64) * 64, source

        asked = sorted(asked, key=lambda request: -len(request.reads))  # the shortest fill up the end
        classes = in_classes(asked, room)
        if self.engines.device.type == "cuda" or not self.engines.has_slots:
            return {tuple(map(max, zip(*classes, strict=True))): asked}
        return classes

    def _search_class(
        self, asked: list[Request], length: int, source_length: int, best: int, progress: Callable[[int], None]
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """What does not fit into memory is tried with fewer slots."""
        beams = 1 if self.settings.temperature > 0 else self.settings.beam
        parts = self.engines.shares(asked, fixed=self.settings.slots > 0)
        slots = self.settings.slots or self.engines.slots(len(parts[0]), beams, length, source_length)
        forces = any(request.forced for request in asked)
        decode = _drawn if self.settings.temperature > 0 else _searched
        while True:
            try:
                jobs = []
                for worker, part in enumerate(parts):
                    engine = self._engine(slots, beams, length, source_length, forces, worker)
                    jobs.append(partial(decode, engine, part, self.settings.length_penalty, best, progress))
                yield from self.engines.all_of(jobs, fixed=self.settings.slots > 0)
                return
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                if slots == 1:
                    remedy = "Use a smaller beam." if beams > 1 else "Close other programs, or give shorter texts."
                    with memory_errors(f"on {self.engines.device} while translating", remedy):
                        raise
                slots //= 2
            self.engines.forget()

    def _engine(self, slots: int, beams: int, length: int, source_length: int, forces: bool, worker: int) -> Engine:
        settings, engines = self.settings, self.engines

        def make() -> Engine:
            fixed = settings.slots > 0
            rows = engines.rows(slots, beams, length, self.max_positions, source_length, fixed)
            options: Any = {"end": END, "never": (PAD, START), "device": engines.device}
            search: Beams | Draws
            if settings.temperature > 0:
                search = Draws(slots, length, self.target_tokenizer.size, settings, **options)
            else:
                search = Beams(slots, beams, length, forces=forces, **options)
            return Engine(rows, search, slots, engines.device)

        drawing = (settings.temperature, settings.top_k, settings.top_p, settings.slots)
        return engines.get(("translate", slots, beams, length, source_length, forces, drawing, worker), make)


class _Count:
    """How many are done, by whichever thread."""

    def __init__(self, progress: Callable[[int], None]):
        self.progress, self.done, self.lock = progress, 0, Lock()

    def more(self, count: int) -> None:
        with self.lock:
            self.done += count
            self.progress(self.done)


def _searched(
    engine: Engine, asked: Sequence[Request], alpha: float, best: int, progress: Callable[[int], None]
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """By beam search. Texts are put together at the end: until then nothing waits for the device."""
    search = engine.search
    assert isinstance(search, Beams)
    numbers: list[int] = []
    taken = []
    for step in engine.run(asked):
        if done := [(slot, text) for slot in step.done if (text := step.texts[slot]) is not None]:
            numbers += [text.number for _, text in done]
            taken.append(search.taken([slot for slot, _ in done]))
            progress(len(done))
    if engine.device.type == "cuda":
        torch.cuda.synchronize(engine.device)
    written, ended, count = (np.concatenate([part.numpy() for part in parts]) for parts in zip(*taken, strict=True))
    yield from zip(numbers, hypotheses(written, ended, count, alpha, best), strict=True)


def _drawn(
    engine: Engine, asked: Sequence[Request], alpha: float, best: int, progress: Callable[[int], None]
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """By sampling: one hypothesis each."""
    tokens: dict[int, list[int]] = defaultdict(list)
    log_p: dict[int, float] = defaultdict(float)
    for step in engine.run(asked):
        for slot, text in enumerate(step.texts):
            if text is None:
                continue
            log_p[text.number] += math.log(step.report_BX[slot, PROBABILITY])
            if (token := int(step.report_BX[slot, TOKEN])) != END:
                tokens[text.number].append(token)
            if slot in step.done:
                yield text.number, [Hypothesis(tokens[text.number], log_p[text.number], log_p[text.number])]
        progress(len(step.done))


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
