"""Metrics: the scores of an evaluation; and those of translations, by sacreBLEU with its signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

BOOTSTRAP_SAMPLES = 1000
TRANSLATION_METRICS: dict[str, Callable[[], Any]] = {
    "bleu": BLEU,
    "bleu_lowercase": lambda: BLEU(lowercase=True),
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


def translation_scores(hypotheses: Sequence[str], references: Sequence[str], bootstrap: bool = True) -> list[Score]:
    """BLEU cased and lower-cased (13a), and chrF."""
    scores = []
    for name, make in TRANSLATION_METRICS.items():
        metric = make()
        # One sentence cannot be resampled.
        samples = BOOTSTRAP_SAMPLES if bootstrap and len(hypotheses) > 1 else 1
        try:
            result = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=samples)
            interval = _around(result._mean, result._ci) if samples > 1 else None
        except TypeError:  # sacreBLEU cannot average when some samples score nothing at all
            metric = make()
            result, interval = metric.corpus_score(list(hypotheses), [list(references)]), None
        scores.append(Score(name, float(result.score), interval, str(metric.get_signature())))
    return scores


def _around(mean: float, half_width: float) -> tuple[float, float]:
    """sacreBLEU gives the same to both sides; no score is beyond 0 or 100."""
    return max(0.0, float(mean - half_width)), min(100.0, float(mean + half_width))


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Cased BLEU (13a), for validation."""
    return float(BLEU().corpus_score(list(hypotheses), [list(references)]).score)
