"""Forcing: another token in place of an answer, and the output that the model continues with.

    y_1 … y_{i−1} unchanged, y_i forced, y_{i+1} … regenerated

A translator, summariser or captioner searches again with this prefix; a language model continues with its likeliest
tokens, even if the original text was not generated.
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

    `more`: how many tokens a language model generates after it; None: as many as there were.
    """
    if subject.with_prefix is None:
        raise UsageError(
            "No word can be forced here.",
            "This model does not generate text token by token.",
            "Use a translator, a summariser, a captioner or a language model.",
        )
    answers = subject.answers
    answer = subject.answer_index(answer)
    if token in subject.never_of(answer):
        raise UsageError(
            f"{subject.name_of(token)} cannot be forced.", "It is never generated.", "Choose another word."
        )
    if more is None:
        more = max(0, len(answers) - answer - 2)  # the last answer is a prediction, not part of the text
    return subject.with_prefix([*(each.token for each in answers[:answer]), token], more)


def completed(forced: Sequence[int], write: Callable[[], list[int]]) -> list[int]:
    """The output that starts with the forced tokens. If the last one is <end>, nothing is left to generate."""
    return list(forced[:-1]) if forced and forced[-1] == END else write()


def continued(
    model: Causal, ids: list[int], more: int, *, context: int, never: Sequence[int], engines: Engines
) -> list[int]:
    """The ids and their greedy continuation, of at most `more` tokens and without <end>."""
    more = min(more, context - len(ids))
    if more <= 0 or ids[-1] == END:
        return ids
    settings = GenerationSettings(temperature=0.0, max_tokens=more)
    generated = generate(model, [ids], settings, context=context, end=END, never=never, engines=engines)
    return [*ids, *(step.token for step in generated if step.token != END)]
