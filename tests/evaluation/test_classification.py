"""Scores of a classifier: the same as counted here by hand, and an interval that holds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from regard.errors import RegardError
from regard.evaluation.classification import (
    accuracy,
    class_report,
    confusion,
    macro_f1,
    top_accuracy,
    wilson,
)


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


def percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


@pytest.mark.parametrize("case", CASES)
def test_the_scores_equal_those_counted_by_hand(case):
    classes = CASES[case][0]
    true_N, predicted_N = drawn(3, *CASES[case])
    report = class_report(true_N, predicted_N, [f"c{n}" for n in range(classes)])
    expected_f1 = []
    for n, score in enumerate(report.classes):
        true, predicted = true_N == n, predicted_N == n
        right = int((true & predicted).sum())
        f1 = percent(2 * right, int(true.sum() + predicted.sum()))
        expected = percent(right, int(predicted.sum())), percent(right, int(true.sum())), f1
        assert (score.precision, score.recall, score.f1) == pytest.approx(expected)
        assert (score.label, score.count) == (f"c{n}", true.sum())
        if true.any() or predicted.any():
            expected_f1.append(f1)
    right = percent(int((true_N == predicted_N).sum()), len(true_N))
    assert (report.accuracy.value, accuracy(true_N, predicted_N)) == pytest.approx((right, right))
    assert report.macro_f1.value == macro_f1(true_N, predicted_N) == pytest.approx(np.mean(expected_f1))
    for (row, column), count in np.ndenumerate(report.counts_CC):
        assert count == ((true_N == row) & (predicted_N == column)).sum()


def test_top_accuracy_counts_the_likeliest_classes():
    probabilities_NC = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.6, 0.3, 0.1]])
    assert top_accuracy([0, 1, 2], probabilities_NC, 1) == pytest.approx(100 / 3)
    assert top_accuracy([0, 1, 2], probabilities_NC, 2) == pytest.approx(200 / 3)


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
        p, z = correct / total, 1.959964
        middle, half = p + z**2 / (2 * total), z * (p * (1 - p) / total + z**2 / (4 * total**2)) ** 0.5
        expected = [(middle + side) / (1 + z**2 / total) for side in (-half, half)]
        assert wilson(correct, total) == pytest.approx(expected, abs=1e-6)


def test_the_report_becomes_json():
    tree = json.loads(json.dumps(class_report([0, 1, 1], [0, 1, 0], ["a", "b"]).to_json()))
    assert tree["confusion"] == [[1, 0], [1, 1]]
    assert tree["classes"][1] == pytest.approx(
        {"label": "b", "precision": 100.0, "recall": 50.0, "f1": 200 / 3, "count": 2}
    )


def test_nothing_to_score_is_an_error():
    with pytest.raises(RegardError, match="nothing to score"):
        class_report([], [], ["a", "b"])
