"""Metrics: the scores of an evaluation; and those of translations, by sacreBLEU with its signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

BOOTSTRAP_SAMPLES = 1000
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


class TranslationScorer:
    """BLEU cased and lower-cased (13a), and chrF, against references that are read while translations are made."""

    def __init__(self, references: Sequence[str]):
        self.references = list(references)
        pool = ThreadPoolExecutor(1)
        self._metrics = pool.submit(self._read)
        pool.shutdown(wait=False)

    def _read(self) -> dict[str, Any]:
        """Without references sacreBLEU has nothing to read."""
        given = {"references": [self.references]} if self.references else {}
        return {name: make(**given) for name, make in TRANSLATION_METRICS.items()}

    def scores(self, hypotheses: Sequence[str], bootstrap: bool = True) -> list[Score]:
        scores = []
        for name, metric in self._metrics.result().items():
            # One sentence cannot be resampled.
            samples = BOOTSTRAP_SAMPLES if bootstrap and len(hypotheses) > 1 else 1
            try:
                result = metric.corpus_score(list(hypotheses), None, n_bootstrap=samples)
                interval = _around(result._mean, result._ci) if samples > 1 else None
            except TypeError:  # sacreBLEU cannot average when some samples score nothing at all
                metric = TRANSLATION_METRICS[name]()
                result, interval = metric.corpus_score(list(hypotheses), [self.references]), None
            scores.append(Score(name, float(result.score), interval, str(metric.get_signature())))
        return scores


def translation_scores(hypotheses: Sequence[str], references: Sequence[str], bootstrap: bool = True) -> list[Score]:
    return TranslationScorer(references).scores(hypotheses, bootstrap)


def _around(mean: float, half_width: float) -> tuple[float, float]:
    """sacreBLEU gives the same to both sides; no score is beyond 0 or 100."""
    return max(0.0, float(mean - half_width)), min(100.0, float(mean + half_width))


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Cased BLEU (13a), for validation."""
    return float(BLEU().corpus_score(list(hypotheses), [list(references)]).score)
