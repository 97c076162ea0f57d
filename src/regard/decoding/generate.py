"""Generate text: continue a prompt, token by token.

All of a prompt but its last token is read at once when it enters a slot; the last one is fed like any other. So a text
does not depend on which others are written beside it. When a text is as long as the model's context, the older half
is forgotten and the rest enters again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from regard.decoding.engine import Engine
from regard.decoding.engines import Engines
from regard.decoding.hypothesis import Request
from regard.decoding.sampling import CANDIDATES, PROBABILITY, TOKEN, Draws
from regard.models.causal import Causal
from regard.settings import GenerationSettings


@dataclass(frozen=True)
class GeneratedToken:
    """One token that was written, and what else it might have been."""

    row: int
    token: int
    probability: float
    candidates: list[tuple[int, float]]


def generate(
    model: Causal,
    prompts: Sequence[Sequence[int]],
    settings: GenerationSettings,
    *,
    context: int,
    end: int,
    never: Sequence[int] = (),
    seed: int = 1,
    first_row: int = 0,
    top: int = 0,
    device: torch.device | None = None,
    finished: Callable[[int], bool] = lambda row: False,
    engines: Engines | None = None,
    slots: int = 0,
) -> Iterator[GeneratedToken]:
    """The tokens written, as they come. Every prompt has at least one token; a long one keeps its last part.

    A text depends on the seed and the number of its row, counted from `first_row`, and on nothing beside it.
    `top` is how many candidates to name. `finished` is asked after each token whether its row has enough. `slots` is
    how many are written side by side; 0: as many as memory allows.
    """
    if not prompts:
        return
    engines = engines or Engines(model, device)
    engines.ready()
    texts = [_Text(row, list(prompt), first_row + row, seed, settings, context) for row, prompt in enumerate(prompts)]
    slots = slots or engines.slots(len(texts), 1, context)
    words = engines.source.to_logits.weight.shape[0]
    key = ("generate", settings, context, end, tuple(never), top, slots)

    def make() -> Engine:
        search = Draws(slots, context + 1, words, settings, end=end, never=never, top=top, device=engines.device)
        return Engine(engines.rows(slots, 1, context, context), search, slots, engines.device)

    engine = engines.get(key, make)
    for step in engine.run(text.stay() for text in texts):
        for slot, request in enumerate(step.texts):
            if request is None:
                continue
            if request.skipped:
                request.skipped -= 1
                continue
            text = texts[request.number]
            written = _written(text.row, step.report_BX[slot])
            text.add(written.token)
            yield written
            if text.written == settings.max_tokens or written.token == end or finished(text.row):
                engine.leave(slot)
            elif slot in step.done:  # the context is full
                engine.waiting.appendleft(text.stay())


def _written(row: int, report_X: NDArray[np.float32]) -> GeneratedToken:
    tokens, p = report_X[CANDIDATES:].reshape(2, -1).tolist()
    named = [(int(token), q) for token, q in zip(tokens, p, strict=True) if q > 0]
    return GeneratedToken(row, int(report_X[TOKEN]), float(report_X[PROBABILITY]), named)


class _Text:
    """A text that is being written; it stays in a slot until it is done or the context is full."""

    def __init__(self, row: int, prompt: list[int], number: int, seed: int, settings: GenerationSettings, context: int):
        self.row, self.settings, self.context = row, settings, context
        self.tokens = prompt
        self.kept = prompt[-(context - 1) :]  # what the model still reads
        self.written = 0
        self.generator = np.random.default_rng([seed, number])

    def stay(self) -> Request:
        """What is asked for next."""
        if len(self.kept) > self.context:
            self.kept = self.kept[-(self.context // 2) :]
        limit = min(self.settings.max_tokens - self.written, self.context - len(self.kept) + 1)
        uniform = self.generator.random(limit).astype(np.float32) if self.settings.temperature > 0 else None
        penalised = self.settings.repetition_penalty != 1.0
        return Request(
            self.row, self.kept[:-1], self.kept[-1], limit, uniform=uniform, seen=set(self.tokens) if penalised else ()
        )

    def add(self, token: int) -> None:
        self.kept.append(token)
        self.tokens.append(token)
        self.written += 1
