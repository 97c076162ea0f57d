"""Scores: the same as sacreBLEU called directly, with its signature and an interval."""

from __future__ import annotations

import json
import random

import pytest
import sacrebleu

from regard.data.samples import english_german
from regard.evaluation.metrics import TRANSLATION_METRICS, Score, TranslationScorer, bleu, translation_scores

REFERENCES = [german for _, german in english_german.pairs(60, seed=9)]


def worsened(text: str, draw: random.Random) -> str:
    """A translation with words left out, doubled, or in another case."""
    words = []
    for word in text.split():
        words += draw.choice([[word], [word], [word], [], [word, word], [word.upper()]])
    return " ".join(words)


HYPOTHESES = [worsened(text, random.Random(n)) for n, text in enumerate(REFERENCES)]


@pytest.fixture(scope="module")
def scores() -> dict[str, Score]:
    return {score.name: score for score in translation_scores(HYPOTHESES, REFERENCES)}


def test_the_scores_are_bleu_cased_and_lower_cased_and_chrf(scores):
    assert list(scores) == ["bleu", "bleu_lowercase", "chrf"]


def test_the_scores_equal_sacrebleu_called_directly(scores):
    references = [REFERENCES]
    assert scores["bleu"].value == pytest.approx(sacrebleu.corpus_bleu(HYPOTHESES, references).score)
    assert scores["bleu_lowercase"].value == pytest.approx(
        sacrebleu.corpus_bleu(HYPOTHESES, references, lowercase=True).score
    )
    assert scores["chrf"].value == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, references).score)
    assert bleu(HYPOTHESES, REFERENCES) == pytest.approx(scores["bleu"].value)


def test_case_counts_for_bleu_and_not_for_lower_cased_bleu(scores):
    assert scores["bleu_lowercase"].value > scores["bleu"].value + 1
    lowered = [text.lower() for text in REFERENCES]
    found = {score.name: score.value for score in translation_scores(lowered, REFERENCES, bootstrap=False)}
    assert found["bleu"] < 60
    assert found["bleu_lowercase"] == pytest.approx(100)


def test_the_signature_says_how_it_was_measured(scores):
    for name, case in (("bleu", "case:mixed"), ("bleu_lowercase", "case:lc")):
        parts = scores[name].signature.split("|")
        assert {"nrefs:1", "bs:1000", case, "eff:no", "tok:13a", "smooth:exp"} <= set(parts)
        assert f"version:{sacrebleu.__version__}" in parts
    parts = scores["chrf"].signature.split("|")
    assert {"nrefs:1", "case:mixed", "nc:6", "nw:0", "space:no", f"version:{sacrebleu.__version__}"} <= set(parts)


def test_the_interval_is_what_resampling_gives(scores):
    for score in scores.values():
        low, high = score.interval
        assert 0 < low < score.value < high and 1 < high - low < 40
    again = {score.name: score for score in translation_scores(HYPOTHESES, REFERENCES)}
    assert again == scores


def test_the_interval_is_that_of_sacrebleu(scores):
    for name, make in TRANSLATION_METRICS.items():
        theirs = make().corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=1000)
        expected = theirs._mean - theirs._ci, theirs._mean + theirs._ci
        assert scores[name].interval == pytest.approx(expected, rel=1e-12)


def test_more_sentences_give_a_narrower_interval():
    few, many = (translation_scores(HYPOTHESES[:n], REFERENCES[:n])[0].interval for n in (8, 60))
    assert many[1] - many[0] < few[1] - few[0]


def test_one_sentence_or_no_bootstrap_gives_no_interval():
    for found in (
        translation_scores(HYPOTHESES[:1], REFERENCES[:1]),
        translation_scores(HYPOTHESES, REFERENCES, bootstrap=False),
    ):
        assert [score.interval for score in found] == [None, None, None]
        assert all("bs:" not in score.signature for score in found)
    assert translation_scores(REFERENCES[:1], REFERENCES[:1])[0].value == pytest.approx(100)


def test_a_perfect_translation_scores_100():
    for score in translation_scores(REFERENCES, REFERENCES):
        assert score.value == pytest.approx(100)
        assert score.interval == pytest.approx((100, 100))
    assert bleu(REFERENCES, REFERENCES) == pytest.approx(100)


def test_empty_and_wrong_translations_score_nothing():
    for hypotheses in ([""] * len(REFERENCES), ["0 1 2 3 4 5"] * len(REFERENCES)):
        for score in translation_scores(hypotheses, REFERENCES, bootstrap=False):
            assert score.value < 1


def test_a_score_becomes_json(scores):
    tree = json.loads(json.dumps(scores["bleu"].to_json()))
    assert tree == {
        "name": "bleu",
        "value": scores["bleu"].value,
        "interval": list(scores["bleu"].interval),
        "signature": scores["bleu"].signature,
    }


def test_scores_of_which_some_samples_are_nothing_have_no_interval_but_are_given():
    """sacreBLEU's bootstrap fails on these."""
    scores = {
        score.name: score for score in translation_scores(["x", "Das"], ["Das Haus ist gut .", "Ein Hund schläft ."])
    }
    assert scores["chrf"].value > 0
    assert scores["chrf"].interval is None
    assert "bs:" not in scores["chrf"].signature


def test_no_interval_is_beyond_the_scale():
    lines = ["the cat sat on the mat today"] * 5 + ["a dog ran over the long green field"] * 5
    for score in translation_scores([*lines[:-1], "a dog ran over a long green field"], lines):
        assert score.interval is not None and 0 <= score.interval[0] <= score.value <= score.interval[1] <= 100


def test_references_read_beforehand_give_what_sacrebleu_gives():
    scores = {score.name: score for score in TranslationScorer(REFERENCES).scores(HYPOTHESES)}
    for name, metric in {
        "bleu": sacrebleu.BLEU(),
        "bleu_lowercase": sacrebleu.BLEU(lowercase=True),
        "chrf": sacrebleu.CHRF(),
    }.items():
        expected = metric.corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=1000)
        assert scores[name].value == expected.score
        assert scores[name].signature == str(metric.get_signature())
        low, high = scores[name].interval
        assert (low + high) / 2 == pytest.approx(expected._mean) and high - low == pytest.approx(2 * expected._ci)


def test_a_scorer_can_be_asked_again():
    scorer = TranslationScorer(REFERENCES)
    first = scorer.scores(HYPOTHESES)
    assert [score.value for score in scorer.scores(REFERENCES)] == pytest.approx([100] * 3)
    assert scorer.scores(HYPOTHESES) == first


def test_of_answers_in_a_word_it_is_also_told_how_many_are_right():
    answers = ["kitchen", "attic", "nobody knows", "garden"]
    scores = {
        score.name: score for score in TranslationScorer(answers).scores(["kitchen", "attic", "garden", "garden"])
    }
    assert scores["exact"].value == 75.0 and scores["exact"].interval[0] < 75.0 < scores["exact"].interval[1]
    assert "exact" not in {score.name for score in TranslationScorer(REFERENCES).scores(HYPOTHESES)}
