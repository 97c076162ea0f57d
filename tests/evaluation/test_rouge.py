"""ROUGE: what rouge-score gives for each pair, put together; and ways to summarise without a model."""

from __future__ import annotations

import random

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.scoring import BootstrapAggregator

from regard.data.samples import package_descriptions
from regard.evaluation.rouge import nearest_summaries, rouge, rouge_of_each, rouge_scores, simpler_summaries

PAIRS = package_descriptions.pairs(60, seed=3)
TEXTS, REFERENCES = [text for text, _ in PAIRS], [[summary] for _, summary in PAIRS]


def worsened(summary: str, draw: random.Random) -> str:
    return " ".join(word for word in summary.split() if draw.random() < 0.7)


SUMMARIES = [worsened(summary, random.Random(n)) for n, (_, summary) in enumerate(PAIRS)]


def directly(summary: str, reference: str) -> list[float]:
    scores = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True).score(reference, summary)
    return [100 * scores[name].fmeasure for name in ("rouge1", "rouge2", "rougeL")]


@pytest.mark.parametrize(
    ("summary", "reference", "expected"),
    [
        ("the cat sat", "the cat sat", [100, 100, 100]),
        ("the cat", "the cat sat down", [200 / 3, 50, 200 / 3]),  # P = 1, R = 1/2; pairs: P = 1, R = 1/3
        ("cats sitting", "a cat sits", [80, 200 / 3, 80]),  # stems are the same
        ("sat cat", "cat sat", [100, 0, 50]),
        ("", "cat", [0, 0, 0]),
    ],
)
def test_pairs_whose_scores_can_be_counted_by_hand(summary, reference, expected):
    [found] = rouge_of_each([summary], [[reference]]).tolist()
    assert found == pytest.approx(expected)
    assert found == pytest.approx(directly(summary, reference))


def test_the_scores_are_means_with_intervals_as_the_library_has_them():
    scores = {score.name: score for score in rouge_scores(SUMMARIES, REFERENCES)}
    assert list(scores) == ["rouge1", "rouge2", "rougel"]
    each = np.array([directly(s, r[0]) for s, r in zip(SUMMARIES, REFERENCES, strict=True)])
    assert [score.value for score in scores.values()] == pytest.approx(each.mean(0).tolist())
    assert rouge(SUMMARIES, REFERENCES) == pytest.approx({name: score.value for name, score in scores.items()})
    np.random.seed(1)
    aggregator = BootstrapAggregator(n_samples=4000)
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    for summary, [reference] in zip(SUMMARIES, REFERENCES, strict=True):
        aggregator.add_scores(scorer.score(reference, summary))
    for name, known in (("rouge1", "rouge1"), ("rouge2", "rouge2"), ("rougel", "rougeL")):
        wide = aggregator.aggregate()[known]
        expected = (100 * wide.low.fmeasure, 100 * wide.high.fmeasure)
        assert scores[name].interval == pytest.approx(expected, abs=0.8)
        assert scores[name].interval[0] < scores[name].value < scores[name].interval[1]


def test_the_signature_says_how_it_was_measured():
    signature = rouge_scores(SUMMARIES, REFERENCES)[0].signature.split("|")
    assert {"f1", "nrefs:1", "bs:1000", "stemmer:porter", "rouge-score:0.1.2"} <= set(signature)


def test_of_several_references_the_mean_counts():
    [found] = rouge_of_each(["the cat sat"], [["the cat sat", "a dog", "the cat"]]).tolist()
    assert found == pytest.approx(np.mean([directly("the cat sat", r) for r in ("the cat sat", "a dog", "the cat")], 0))


def test_one_text_has_no_interval():
    assert [score.interval for score in rouge_scores(["a"], [["a b"]])] == [None] * 3


def test_the_simpler_ways_are_what_they_say():
    train = [("Cats sleep all day.", "cats"), ("Ships sail far away.", "ships"), ("Trees grow slowly.", "trees")]
    assert nearest_summaries(train, ["They sail away by day.", "growing trees"]) == ["ships", "trees"]
    texts, references = ["One two three. Four five.", "Six seven. Eight."], [["One two"], ["Eight nine"]]
    found = {way.name: way for way in simpler_summaries(train, texts, references)}
    assert list(found) == ["first sentence", "first 2 words", "nearest training text"]
    assert found["first sentence"].rouge1 == pytest.approx((80 + 0) / 2)
    assert found["first 2 words"].rouge1 == pytest.approx((100 + 0) / 2)


def test_the_nearest_text_is_that_with_the_largest_cosine():
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.neighbors import NearestNeighbors

    train, texts = PAIRS[:40], TEXTS[40:]
    vectors = TfidfVectorizer(sublinear_tf=True).fit([text for text, _ in train])
    search = NearestNeighbors(n_neighbors=1, metric="cosine").fit(vectors.transform([text for text, _ in train]))
    expected = search.kneighbors(vectors.transform(texts), return_distance=False)[:, 0]
    assert nearest_summaries(train, texts) == [train[number][1] for number in expected]
