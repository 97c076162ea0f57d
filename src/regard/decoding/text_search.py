"""Texts that an encoder–decoder writes about sources of any kind: searched for side by side, the longest first."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.tokenizers import END, PAD, START, TextTokenizer
from regard.decoding.beam import Beams, hypotheses
from regard.decoding.engine import Engine, in_classes, rounded
from regard.decoding.engines import Engines
from regard.decoding.hypothesis import Hypothesis, Request, SearchRecord
from regard.decoding.sampling import PROBABILITY, TOKEN, Draws
from regard.hardware import memory_errors, mix_seeds, out_of_memory
from regard.settings import SearchSettings


@dataclass(frozen=True)
class Written:
    """A text that was searched for, or drawn. `score` is its log-probability after the length penalty."""

    text: str
    score: float
    log_probability: float
    tokens: list[int]


@dataclass(frozen=True)
class TextSearch:
    settings: SearchSettings
    engines: Engines
    tokenizer: TextTokenizer  # of what is written
    longest_source: int  # in numbers, as requests give them
    doing: str  # what is done here, for messages: "translating"

    def texts(
        self, asked: list[Request], best: int, progress: Callable[[int], None] = lambda done: None
    ) -> Iterator[tuple[int, list[Written]]]:
        """The best texts for every request, by its number."""
        found = list(self.hypotheses(asked, best, progress))
        texts = iter(self.tokenizer.decode([h.tokens for _, best_ones in found for h in best_ones]))
        for number, best_ones in found:
            yield number, [Written(next(texts), h.score, h.log_probability, h.tokens) for h in best_ones]

    def hypotheses(
        self, asked: list[Request], best: int, progress: Callable[[int], None]
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The hypotheses of every request, by its number."""
        if not asked:
            return
        self.engines.ready()
        done = _Count(progress)
        if self.engines.groups == 1:
            yield from self._group(asked, best, done)
            return
        groups = [asked[first :: self.engines.groups] for first in range(self.engines.groups)]
        for raw in self.engines.processes.each(groups, lambda group: _as_bytes(self._group(group, best, done))):
            yield from _from_bytes(raw)

    def _group(self, asked: list[Request], best: int, done: _Count) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Of some requests, that are searched for together."""
        decode = _drawn if self.settings.temperature > 0 else _searched
        for (length, source_length), some in self._classes(asked).items() if asked else ():
            yield from self._search_class(some, length, source_length, best, done.more, decode)

    def record(self, request: Request) -> SearchRecord:
        """The same search for one text, with all that was considered on the way."""
        self.engines.ready()
        [((length, source_length), asked)] = self._classes([request]).items()
        decode, nobody = partial(_recorded, self.tokenizer), lambda done: None
        [(_, record)] = self._search_class(asked, length, source_length, 0, nobody, decode, remembers=True)
        assert isinstance(record, SearchRecord)
        return record

    def _classes(self, asked: list[Request]) -> dict[Any, list[Request]]:
        """By the longest output and the longest source that there must be room for, rounded: so engines serve again.

        A GPU goes over what is there, whatever the room: all are in one class. Elsewhere, all of it is gone over.
        """

        def room(request: Request) -> tuple[int, int]:
            source = -(-rounded(positions(len(request.reads))) // 32) * 32
            return -(-request.limit // 64) * 64, min(source, positions(self.longest_source))

        positions: Callable[[int], int] = self.engines.model.source_positions
        asked = sorted(asked, key=lambda request: -len(request.reads))  # the shortest fill up the end
        classes = in_classes(asked, room)
        if self.engines.device.type == "cuda" or not self.engines.has_slots:
            return {tuple(map(max, zip(*classes, strict=True))): asked}
        return classes

    def _search_class(
        self,
        asked: list[Request],
        length: int,
        source_length: int,
        best: int,
        progress: Callable[[int], None],
        decode: Callable[..., Any],
        remembers: bool = False,
    ) -> Iterator[tuple[int, Any]]:
        """What does not fit into memory is tried with fewer slots."""
        beams = 1 if self.settings.temperature > 0 else self.settings.beam
        parts = self.engines.shares(asked, fixed=self.settings.slots > 0)
        slots = self.settings.slots or self.engines.slots(len(parts[0]), beams, length, source_length)
        forces = any(request.forced for request in asked)
        while True:
            try:
                jobs = []
                for worker, part in enumerate(parts):
                    engine = self._engine(slots, beams, length, source_length, forces, worker, remembers)
                    jobs.append(partial(decode, engine, part, self.settings.length_penalty, best, progress))
                yield from self.engines.all_of(jobs, fixed=self.settings.slots > 0)
                return
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                if slots == 1:
                    remedy = "Use a smaller beam." if beams > 1 else "Close other programs, or give shorter texts."
                    with memory_errors(f"on {self.engines.device} while {self.doing}", remedy):
                        raise
                slots //= 2
            self.engines.forget()

    def _engine(
        self, slots: int, beams: int, length: int, source_length: int, forces: bool, worker: int, remembers: bool
    ) -> Engine:
        settings, engines = self.settings, self.engines

        def make() -> Engine:
            fixed = settings.slots > 0
            rows = engines.rows(slots, beams, length, self.longest_source, source_length, fixed)
            options: Any = {"end": END, "never": (PAD, START), "device": engines.device}
            search: Beams | Draws
            if settings.temperature > 0:
                search = Draws(slots, length, self.tokenizer.size, settings, **options)
            else:
                options |= {"forces": forces, "no_repeat": settings.no_repeat, "remembers": remembers}
                search = Beams(slots, beams, length, **options)
            return Engine(rows, search, slots, engines.device)

        drawing = (settings.temperature, settings.top_k, settings.top_p, settings.slots, settings.no_repeat)
        return engines.get((slots, beams, length, source_length, forces, drawing, worker, remembers), make)


def _as_bytes(found: Iterable[tuple[int, list[Hypothesis]]]) -> NDArray[np.uint8]:
    """For another process."""
    listed = [
        (number, [([*map(int, h.tokens)], float(h.log_probability), float(h.score)) for h in best_ones])
        for number, best_ones in found
    ]
    return np.frombuffer(json.dumps(listed).encode(), np.uint8)


def _from_bytes(raw: NDArray[np.uint8]) -> Iterator[tuple[int, list[Hypothesis]]]:
    for number, best_ones in json.loads(raw.tobytes()):
        yield number, [Hypothesis(*fields) for fields in best_ones]


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
    """By beam search."""
    numbers, (written, ended, count) = _tables(engine, asked, progress)
    yield from zip(numbers, hypotheses(written, ended, count, alpha, best), strict=True)


def _recorded(
    tokenizer: TextTokenizer,
    engine: Engine,
    asked: Sequence[Request],
    alpha: float,
    best: int,
    progress: Callable[[int], None],
) -> Iterator[tuple[int, SearchRecord]]:
    """By beam search, with all that it considered."""
    numbers, (written, ended, count, considered) = _tables(engine, asked, progress)
    for row, best_ones in enumerate(hypotheses(written, ended, count, alpha, best)):
        ended_E4 = ended[row][: count[row]]
        steps = int(ended_E4[:, 3].max(initial=0))
        tables = considered[row][:steps], written[row][:steps], ended_E4
        yield numbers[row], SearchRecord(tokenizer, alpha, *tables, best_ones)


def _tables(
    engine: Engine, asked: Sequence[Request], progress: Callable[[int], None]
) -> tuple[list[int], list[NDArray[Any]]]:
    """The numbers of the texts as they ended, and what `Beams.taken` tells of each.

    It is put together at the end: until then nothing waits for the device.
    """
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
    return numbers, [np.concatenate([part.numpy() for part in parts]) for parts in zip(*taken, strict=True)]


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


def drawn_with(settings: SearchSettings, limit: int, seed: int, row: int) -> NDArray[np.float32] | None:
    """What the tokens of a text are drawn with: it follows from the seed and the text's number alone."""
    if settings.temperature <= 0:
        return None
    return torch.rand(limit, generator=torch.Generator().manual_seed(mix_seeds(seed, row))).numpy()
