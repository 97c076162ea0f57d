"""Names of metrics."""

import pytest

from regard.metrics import display_name


@pytest.mark.parametrize(
    ("metric", "title"),
    [
        ("loss", "loss"),
        ("bits_per_byte", "bits per byte"),
        ("bleu_lowercase", "BLEU lowercase"),
        ("macro_f1", "macro F1"),
    ],
)
def test_a_title_has_words_and_acronyms(metric, title):
    assert display_name(metric) == title
