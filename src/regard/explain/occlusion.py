"""Which words the answer to a question depends on: whole words are removed, not single tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.errors import UsageError
from regard.explain.explanation import Explanation
from regard.explain.view import View
from regard.explain.words import Word, draw_words
from regard.inside.named import named
from regard.inside.word_occlusion import Effect, effects_of_words


def effects(view: View) -> Explanation:
    from regard.explain.attribution import measured_faithfulness

    question, context = view.given
    best = view.task.answer(question, context)
    if not best.text:
        raise UsageError(
            "There is no answer to explain.",
            f"The model finds none in this context (probability {best.probability:.2f}).",
            "Ask a question that the context answers.",
        )
    words = effects_of_words(view.task, question, context, best)
    values = [np.nan if word.effect is None else word.effect for word in words]
    names = [word.word for word in words]
    parts = ["question" if word.in_question else "context" for word in words]
    faithful, facts = measured_faithfulness(view, {view.subject.last.name: _by_position(view, words)}, 0)
    return Explanation(
        f"Occlusion of words: drop in ln p of '{best.text}' when each word is removed",
        [named("effect", values, [("word", names)], "nats", part=parts)],
        lambda: draw_words(
            [(part, _drawn_words(words, part == "question")) for part in ("question", "context")],
            "nats; blue: the answer is less likely without the word, orange: more likely; framed: the answer itself",
        ),
        [f"probability {best.probability:.0%}"],
        {"answer": best.text, "probability": best.probability, **facts},
        f"positions of words emptied, not removed: {faithful}",
        output_text=best.text,
    )


def _by_position(view: View, effects: list[Effect]) -> Any:
    """The effect of each word at all of its positions; 0 elsewhere."""
    score_T = np.zeros(len(view.subject.last.pieces))
    for effect in effects:
        score_T[list(effect.columns)] = effect.effect or 0.0
    return score_T


def _drawn_words(effects: list[Effect], in_question: bool) -> list[Word]:
    return [Word(f" {effect.word}", effect.effect) for effect in effects if effect.in_question == in_question]
