"""The figure of a confusion matrix."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import image

from regard.explain.confusion import draw_confusion


@pytest.mark.parametrize("classes", [2, 6, 20, 47])
def test_a_picture_is_drawn_for_few_and_many_classes(tmp_path, classes):
    counts = np.eye(classes, dtype=np.int64) * 30 + 1
    path = tmp_path / "new" / "confusion.png"
    draw_confusion(counts, [f"class {n}" for n in range(classes)], path)
    high, wide, _ = image.imread(path).shape
    assert 400 < high < 2600
    assert 400 < wide < 2600


def test_the_darkest_cell_is_the_largest_share_of_its_row_not_the_largest_count(tmp_path):
    path = tmp_path / "confusion.png"
    draw_confusion([[3, 0], [500, 500]], ["a", "b"], path)
    red_HW = image.imread(path)[..., 0]
    darkest_HW = (red_HW > 0.02) & (red_HW < 0.05)  # the darkest of the colours has a red of 0.031
    high, wide = (size // 2 for size in red_HW.shape)
    assert darkest_HW[:high, :wide].sum() > 20_000
    assert darkest_HW[high:, :wide].sum() < 2_000


def test_cells_have_numbers_in_up_to_20_classes_and_not_in_more(tmp_path, saved_figures):
    for classes, numbers in ((20, 20), (21, 0)):
        draw_confusion(np.eye(classes, dtype=np.int64) * 3, [""] * classes, tmp_path / "confusion.png")
        texts = [text.get_text() for text in saved_figures[-1].axes[0].texts]
        assert texts == ["3\n100.0%"] * numbers


def test_a_class_without_examples_is_an_empty_row(tmp_path):
    draw_confusion([[4, 1], [0, 0]], ["a", "b"], tmp_path / "confusion.png")
    assert (tmp_path / "confusion.png").stat().st_size > 5_000
