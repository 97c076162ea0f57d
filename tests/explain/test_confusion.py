"""The picture of a confusion matrix."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import image
from matplotlib import pyplot as plt

from regard.explain.confusion import draw_confusion


def ink(path) -> int:
    """How many pixels are nearly black: the frame and all that is written."""
    return int((image.imread(path)[..., :3].max(axis=-1) < 0.2).sum())


@pytest.mark.parametrize("classes", [2, 6, 20, 47])
def test_a_picture_is_drawn_for_few_and_many_classes_and_no_figure_stays_open(tmp_path, classes):
    counts = np.eye(classes, dtype=np.int64) * 30 + 1
    path = tmp_path / "new" / "confusion.png"
    draw_confusion(counts, [f"class {n}" for n in range(classes)], path)
    high, wide, _ = image.imread(path).shape
    assert 400 < high < 2600
    assert 400 < wide < 2600
    assert not plt.get_fignums()


def test_the_darkest_cell_is_the_largest_share_of_its_row_not_the_largest_count(tmp_path):
    path = tmp_path / "confusion.png"
    draw_confusion([[3, 0], [500, 500]], ["a", "b"], path)
    red_HW = image.imread(path)[..., 0]
    darkest_HW = (red_HW > 0.02) & (red_HW < 0.05)  # the darkest of the colours has a red of 0.031
    high, wide = (size // 2 for size in red_HW.shape)
    assert darkest_HW[:high, :wide].sum() > 20_000
    assert darkest_HW[high:, :wide].sum() < 2_000


def test_cells_are_written_in_up_to_20_classes_and_not_in_more(tmp_path):
    growth = {}
    for classes in (20, 21):
        labels = [""] * classes
        draw_confusion(np.eye(classes, dtype=np.int64), labels, tmp_path / "few.png")
        # 1 off the diagonal is a light cell: what it adds in black is what is written there.
        draw_confusion(np.eye(classes, dtype=np.int64) * 50 + 1, labels, tmp_path / "all.png")
        growth[classes] = ink(tmp_path / "all.png") - ink(tmp_path / "few.png")
    assert growth[20] > 20_000
    assert abs(growth[21]) < 2_000


def test_a_class_without_examples_is_an_empty_row(tmp_path):
    draw_confusion([[4, 1], [0, 0]], ["a", "b"], tmp_path / "confusion.png")
    assert (tmp_path / "confusion.png").stat().st_size > 5_000
