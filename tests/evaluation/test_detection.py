"""Average precision of hand-made cases, whose values can be told by hand."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data.boxes import Boxes
from regard.errors import RegardError
from regard.evaluation.detection import Found, average_precision

CLASSES = ["cat", "dog", "cow"]
CAT, DOG = (0.0, 0.0, 10.0, 10.0), (20.0, 20.0, 40.0, 30.0)
TRUE = Boxes(np.array([CAT, DOG, CAT], np.float32), np.array([0, 1, 0]), np.array([0, 2, 3]))  # two images
SIZES = [(50, 50), (50, 50)]


def score(*found: list[Found], true: Boxes = TRUE) -> tuple[float, float]:
    report = average_precision(true, found, SIZES, CLASSES)
    return report.ap50, report.ap


def test_all_found_is_all(capsys):
    found = [[Found("cat", 0.9, CAT), Found("dog", 0.2, DOG)], [Found("cat", 0.5, CAT)]]
    assert score(*found) == pytest.approx((100, 100))
    report = average_precision(TRUE, found, SIZES, CLASSES)
    assert [(each.label, each.count) for each in report.classes] == [("cat", 2), ("dog", 1), ("cow", 0)]
    assert report.classes[2].ap is None and report.classes[2].ap50 is None
    assert capsys.readouterr().out == ""


def test_nothing_found_is_nothing():
    assert score([], []) == (0, 0)


def test_a_wrong_class_is_wrong():
    assert score([Found("dog", 0.9, CAT), Found("cat", 0.9, DOG)], [Found("cow", 0.9, CAT)]) == (0, 0)


def test_half_of_one_class_counts_by_recall():
    # Precision is 1 up to a recall of one half: 51 of the 101 recalls from 0 to 1. Of dogs none is found.
    assert score([Found("cat", 0.9, CAT)], []) == pytest.approx((51 / 101 * 50,) * 2)


@pytest.mark.parametrize(("score_of_wrong", "expected"), [(0.1, 100.0), (0.9, 50.0)])
def test_what_is_wrong_costs_only_where_it_is_surer(score_of_wrong, expected):
    true = Boxes(np.array([DOG], np.float32), np.array([1]), np.array([0, 1, 1]))
    found = [[Found("dog", 0.5, DOG)], [Found("dog", score_of_wrong, DOG)]]
    assert score(*found, true=true) == pytest.approx((expected, expected))


def test_a_second_box_of_an_object_is_wrong():
    true = Boxes(np.array([CAT, CAT], np.float32), np.array([0, 0]), np.array([0, 1, 2]))
    found = [[Found("cat", 0.9, CAT), Found("cat", 0.8, CAT)], [Found("cat", 0.7, CAT)]]
    # Right, wrong, right: precision 1 up to one half, then 2/3.
    assert score(*found, true=true)[0] == pytest.approx(100 * (51 + 50 * 2 / 3) / 101)


def test_the_overlap_decides():
    true = Boxes(np.array([CAT], np.float32), np.array([0]), np.array([0, 1, 1]))
    # 62 % of the union: enough for 50, 55 and 60 of the ten overlaps.
    assert score([Found("cat", 0.9, (0.0, 0.0, 10.0, 6.2))], [], true=true) == pytest.approx((100, 30))


def test_without_a_true_box_there_is_nothing_to_score():
    none = Boxes(np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.array([0, 0, 0]))
    with pytest.raises(RegardError, match="nothing to score"):
        score([], [], true=none)
