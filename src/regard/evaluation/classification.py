"""Scores of a classifier, from the ids of the true and the predicted labels, in percent.

    precision = right / predicted so      recall = right / truly so      F1 = 2 right / (predicted so + truly so)

Macro F1 is the mean F1 of the classes, so that a rare class counts as much as a frequent one.
Shapes: N examples · C classes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.errors import RegardError
from regard.evaluation.metrics import Score

NORMAL_95 = 1.959964  # 95 % of a normal distribution lies within this many standard deviations


@dataclass(frozen=True)
class ClassScore:
    """One class: precision, recall and F1 in percent, and how many examples are truly of it."""

    label: str
    precision: float
    recall: float
    f1: float
    count: int


@dataclass(frozen=True)
class ClassReport:
    """All that is known of a classifier on one set of examples."""

    accuracy: Score
    macro_f1: Score
    classes: tuple[ClassScore, ...]
    counts_CC: NDArray[np.int64]

    @property
    def scores(self) -> list[Score]:
        return [self.accuracy, self.macro_f1]

    def to_json(self) -> dict[str, Any]:
        return {
            "classes": [asdict(score) for score in self.classes],
            "confusion": self.counts_CC.tolist(),
        }


@dataclass(frozen=True)
class Guess:
    """The likeliest class of an example, and the probability of every one, likeliest first."""

    label: str
    probability: float
    all: list[tuple[str, float]]


def guesses(found_NC: NDArray[np.float32], labels: Sequence[str]) -> list[Guess]:
    """The probabilities of each example in words."""
    found = []
    for p in found_NC:
        ordered = [(labels[n], float(p[n])) for n in np.argsort(-p, kind="stable")]
        found.append(Guess(*ordered[0], ordered))
    return found


@dataclass(frozen=True)
class Baseline:
    """Something simpler: its scores in percent, the seconds to train and test it, and how many features it weighs."""

    name: str
    accuracy: float
    macro_f1: float
    seconds: float
    features: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def beside(title: str, found: Sequence[Baseline], report: ClassReport) -> list[str]:
    """What simpler classifiers reach, as lines for people."""
    own = report.accuracy.value
    return ["", title] + [
        f"  {baseline.name:<28} accuracy {baseline.accuracy:6.2f}   macro_f1 {baseline.macro_f1:6.2f}   "
        f"({own - baseline.accuracy:+.2f} for this run)"
        for baseline in found
    ]


def class_report(true_N: ArrayLike, predicted_N: ArrayLike, labels: Sequence[str]) -> ClassReport:
    """Accuracy, macro F1 and each class's own scores; label id n is `labels[n]`."""
    counts_CC = confusion(true_N, predicted_N, len(labels))
    total = int(counts_CC.sum())
    if not total:
        raise RegardError(
            "There is nothing to score.", "The data has no example.", "Check the file, or raise data.held_out."
        )
    correct = int(np.trace(counts_CC))
    precision_C, recall_C, f1_C = _precision_recall_f1(counts_CC)
    occurs_C = _occurs(counts_CC)
    return ClassReport(
        share_score("accuracy", correct, total),
        Score("macro_f1", float(f1_C[occurs_C].mean()), None, f"n:{total}|classes:{int(occurs_C.sum())}"),
        tuple(
            ClassScore(label, float(precision_C[n]), float(recall_C[n]), float(f1_C[n]), int(counts_CC[n].sum()))
            for n, label in enumerate(labels)
        ),
        counts_CC,
    )


def accuracy(true_N: ArrayLike, predicted_N: ArrayLike) -> float:
    """The share of right predictions, in percent."""
    return 100 * float(np.mean(np.asarray(true_N) == np.asarray(predicted_N)))


def top_accuracy(true_N: ArrayLike, found_NC: ArrayLike, count: int) -> float:
    """The share of examples whose class is among the `count` likeliest, in percent."""
    found, true = np.asarray(found_NC), np.asarray(true_N)
    right = found[np.arange(len(true)), true]
    return 100 * float(np.mean((found > right[:, None]).sum(-1) < count))


def macro_f1(true_N: ArrayLike, predicted_N: ArrayLike, classes: int) -> float:
    """The mean F1 of the classes that occur, true or predicted, in percent."""
    counts_CC = confusion(true_N, predicted_N, classes)
    return float(_precision_recall_f1(counts_CC)[2][_occurs(counts_CC)].mean())


def confusion(true_N: ArrayLike, predicted_N: ArrayLike, classes: int) -> NDArray[np.int64]:
    """How many examples of each class (rows) were taken for each class (columns)."""
    counts_CC = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(counts_CC, (np.asarray(true_N, dtype=np.int64), np.asarray(predicted_N, dtype=np.int64)), 1)
    return counts_CC


def share_score(name: str, correct: int, total: int) -> Score:
    """So many of so many, in percent."""
    low, high = wilson(correct, total)
    return Score(name, 100 * correct / total, (100 * low, 100 * high), f"n:{total}|interval:wilson95")


def wilson(correct: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share; unlike ±1.96 σ it is honest near 0 and 1.

    ( p + z²/2n ± z √( p (1 - p) / n + z² / 4n² ) ) / (1 + z²/n)
    """
    share, z = correct / total, NORMAL_95
    middle = share + z**2 / (2 * total)
    half = z * float(np.sqrt(share * (1 - share) / total + z**2 / (4 * total**2)))
    low, high = ((middle + side) / (1 + z**2 / total) for side in (-half, half))
    return max(0.0, low), min(1.0, high)


def _precision_recall_f1(counts_CC: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each of the three for each class, in percent [3, C]; 0 where nothing was predicted or nothing is true."""
    right_C, predicted_C, true_C = np.diag(counts_CC), counts_CC.sum(axis=0), counts_CC.sum(axis=1)
    numerator_3C = 100.0 * np.stack([right_C, right_C, 2 * right_C])
    denominator_3C = np.stack([predicted_C, true_C, predicted_C + true_C])
    return np.divide(numerator_3C, denominator_3C, out=np.zeros_like(numerator_3C), where=denominator_3C > 0)


def _occurs(counts_CC: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether a class is among the true or the predicted ones; the F1 of another is not defined."""
    return (counts_CC.sum(axis=0) + counts_CC.sum(axis=1)) > 0
