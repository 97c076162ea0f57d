"""Scores of answers against SQuAD's definition, stated a second time; and the baseline."""

from __future__ import annotations

import random
import re

import pytest

from regard.data.questions import Question
from regard.evaluation.answers import AnswerScores, exact_match, f1, normalised, sliding_window, usual_length

MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def words_of(text: str) -> list[str]:
    """Lower case, without punctuation, without articles: in other steps than the code's."""
    bare = text.lower().translate({ord(mark): None for mark in MARKS})
    return [word for word in re.split(r"\s+", re.sub(r"(?<!\w)(?:the|an|a)(?!\w)", " ", bare)) if word]


def multiset_f1(found: str, given: str) -> float:
    left, right = words_of(found), words_of(given)
    if not left or not right:
        return float(left == right)
    rest, same = list(right), 0
    for word in left:
        if word in rest:
            rest.remove(word)
            same += 1
    if not same:
        return 0.0
    precision, recall = same / len(left), same / len(right)
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Cat.", "cat"),
        ("a  theatre, an  anthem", "theatre anthem"),
        ("U.S. $12", "us 12"),
        ("the-end", "theend"),
        ("  ", ""),
        ("Ärzte – A", "ärzte –"),
    ],
)
def test_normalising(text, expected):
    assert normalised(text) == expected


def test_scores_are_those_of_the_definition_on_random_texts():
    rng = random.Random(1)
    words = ["the", "a", "an", "The", "cat", "cat,", "Dog.", "U.S.", "12", "theatre", "–", "(it)"]
    for _ in range(500):
        found, *given = (" ".join(rng.choices(words, k=rng.randint(0, 5))) for _ in range(rng.randint(2, 4)))
        assert exact_match(found, given) == any(words_of(found) == words_of(text) for text in given)
        assert f1(found, given) == pytest.approx(max(multiset_f1(found, text) for text in given))


def test_no_answer_is_right_only_where_none_is_given():
    assert exact_match("", []) and f1("", []) == 1
    assert not exact_match("cat", []) and f1("cat", []) == 0
    assert not exact_match("", ["cat"]) and f1("", ["cat"]) == 0


def test_scores_are_means_over_questions_in_percent():
    questions = [Question("q", "c", ("the red cat",), (None,)), Question("q", "c", ("dog", "a dog"), (None, None))]
    scores = AnswerScores.of(["red cat", "big dog"], questions)
    assert scores.metrics == {"exact_match": 50.0, "f1": pytest.approx(100 * (1 + 2 / 3) / 2)}
    assert [score.name for score in scores.scores] == ["exact_match", "f1"]


def test_the_sliding_window_takes_the_words_next_to_those_of_the_question():
    context = "Far away it rained on Monday. " * 5 + "Mary went to the kitchen. " + "Nobody saw the old dog. " * 5
    question = Question("Where has Mary gone, when she went out to cook?", context, ("kitchen",), (None,))
    others = [Question("Who?", "It rained on the old dog.", ("dog",), (None,))] * 9
    [found, *_] = sliding_window([question, *others], words=1)
    at = context.index("Mary")
    assert abs(context.index(found, at - 60) - at) < 60
    assert found.lower() not in {"mary", "went", "to"}
    assert usual_length([question, Question("q", "c", ("one two three",), (None,)), *others[:1]]) == 1
    assert sliding_window([Question("Who?", "Mary.")], words=3) == ["Mary."]
