"""Generate text: continue a prompt, token by token.

All of a prompt but its last token is read at once when it enters a slot; the last one is fed like any other. So a text
does not depend on which others are written beside it. When a text is as long as the model's context, the older half
is forgotten and the rest enters again.

With `lookup`, texts are written one after the other, in passes of one or more tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from regard.decoding.engine import Engine, in_classes
from regard.decoding.engines import Engines
from regard.decoding.hypothesis import Request
from regard.decoding.lookup import Lookup
from regard.decoding.sampling import TOKEN, Draws
from regard.models.causal import Causal
from regard.settings import GenerationSettings

MOST_GUESSES = 7  # on a GPU: with the newest token, as many rows as one kernel reads at once


class GeneratedToken(NamedTuple):
    """One token that was written, and what else it might have been."""

    row: int
    token: int
    probability: float
    candidates: list[tuple[int, float]]
    same_pass: bool = False  # the model gave it together with the one before


def generate(
    model: Causal,
    prompts: Sequence[Sequence[int]],
    settings: GenerationSettings,
    *,
    context: int,
    end: int,
    never: Sequence[int] = (),
    seed: int = 1,
    numbers: Sequence[int] | None = None,
    top: int = 0,
    device: torch.device | None = None,
    finished: Callable[[int], bool] = lambda row: False,
    engines: Engines | None = None,
) -> Iterator[GeneratedToken]:
    """The tokens written, as they come. Every prompt has at least one token; a long one keeps its last part.

    A text depends on the seed and its own number, which is that of its row if none is given, and on nothing beside it.
    `top` is how many candidates to name. `finished` is asked after each token whether its row has enough.
    """
    if not prompts:
        return
    engines = engines or Engines(model, device)
    engines.ready()
    if engines.device.type == "cuda":  # more rows have other kernels, and in half precision near ties fall otherwise
        settings = settings.model_copy(update={"lookup": min(settings.lookup, MOST_GUESSES)})

    def room(request: Request) -> tuple[int, ...]:
        """Positions. A GPU goes over what is there, whatever the room; elsewhere, all of it is gone over."""
        if engines.device.type == "cuda" or not engines.has_slots:
            return (context,)
        most = min(settings.max_tokens, context)
        return (min(context, -(-(len(request.reads) + most) // 64) * 64),)

    numbered = zip(prompts, numbers or range(len(prompts)), strict=True)
    texts = [_Text(row, list(prompt), number, seed, settings, context) for row, (prompt, number) in enumerate(numbered)]
    for (length,), some in in_classes((text.stay() for text in texts), room).items():
        engine = _engine(engines, len(some), length, settings, end, never, top)
        for step in engine.run(some):
            report = step.report_BX.tolist()
            for slot, request in enumerate(step.texts):
                if request is None:
                    continue
                if request.skipped:
                    request.skipped -= 1
                    continue
                text = texts[request.number]
                for written in _told(text.row, report[slot], settings.lookup):
                    text.add(written.token)
                    yield written
                    if text.written == settings.max_tokens or written.token == end or finished(text.row):
                        engine.leave(slot)
                        break
                else:
                    if slot in step.done:  # the context is full
                        engine.waiting.appendleft(text.stay())


def _engine(
    engines: Engines, texts: int, length: int, settings: GenerationSettings, end: int, never: Sequence[int], top: int
) -> Engine:
    slots = settings.slots or (1 if settings.lookup else engines.slots(texts, 1, length))
    words = engines.source.to_logits.weight.shape[0]
    chosen: dict[str, Any] = {"end": end, "never": never, "top": top, "device": engines.device}

    def make() -> Engine:
        if settings.lookup:
            search: Draws = Lookup(length + 1, words, settings, **chosen)
        else:
            search = Draws(slots, length + 1, words, settings, **chosen)
        rows = engines.rows(slots, 1, length, length, fixed=settings.slots > 0, at_once=1 + settings.lookup)
        return Engine(rows, search, slots, engines.device)

    drawing = settings.model_copy(update={"max_tokens": 1})
    return engines.get(("generate", drawing, length, end, tuple(never), top, slots), make)


def _told(row: int, told: list[float], lookup: int) -> Iterator[GeneratedToken]:
    """The tokens that a step has written, with what might have been drawn instead, the likeliest first."""
    size = (len(told) - TOKEN) // (1 + lookup)
    for start in range(TOKEN, len(told), size):
        token, probability, *tokens_and_p = told[start : start + size]
        if token < 0:
            return
        count = len(tokens_and_p) // 2
        named = zip(tokens_and_p[:count], tokens_and_p[count:], strict=True)
        yield GeneratedToken(row, int(token), probability, [(int(t), p) for t, p in named if p > 0], start > TOKEN)


class _Text:
    """A text that is being written; it stays in a slot until it is done or the context is full."""

    def __init__(self, row: int, prompt: list[int], number: int, seed: int, settings: GenerationSettings, context: int):
        self.row, self.settings, self.context = row, settings, context
        self.tokens = list(prompt) if settings.repetition_penalty != 1.0 else None  # all of it, if that matters
        self.kept = prompt[-(context - 1) :]  # what the model still reads
        self.written = 0
        self.generator = np.random.default_rng([seed, number])

    def stay(self) -> Request:
        """What is asked for next."""
        if len(self.kept) > self.context:
            self.kept = self.kept[-(self.context // 2) :]
        limit = min(self.settings.max_tokens - self.written, self.context - len(self.kept) + 1)
        uniform = self.generator.random(limit).astype(np.float32) if self.settings.temperature > 0 else None
        return Request(self.row, self.kept[:-1], self.kept[-1], limit, uniform=uniform, seen=set(self.tokens or ()))

    def add(self, token: int) -> None:
        self.kept.append(token)
        if self.tokens is not None:
            self.tokens.append(token)
        self.written += 1
