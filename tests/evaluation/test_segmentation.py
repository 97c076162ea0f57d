"""Scores of masks, held against scikit-learn's."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, jaccard_score

from regard.data.mask_cache import NOTHING, MaskedImages
from regard.errors import RegardError
from regard.evaluation.segmentation import ious, mask_metrics, mask_report, mean_mask, pixel_counts


def masks(seed, classes=4, shape=(6, 9, 7)):
    return np.random.default_rng(seed).integers(0, classes, shape).astype(np.uint8)


@pytest.fixture
def pair():
    """True and guessed masks that agree here and there; some pixels count for nothing."""
    true, guessed = masks(1), masks(2)
    guessed = np.where(masks(3) > 0, true, guessed)
    true[masks(4) == 0] = NOTHING
    return true, guessed


def test_scores_are_those_of_scikit_learn(pair):
    true, guessed = pair
    real = true != NOTHING
    counts = pixel_counts(true, guessed, 4)
    np.testing.assert_array_equal(counts.sum(0), confusion_matrix(true[real], guessed[real], labels=range(4)))
    for image in range(len(true)):
        its = real[image]
        expected = confusion_matrix(true[image][its], guessed[image][its], labels=range(4))
        np.testing.assert_array_equal(counts[image], expected)
    report = mask_report(counts, list("abcd"))
    of_each = jaccard_score(true[real], guessed[real], average=None)
    np.testing.assert_allclose([each.iou for each in report.classes], 100 * of_each)
    metrics = mask_metrics(counts, 0.5)
    assert metrics["miou"] == pytest.approx(100 * jaccard_score(true[real], guessed[real], average="macro"))
    assert metrics["accuracy"] == pytest.approx(100 * accuracy_score(true[real], guessed[real]))
    assert {score.name: score.value for score in report.scores} == {k: v for k, v in metrics.items() if k != "loss"}


def test_a_class_that_does_not_occur_is_not_counted():
    true, guessed = masks(1, classes=2), masks(2, classes=2)
    counts = pixel_counts(true, guessed, 5).sum(0)
    assert np.isnan(ious(counts)[2:]).all()
    report = mask_report(counts[None], list("abcde"))
    assert [each.iou is None for each in report.classes] == [False, False, True, True, True]
    assert report.scores[0].value == pytest.approx(100 * jaccard_score(true.ravel(), guessed.ravel(), average="macro"))
    assert "–" in report.table()[-1] and len(report.table()) == 6


def test_intervals_hold_the_value_and_shrink_with_more_images(pair):
    true, guessed = pair
    few = mask_report(pixel_counts(true, guessed, 4), list("abcd")).scores
    many = mask_report(pixel_counts(np.tile(true, (20, 1, 1)), np.tile(guessed, (20, 1, 1)), 4), list("abcd")).scores
    for one, other in zip(few, many, strict=True):
        assert one.interval[0] < one.value < one.interval[1]
        assert other.interval[1] - other.interval[0] < 0.5 * (one.interval[1] - one.interval[0])


def test_nothing_to_score_is_an_error():
    with pytest.raises(RegardError, match="nothing to score"):
        mask_report(np.zeros((3, 2, 2), np.int64), ["a", "b"])


def test_the_mean_mask_is_the_most_frequent_class_of_every_place():
    numbers = masks(5, classes=3, shape=(31, 4, 6)) * 10  # 0, 10 and 20 in the files
    class_of = np.full(256, NOTHING, np.uint8)
    class_of[[0, 10]] = [0, 1]  # 20 counts for nothing
    nothing = np.zeros(31, np.int64)
    images = MaskedImages(np.zeros((31, 4, 6, 1), np.uint8), nothing, [""] * 31, masks_NHW=numbers, class_of_V=class_of)
    found = mean_mask(images, 2)
    for y in range(4):
        for x in range(6):
            counts = [(numbers[:, y, x] == value).sum() for value in (0, 10)]
            assert counts[found[y, x]] == max(counts)
