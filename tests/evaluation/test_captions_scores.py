"""Scores of captions, beside sacreBLEU itself, and their controls."""

from __future__ import annotations

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from regard.evaluation.captions import CaptionScorer, another_of_each, best_constant, frequent

REFERENCES = [
    ["A dog runs over the grass .", "The brown dog is running in a field ."],
    ["Two children play with a ball .", "Kids with a ball .", "Children playing outside in the sun ."],
    ["A man rides a bike down the hill .", "Someone on a bike goes down the steep hill ."],
]
CAPTIONS = ["a dog runs in a field .", "two children play with a ball .", "a man on a bike"]


def test_they_are_those_of_sacrebleu_with_all_references():
    found = {score.name: score.value for score in CaptionScorer(REFERENCES).scores(CAPTIONS, bootstrap=False)}
    streams = [[texts[at] if at < len(texts) else None for texts in REFERENCES] for at in range(3)]
    assert found["bleu4"] == pytest.approx(BLEU(lowercase=True).corpus_score(CAPTIONS, streams).score)
    assert found["bleu1"] == pytest.approx(
        BLEU(lowercase=True, max_ngram_order=1).corpus_score(CAPTIONS, streams).score
    )
    assert found["chrf"] == pytest.approx(CHRF(lowercase=True).corpus_score(CAPTIONS, streams).score)
    assert found["exact"] == pytest.approx(100 / 3)
    assert 0 < found["bleu4"] < found["bleu1"] < 100


def test_more_references_count_as_more():
    alone = CaptionScorer([texts[:1] for texts in REFERENCES])
    assert alone.bleu4(CAPTIONS) < CaptionScorer(REFERENCES).bleu4(CAPTIONS)


def test_shuffled_captions_are_those_of_other_images():
    captions = [f"image {number}" for number in range(50)]
    others = another_of_each(captions, seed=1)
    assert sorted(others) == sorted(captions)
    assert all(mine != other for mine, other in zip(captions, others, strict=True))
    assert others == another_of_each(captions, seed=1) != another_of_each(captions, seed=2)
    perfect = CaptionScorer([[caption] for caption in captions])
    assert {s.name: s.value for s in perfect.scores(captions, bootstrap=False)}["exact"] == 100
    assert {s.name: s.value for s in perfect.shuffled(captions, seed=1)}["exact_shuffled"] == 0
    assert CaptionScorer(REFERENCES[:1]).shuffled(CAPTIONS[:1], seed=1) == []


def test_the_best_constant_caption_is_better_than_any_other_that_was_tried():
    rng = np.random.default_rng(4)
    training = [
        f"a {rng.choice(['man', 'dog', 'child'])} {rng.choice(['runs', 'plays'])} in {rng.choice(['snow', 'grass'])} ."
        for _ in range(200)
    ]
    scorer = CaptionScorer([[text, training[number + 100]] for number, text in enumerate(training[:100])])
    constant = best_constant(scorer, training)
    tried = frequent(training, 50)
    assert constant.caption in tried and len(tried) == 12
    reached = {score.name: score.value for score in constant.scores}["bleu4"]
    assert reached == pytest.approx(max(scorer.bleu4([caption] * 100) for caption in tried))
