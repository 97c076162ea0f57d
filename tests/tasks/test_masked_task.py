"""A trained masked language model."""

import pytest

from regard.errors import UsageError


def test_it_has_learned_something(masked):
    metrics = masked.evaluate().metrics
    assert metrics["accuracy"] > 25  # the most frequent word alone: about 8
    assert metrics["loss"] < 4.5


def test_tokens_that_fill_no_row_are_not_scored_and_it_says_how_many(masked):
    evaluation = masked.evaluate()
    left_out = evaluation.details["left_out"]
    assert left_out == evaluation.count % 64 > 0
    assert f"the last {left_out} left out" in evaluation.scores[0].signature
    ids = masked._held_out(None, "test")[0]
    assert masked.measure(ids[: len(ids) - left_out]) == evaluation.metrics


def test_candidates_come_likeliest_first_with_the_text_in_place(masked):
    [candidates] = masked.fill("The [MASK] is sick.", top=8)
    assert len(candidates) == 8
    probabilities = [candidate.probability for candidate in candidates]
    assert probabilities == sorted(probabilities, reverse=True)
    assert 0 < sum(probabilities) <= 1.0001
    for candidate in candidates:
        assert candidate.text == f"The {candidate.token} is sick."


def test_a_noun_is_guessed_where_a_noun_belongs(masked):
    [candidates] = masked.fill("In the evening the [MASK] is tired.", top=5)
    nouns = {"student", "teacher", "woman", "doctor", "sister", "friend", "son", "boy", "girl", "brother", "farmer"}
    nouns |= {"daughter", "man", "aunt", "child", "dog", "uncle", "mother", "father", "horse", "cat", "bird", "king"}
    assert {candidate.token for candidate in candidates} & nouns


def test_every_mask_gets_its_own_candidates(masked):
    first, second = masked.fill("[MASK] man sees the [MASK].", top=3)
    assert len(first) == len(second) == 3
    assert all(candidate.text.startswith(f"{candidate.token} man sees the [MASK]") for candidate in first)
    assert all(candidate.text == f"[MASK] man sees the {candidate.token}." for candidate in second)


def test_all_probability_is_on_words_that_can_stand_there(masked):
    size = masked.tokenizer.size
    [candidates] = masked.fill("The [MASK].", top=size)
    assert sum(candidate.probability for candidate in candidates) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(("text", "top"), [("No hole here.", 5), ("A [MASK].", 0), ("[MASK] word" * 200, 5)])
def test_what_cannot_be_filled_is_refused(masked, text, top):
    with pytest.raises(UsageError):
        masked.fill(text, top)
