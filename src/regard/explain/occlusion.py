"""Which words made the answer to a question: whole words are removed, not their tokens one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.errors import UsageError
from regard.explain.shown import Shown
from regard.explain.view import View
from regard.explain.words import Word, draw_words
from regard.inside.named import named
from regard.inside.word_occlusion import Effect, effects_of_words


def effects(view: View) -> Shown:
    from regard.explain.attribution import believed

    question, context = view.given
    best = view.task.answer(question, context)
    if not best.text:
        raise UsageError(
            "There is no answer to explain.",
            f"The model finds none in this context (probability {best.probability:.2f}).",
            "Ask something that the context answers.",
        )
    found = effects_of_words(view.task, question, context, best)
    values = [np.nan if each.effect is None else each.effect for each in found]
    names = [each.word for each in found]
    parts = ["question" if each.in_question else "context" for each in found]
    faithful, facts = believed(view, {view.subject.last.name: _by_position(view, found)}, 0)
    return Shown(
        f"Occlusion of words: drop in ln p of '{best.text}' when each word is removed",
        [named("effect", values, [("word", names)], "nats", part=parts)],
        lambda: draw_words(
            [(part, _grounds(found, part == "question")) for part in ("question", "context")],
            "nats; blue: the answer is less likely without the word, orange: more likely; framed: the answer itself",
        ),
        [f"probability {best.probability:.0%}"],
        {"answer": best.text, "probability": best.probability, **facts},
        f"positions of words emptied, not removed: {faithful}",
        output_text=best.text,
    )


def _by_position(view: View, effects: list[Effect]) -> Any:
    """The effect of each word at all of its positions; of what is in none, nothing."""
    score_T = np.zeros(len(view.subject.last.pieces))
    for effect in effects:
        score_T[list(effect.columns)] = effect.effect or 0.0
    return score_T


def _grounds(effects: list[Effect], in_question: bool) -> list[Word]:
    return [Word(f" {each.word}", each.effect) for each in effects if each.in_question == in_question]
