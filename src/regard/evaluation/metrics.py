"""Metrics: the scores of an evaluation; and those of translations, by sacreBLEU with its signatures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

BOOTSTRAP_SAMPLES = 1000
SHORT = 3  # words of a reference, on average
TRANSLATION_METRICS: dict[str, Callable[..., Any]] = {
    "bleu": BLEU,
    "bleu_lowercase": partial(BLEU, lowercase=True),
    "chrf": CHRF,
}


@dataclass(frozen=True)
class Score:
    """The value of a metric, and the interval in which it lies with another test set of the same kind (95 %)."""

    name: str
    value: float
    interval: tuple[float, float] | None  # lowest and highest
    signature: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation: the scores, over how many of what, and whatever else the task has to say."""

    scores: list[Score]
    count: int
    unit: str  # what is counted: "sentences", "images", …
    outputs: list[str] = field(default_factory=list)  # what the model made of each sample
    details: dict[str, Any] = field(default_factory=dict)  # for scripts
    notes: list[str] = field(default_factory=list)  # for people: whole lines

    @property
    def metrics(self) -> dict[str, float]:
        return {score.name: score.value for score in self.scores}


class TextScorer:
    """Metrics of sacreBLEU by name, against references that are read while texts are written.

    Each of the `streams` has a reference for every text; None where a text has no more.
    """

    def __init__(self, streams: Sequence[Sequence[str | None]], metrics: Mapping[str, Callable[..., Any]]):
        self.streams, self.metrics = [list(stream) for stream in streams], metrics
        pool = ThreadPoolExecutor(1)
        self._metrics = pool.submit(self._read)
        pool.shutdown(wait=False)

    def _read(self) -> dict[str, Any]:
        """Without references sacreBLEU has nothing to read."""
        given = {"references": self.streams} if any(self.streams) else {}
        return {name: make(**given) for name, make in self.metrics.items()}

    def scores(self, hypotheses: Sequence[str], bootstrap: bool = True) -> list[Score]:
        scores = []
        for name, metric in self._metrics.result().items():
            # One sentence cannot be resampled.
            samples = BOOTSTRAP_SAMPLES if bootstrap and len(hypotheses) > 1 else 1
            try:
                result = _bootstrapped(metric, list(hypotheses), samples)
                interval = _around(result._mean, result._ci) if samples > 1 else None
            except TypeError:  # sacreBLEU cannot average when some samples score nothing at all
                metric = self.metrics[name]()
                result, interval = metric.corpus_score(list(hypotheses), self.streams), None
            scores.append(Score(name, float(result.score), interval, str(metric.get_signature())))
        return scores

    def score(self, name: str, hypotheses: Sequence[str]) -> float:
        """One of the metrics."""
        return float(self._metrics.result()[name].corpus_score(list(hypotheses), None).score)


class TranslationScorer(TextScorer):
    """BLEU cased and lower-cased (13a), and chrF; of answers in a word or two, also how many are right."""

    def __init__(self, references: Sequence[str]):
        super().__init__([references], TRANSLATION_METRICS)
        self.references = references
        # They have no phrases of four words that BLEU could count.
        self.short = sum(len(reference.split()) for reference in references) < SHORT * len(references)

    def scores(self, hypotheses: Sequence[str], bootstrap: bool = True) -> list[Score]:
        from regard.evaluation.classification import share_score

        scores = super().scores(hypotheses, bootstrap)
        if self.short and hypotheses:
            right = sum(map(str.__eq__, hypotheses, self.references))
            scores.append(share_score("exact", right, len(hypotheses)))
        return scores


def _bootstrapped(metric: Any, hypotheses: list[str], samples: int) -> Any:
    """`metric.corpus_score` with the same samples, their statistics added up in one product instead of one by one."""
    if samples == 1:
        return metric.corpus_score(hypotheses, None)
    import numpy as np

    statistics = metric._extract_corpus_statistics(hypotheses, None)
    result = metric._aggregate_and_compute(statistics)
    metric.n_bootstrap, metric.seed = samples, os.environ.get("SACREBLEU_SEED", "12345").lower()
    sums = _times_drawn(len(statistics), samples, metric.seed) @ np.array(statistics, np.float64)
    result.estimate_ci([metric._compute_score_from_stats(row) for row in sums.astype(np.float32)])
    return result


@lru_cache(1)
def _times_drawn(sentences: int, samples: int, seed: str) -> Any:
    """How often each sentence is in each sample, [samples, sentences]: the same for all metrics, as in sacreBLEU."""
    import numpy as np

    generator = np.random.default_rng(None if seed == "none" else int(seed))
    drawn = generator.choice(sentences, size=(samples, sentences), replace=True)
    drawn += sentences * np.arange(samples)[:, None]
    return np.bincount(drawn.ravel(), minlength=samples * sentences).reshape(samples, sentences).astype(np.float64)


def translation_scores(hypotheses: Sequence[str], references: Sequence[str], bootstrap: bool = True) -> list[Score]:
    return TranslationScorer(references).scores(hypotheses, bootstrap)


def _around(mean: float, half_width: float) -> tuple[float, float]:
    """sacreBLEU gives the same to both sides; no score is beyond 0 or 100."""
    return max(0.0, float(mean - half_width)), min(100.0, float(mean + half_width))


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Cased BLEU (13a), for validation: what sacreBLEU warns of, such as tokenised text, it says of the test."""
    return float(BLEU(force=True).corpus_score(list(hypotheses), [list(references)]).score)
