"""Forcing: another word in the place of one that was said, and what the model then makes of the rest.

    y_1 … y_{i−1} as they were, y_i chosen, y_{i+1} … written by the model

A translator, summariser or captioner searches again with that beginning; a language model continues with its
likeliest tokens, also where the text was not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regard.data.tokenizers import END
from regard.decoding.engines import Engines
from regard.decoding.generate import generate
from regard.errors import UsageError
from regard.inside.subject import Subject
from regard.models.causal import Causal
from regard.settings import GenerationSettings


def force(subject: Subject, answer: int, token: int, more: int | None = None) -> Subject:
    """The subject with this token as that answer.

    `more`: how many tokens a language model writes after it; None: as many as there were.
    """
    if subject.begun is None:
        raise UsageError(
            "No word can be forced here.",
            "This model does not generate text: nothing follows its answer.",
            "Use a translator, a summariser, a captioner or a language model.",
        )
    answers = subject.answers
    answer = subject.place(answer)
    if token in subject.never_of(answer):
        raise UsageError(
            f"{subject.name_of(token)} cannot be forced.", "It is never generated.", "Choose another word."
        )
    if more is None:
        more = max(0, len(answers) - answer - 2)  # the last answer is no token of the text yet
    return subject.begun([*(each.token for each in answers[:answer]), token], more)


def completed(forced: Sequence[int], write: Callable[[], list[int]]) -> list[int]:
    """What is written about a source, when it begins so. Where <end> is forced, nothing is left to write."""
    return list(forced[:-1]) if forced and forced[-1] == END else write()


def continued(
    model: Causal, ids: list[int], more: int, *, context: int, never: Sequence[int], engines: Engines
) -> list[int]:
    """The ids, and up to so many that a language model finds likeliest after them, before <end>."""
    more = min(more, context - len(ids))
    if more <= 0 or ids[-1] == END:
        return ids
    settings = GenerationSettings(temperature=0.0, max_tokens=more)
    written = generate(model, [ids], settings, context=context, end=END, never=never, engines=engines)
    return [*ids, *(each.token for each in written if each.token != END)]
