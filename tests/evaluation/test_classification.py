"""Scores of a classifier: the same as scikit-learn's, and an interval that holds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, precision_recall_fscore_support

from regard.errors import RegardError
from regard.evaluation.classification import accuracy, class_report, confusion, macro_f1, wilson


def drawn(seed: int, classes: int, true_of: int, predicted_of: int) -> tuple[np.ndarray, np.ndarray]:
    """Random ids, right about half the time, where they may be; ids from `..._of` on never occur."""
    draw = np.random.default_rng(seed)
    true_N, guess_N = draw.integers(0, true_of, 300), draw.integers(0, predicted_of, 300)
    return true_N, np.where((draw.random(300) < 0.5) & (true_N < predicted_of), true_N, guess_N)


CASES = {
    "all classes occur": (5, 5, 5),
    "some are never predicted": (5, 5, 3),
    "some are never true": (5, 3, 5),
    "some never occur": (7, 4, 5),
    "two classes": (2, 2, 2),
    "many classes": (47, 47, 40),
}


@pytest.mark.parametrize("case", CASES)
def test_the_scores_equal_scikit_learns(case):
    classes = CASES[case][0]
    true_N, predicted_N = drawn(3, *CASES[case])
    assert accuracy(true_N, predicted_N) == pytest.approx(100 * accuracy_score(true_N, predicted_N))
    expected = 100 * f1_score(true_N, predicted_N, average="macro", zero_division=0)
    assert macro_f1(true_N, predicted_N, classes) == pytest.approx(expected)
    ids = np.arange(classes)
    assert (confusion(true_N, predicted_N, classes) == confusion_matrix(true_N, predicted_N, labels=ids)).all()


@pytest.mark.parametrize("case", CASES)
def test_the_scores_of_each_class_equal_scikit_learns(case):
    classes = CASES[case][0]
    true_N, predicted_N = drawn(4, *CASES[case])
    report = class_report(true_N, predicted_N, [f"c{n}" for n in range(classes)])
    expected = precision_recall_fscore_support(true_N, predicted_N, labels=np.arange(classes), zero_division=0)
    for n, score in enumerate(report.classes):
        assert score.label == f"c{n}"
        assert [score.precision, score.recall, score.f1] == pytest.approx([100 * part[n] for part in expected[:3]])
        assert score.count == expected[3][n]
    assert report.accuracy.value == pytest.approx(accuracy(true_N, predicted_N))
    assert report.macro_f1.value == pytest.approx(macro_f1(true_N, predicted_N, classes))


def test_the_counts_are_true_by_predicted():
    assert confusion([0, 0, 1], [1, 1, 0], 2).tolist() == [[0, 2], [1, 0]]


def test_the_scores_are_named_and_say_how_they_were_measured():
    report = class_report([0, 1, 2, 2], [0, 1, 2, 1], ["a", "b", "c", "never"])
    assert [score.name for score in report.scores] == ["accuracy", "macro_f1"]
    assert report.accuracy.value == 75
    assert report.accuracy.signature == "n:4|interval:wilson95"
    assert report.macro_f1.signature == "n:4|classes:3"
    assert report.macro_f1.interval is None


def test_the_interval_is_wilsons():
    """Newcombe, 1998, table I: 81 of 263 gives 0.2553 to 0.3662; 0 of 20 gives 0 to 0.1611."""
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson(0, 20) == pytest.approx((0, 0.1611), abs=1e-4)
    assert class_report([0] * 20, [1] * 20, ["a", "b"]).accuracy.interval == pytest.approx((0, 16.11), abs=1e-2)
    for correct, total in ((601, 606), (606, 606), (1, 3)):
        theirs = stats.binomtest(correct, total).proportion_ci(method="wilson")
        assert wilson(correct, total) == pytest.approx((theirs.low, theirs.high), abs=1e-6)


def test_the_report_becomes_json():
    tree = json.loads(json.dumps(class_report([0, 1, 1], [0, 1, 0], ["a", "b"]).to_json()))
    assert tree["confusion"] == [[1, 0], [1, 1]]
    assert tree["classes"][1] == pytest.approx(
        {"label": "b", "precision": 100.0, "recall": 50.0, "f1": 200 / 3, "count": 2}
    )


def test_nothing_to_score_is_an_error():
    with pytest.raises(RegardError, match="nothing to score"):
        class_report([], [], ["a", "b"])
