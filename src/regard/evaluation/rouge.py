"""ROUGE of summaries, by the rouge-score library; and what simpler ways of summarising reach.

    F1 = 2 · precision · recall / (precision + recall)     of words (1), pairs of words (2), the longest common
                                                           subsequence (L), shared by a summary and its reference

A text with several references has the mean over all of them. rouge-score and scikit-learn are imported inside the
functions that need them.

Shapes: N texts · S bootstrap samples · M = 3 metrics
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.pairs import Pair
from regard.data.sentences import split_sentences
from regard.evaluation.metrics import BOOTSTRAP_SAMPLES, Score

METRICS = {"rouge1": "rouge1", "rouge2": "rouge2", "rougel": "rougeL"}  # our name → the library's
SEED = 12345  # of the bootstrap, as sacreBLEU has it
AT_ONCE = 1_000  # texts whose neighbours are looked for together


def rouge_of_each(summaries: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """The three F1 of each summary, in percent: [N, M]."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(list(METRICS.values()), use_stemmer=True)

    def f1(reference: str, summary: str) -> list[float]:
        scores = scorer.score(reference, summary)
        return [100 * scores[name].fmeasure for name in METRICS.values()]

    pairs = zip(summaries, references, strict=True)
    each = [np.mean([f1(reference, summary) for reference in several], axis=0) for summary, several in pairs]
    return np.array(each).reshape(-1, len(METRICS))


def rouge(summaries: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """The means, for validation."""
    return dict(zip(METRICS, rouge_of_each(summaries, references).mean(0).tolist(), strict=True))


def rouge_scores(summaries: Sequence[str], references: Sequence[Sequence[str]]) -> list[Score]:
    """The means with their 95 % intervals: the middle of the means of texts drawn again with replacement."""
    scores_NM = rouge_of_each(summaries, references)
    count, most = len(scores_NM), max(map(len, references), default=1)
    intervals: list[tuple[float, float] | None] = [None] * len(METRICS)
    if count > 1:
        drawn_SN = np.random.default_rng(SEED).integers(count, size=(BOOTSTRAP_SAMPLES, count))
        means_SM = np.stack([scores_NM[rows_N].mean(0) for rows_N in drawn_SN])
        low_M, high_M = np.percentile(means_SM, [2.5, 97.5], axis=0)
        intervals = [(float(low), float(high)) for low, high in zip(low_M, high_M, strict=True)]
    signature = (
        f"f1|nrefs:{most}|bs:{BOOTSTRAP_SAMPLES}|seed:{SEED}|stemmer:porter|rouge-score:{version('rouge-score')}"
    )
    means = scores_NM.mean(0).tolist()
    return [Score(*scored, signature) for scored in zip(METRICS, means, intervals, strict=True)]


# ---------------------------------------------------------------- simpler ways


@dataclass(frozen=True)
class SimplerSummaries:
    """A way to summarise without a model, and its scores."""

    name: str
    rouge1: float
    rouge2: float
    rougel: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def simpler_summaries(
    train: Sequence[Pair], texts: Sequence[str], references: Sequence[Sequence[str]]
) -> list[SimplerSummaries]:
    """The first sentence, the first words, and the summary of the training text that is most alike."""
    words = max(1, round(float(np.mean([len(reference.split()) for several in references for reference in several]))))
    ways = {
        "first sentence": [(split_sentences(text) or [""])[0] for text in texts],
        f"first {words} words": [" ".join(text.split()[:words]) for text in texts],
        "nearest training text": nearest_summaries(train, texts),
    }
    return [SimplerSummaries(name, **rouge(summaries, references)) for name, summaries in ways.items()]


def nearest_summaries(train: Sequence[Pair], texts: Sequence[str]) -> list[str]:
    """For each text the summary of the training text with the nearest TF-IDF vector."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(sublinear_tf=True)
    try:
        train_vectors = vectors.fit_transform([text for text, _ in train])
    except ValueError:  # not a single word
        return [train[0][1]] * len(texts)
    nearest: list[int] = []
    for first in range(0, len(texts), AT_ONCE):
        # Rows have length 1, so the product is the cosine.
        alike = vectors.transform(texts[first : first + AT_ONCE]) @ train_vectors.T
        nearest += np.asarray(alike.argmax(axis=1)).ravel().tolist()
    return [train[number][1] for number in nearest]


def simpler_notes(simpler: Sequence[SimplerSummaries], own: float) -> list[str]:
    """What simpler ways reach, as lines for people. `own`: ROUGE-1 of the run."""
    return ["", "Without a model, on the same texts:"] + [
        f"  {way.name:<28} rouge1 {way.rouge1:6.2f}   rouge2 {way.rouge2:6.2f}   rougel {way.rougel:6.2f}   "
        f"({own - way.rouge1:+.2f} rouge1 for this run)"
        for way in simpler
    ]
