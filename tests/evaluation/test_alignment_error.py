"""Alignment error rate: by hand, and as it was published."""

from pathlib import Path

import pytest

from regard.errors import RegardError
from regard.evaluation.alignment import Gold, read_gold, score_alignment


def gold(sure, possible=()) -> Gold:
    return Gold(frozenset(sure), frozenset(sure) | frozenset(possible))


def test_a_hand_made_example():
    """Of 4 links 3 are possible and 2 sure; 3 are sure in all: 1 − (3 + 2) / (4 + 3)."""
    right = gold({(0, 0), (1, 1), (2, 3)}, {(1, 2)})
    found = frozenset({(0, 0), (1, 1), (1, 2), (3, 3)})
    score = score_alignment([found], [right])
    assert score.aer == pytest.approx(100 * (1 - 5 / 7))
    assert score.precision == pytest.approx(75.0)
    assert score.recall == pytest.approx(100 * 2 / 3)
    assert score.links == 4


def test_it_is_over_the_corpus_and_not_a_mean_of_sentences():
    rights = [gold({(0, 0)}), gold({(0, 0), (1, 1), (2, 2)})]
    found = [frozenset({(0, 1)}), frozenset({(0, 0), (1, 1), (2, 2)})]
    assert score_alignment(found, rights).aer == pytest.approx(100 * (1 - (3 + 3) / (4 + 4)))


def test_where_all_possible_links_are_sure_it_is_one_minus_f1():
    found = frozenset({(0, 0), (1, 2), (2, 2), (4, 4)})
    score = score_alignment([found], [gold({(0, 0), (2, 2), (3, 3)})])
    precision, recall = 2 / 4, 2 / 3
    assert score.aer == pytest.approx(100 * (1 - 2 * precision * recall / (precision + recall)))


def test_nothing_found_is_all_wrong_and_only_sure_links_count_as_missed():
    assert score_alignment([frozenset()], [gold({(0, 0)})]).aer == 100.0
    right = gold({(0, 0)}, {(1, 1), (2, 2)})
    assert score_alignment([right.sure], [right]).aer == score_alignment([right.possible], [right]).aer == 0.0


def test_links_are_read_a_line_for_each_sentence(tmp_path: Path):
    file = tmp_path / "links"
    file.write_text("2-1 1p3 \n\n3-3\n")
    found = read_gold(file, [(2, 3), (1, 1), (3, 3)])
    assert found == [gold({(1, 0)}, {(0, 2)}), gold(set()), gold({(2, 2)})]
    assert read_gold(file, [(3, 2), (1, 1), (3, 3)], swapped=True)[0] == gold({(0, 1)}, {(2, 0)})
    assert read_gold(file, [(3, 4), (1, 1), (4, 4)], first=0)[0] == gold({(2, 1)}, {(1, 3)})


def test_links_are_read_a_line_for_each_link(tmp_path: Path):
    file = tmp_path / "links"
    file.write_text("0001 2 1 S\n1 1 3 P\n3 3 3\n")
    assert read_gold(file, [(2, 3), (1, 1), (3, 3)]) == [
        gold({(1, 0)}, {(0, 2)}),
        gold(set()),
        gold({(2, 2)}),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1-1\n", "1 lines for 2 pairs"),
        ("\n\n", "has no links"),
        ("1-1\n0-1\n", "leads to no word"),
        ("1-1\n1-9\n", "leads to no word"),
        ("1-1\n1=1\n", "is no list of links"),
        ("1 1 1 S\n7 1 1 S\n", "leads to no word"),
    ],
)
def test_mistakes_in_links_are_named(tmp_path: Path, text, told):
    file = tmp_path / "links"
    file.write_text(text)
    with pytest.raises(RegardError, match=told):
        read_gold(file, [(2, 2), (2, 2)])
    with pytest.raises(RegardError, match="Cannot read"):
        read_gold(tmp_path / "none", [(2, 2)])
