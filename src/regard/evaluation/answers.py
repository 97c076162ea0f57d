"""Scores of answers, as SQuAD defines them, and what counting words finds.

    exact match   the answer is one of those given, after normalising both
    F1            of the words that it shares with the one that it shares most with

Normalised is a text in lower case, without punctuation, without a, an and the, and with single spaces.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from regard.data.questions import Question
from regard.evaluation.classification import share_score
from regard.evaluation.metrics import Score

ARTICLES = re.compile(r"\b(a|an|the)\b")
WORD = re.compile(r"\w+(?:['’.,-]\w+)*")
NEAR = 10  # words to each side of a span that are compared with a question


def normalised(text: str) -> str:
    without_marks = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(ARTICLES.sub(" ", without_marks).split())


def exact_match(answer: str, given: Sequence[str]) -> bool:
    """No answer is right where none is given."""
    return normalised(answer) in {normalised(text) for text in given or [""]}


def f1(answer: str, given: Sequence[str]) -> float:
    return max(_shared(normalised(answer).split(), normalised(text).split()) for text in given or [""])


def _shared(found: list[str], wanted: list[str]) -> float:
    if not found or not wanted:
        return float(found == wanted)
    both = sum((Counter(found) & Counter(wanted)).values())
    return 2 * both / (len(found) + len(wanted))


@dataclass(frozen=True)
class AnswerScores:
    """In percent, over all questions."""

    exact: int
    f1: float
    count: int

    @classmethod
    def of(cls, answers: Sequence[str], questions: Sequence[Question]) -> AnswerScores:
        pairs = list(zip(answers, questions, strict=True))
        return cls(
            sum(exact_match(answer, question.answers) for answer, question in pairs),
            100 * sum(f1(answer, question.answers) for answer, question in pairs) / max(len(pairs), 1),
            len(pairs),
        )

    @property
    def metrics(self) -> dict[str, float]:
        return {"exact_match": 100 * self.exact / max(self.count, 1), "f1": self.f1}

    @property
    def scores(self) -> list[Score]:
        how = f"n:{self.count}|normalised:squad"
        return [share_score("exact_match", self.exact, self.count), Score("f1", self.f1, None, how)]


# ---------------------------------------------------------------- a sliding window


def sliding_window(questions: Sequence[Question], words: int) -> list[str]:
    """For each question, the span of so many words whose surroundings share most with the question.

    Of the words near a span, those of the question count, rare ones more; the span itself has none of them.
    """
    frequency = Counter(word for question in questions for word in set(_words(question.context)))
    weight = {word: math.log(1 + len(questions) / count) for word, count in frequency.items()}
    return [_best_span(question, weight, words) for question in questions]


def usual_length(questions: Iterable[Question]) -> int:
    """The median number of words of an answer."""
    lengths = sorted(len(_words(question.answers[0])) for question in questions if question.answers)
    return max(1, lengths[len(lengths) // 2]) if lengths else 1


def _best_span(question: Question, weight: dict[str, float], words: int) -> str:
    places = [match.span() for match in WORD.finditer(question.context)]
    if len(places) < words:
        return question.context
    asked = set(_words(question.question))
    worth = [
        weight.get(word, 0.0) if word in asked else 0.0
        for word in (question.context[start:end].lower() for start, end in places)
    ]
    best, found = -math.inf, 0
    for first in range(len(places) - words + 1):
        inside = sum(worth[first : first + words])
        around = sum(worth[max(0, first - NEAR) : first + words + NEAR]) - 2 * inside
        if around > best:
            best, found = around, first
    return question.context[places[found][0] : places[found + words - 1][1]]


def _words(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]
