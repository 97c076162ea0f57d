"""Scores of a classifier, from the ids of the true and the predicted labels, in percent.

    precision = right / predicted as such      recall = right / truly such      F1 = their harmonic mean

Macro F1 is the mean F1 of the classes that occur, so that a rare class counts as much as a frequent one.
scikit-learn is imported inside the functions that need it: it takes a second.

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
    """The scores of a classifier on one set of examples."""

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


def guesses(probabilities_NC: NDArray[np.float32], labels: Sequence[str]) -> list[Guess]:
    """The guess for each example, by the names of the classes."""
    guessed = []
    for p_C in probabilities_NC:
        ordered = [(labels[n], float(p_C[n])) for n in np.argsort(-p_C, kind="stable")]
        guessed.append(Guess(*ordered[0], ordered))
    return guessed


@dataclass(frozen=True)
class Baseline:
    """A simpler classifier: its scores in percent, the seconds to train and test it, and its number of features."""

    name: str
    accuracy: float
    macro_f1: float
    seconds: float
    features: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def baseline_notes(title: str, baselines: Sequence[Baseline], report: ClassReport) -> list[str]:
    """What simpler classifiers reach, as lines for people."""
    own = report.accuracy.value
    return ["", title] + [
        f"  {baseline.name:<28} accuracy {baseline.accuracy:6.2f}   macro_f1 {baseline.macro_f1:6.2f}   "
        f"({own - baseline.accuracy:+.2f} for this run)"
        for baseline in baselines
    ]


def class_report(true_N: ArrayLike, predicted_N: ArrayLike, labels: Sequence[str]) -> ClassReport:
    """Accuracy, macro F1 and the scores of each class; label id n is `labels[n]`."""
    true_N, predicted_N = np.asarray(true_N, np.int64), np.asarray(predicted_N, np.int64)
    total = len(true_N)
    if not total:
        raise RegardError(
            "There is nothing to score.", "The data has no example.", "Check the file, or raise data.held_out."
        )
    from sklearn.metrics import precision_recall_fscore_support

    scores_4C = precision_recall_fscore_support(
        true_N, predicted_N, labels=np.arange(len(labels)), average=None, zero_division=0
    )
    occurring = len(np.union1d(true_N, predicted_N))
    return ClassReport(
        share_score("accuracy", int((true_N == predicted_N).sum()), total),
        Score("macro_f1", macro_f1(true_N, predicted_N), None, f"n:{total}|classes:{occurring}"),
        tuple(
            ClassScore(label, 100 * float(precision), 100 * float(recall), 100 * float(f1), int(count))
            for label, precision, recall, f1, count in zip(labels, *scores_4C, strict=True)
        ),
        confusion(true_N, predicted_N, len(labels)),
    )


def class_metrics(true_N: NDArray[np.int64], probabilities_NC: NDArray[np.float32]) -> dict[str, float]:
    """The mean loss in nats, and the accuracy in percent."""
    right_N = probabilities_NC[np.arange(len(true_N)), true_N]
    loss = float(-np.log(np.maximum(right_N, 1e-30)).mean())
    return {"loss": loss, "accuracy": accuracy(true_N, probabilities_NC.argmax(-1))}


def accuracy(true_N: ArrayLike, predicted_N: ArrayLike) -> float:
    """The share of right predictions, in percent."""
    return 100 * float(np.mean(np.asarray(true_N) == np.asarray(predicted_N)))


def top_accuracy(true_N: ArrayLike, probabilities_NC: ArrayLike, top: int) -> float:
    """The share of examples whose class is among the `top` likeliest of more than two, in percent."""
    from sklearn.metrics import top_k_accuracy_score

    classes = np.arange(np.shape(probabilities_NC)[1])
    return 100 * float(top_k_accuracy_score(true_N, probabilities_NC, k=top, labels=classes))


def macro_f1(true_N: ArrayLike, predicted_N: ArrayLike) -> float:
    """The mean F1 of the classes that occur, true or predicted, in percent."""
    from sklearn.metrics import f1_score

    return 100 * float(f1_score(true_N, predicted_N, average="macro", zero_division=0))


def confusion(true_N: ArrayLike, predicted_N: ArrayLike, classes: int) -> NDArray[np.int64]:
    """How many examples of each class (rows) were taken for each class (columns)."""
    from sklearn.metrics import confusion_matrix

    counts_CC: NDArray[np.int64] = confusion_matrix(true_N, predicted_N, labels=np.arange(classes))
    return counts_CC


def share_score(name: str, correct: int, total: int) -> Score:
    """The share `correct / total` in percent, with its interval."""
    low, high = wilson(correct, total)
    return Score(name, 100 * correct / total, (100 * low, 100 * high), f"n:{total}|interval:wilson95")


def wilson(correct: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share; unlike ±1.96 σ it is honest near 0 and 1."""
    from scipy.stats import binomtest

    interval = binomtest(correct, total).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)
