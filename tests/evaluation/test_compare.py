"""The statistics of a comparison, against scipy; the table and what is said of each pair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from regard.evaluation.compare import Outcome, TrainedVariant, compare, comparison_table, half_width, welch
from regard.explain.comparison import draw_comparison
from regard.tables import markdown_table, text_table

TRANSLATION = ("bleu", "chrf")


def trained(name: str, *scores: float, metric: str = "bleu", failed: dict[int, str] | None = None) -> TrainedVariant:
    outcomes = [
        Outcome(Path(name), seed, {metric: score}, 1000 * seed, 10, 2.0, 2**20 * seed, 500.0)
        for seed, score in enumerate(scores, 1)
    ]
    return TrainedVariant(name, [f"model.width={name}"], outcomes, failed or {})


@pytest.mark.parametrize("count", [2, 3, 5, 30])
def test_the_interval_is_students(count: int):
    values = np.random.default_rng(count).normal(30, 2, count).tolist()
    low, high = stats.t.interval(0.95, count - 1, loc=np.mean(values), scale=stats.sem(values))
    assert half_width(values) == pytest.approx((high - low) / 2, rel=1e-9)


@pytest.mark.parametrize(("first", "second"), [(2, 2), (3, 3), (3, 8), (20, 2)])
def test_the_difference_is_welchs(first: int, second: int):
    random = np.random.default_rng(first + second)
    a, b = random.normal(30, 1, first).tolist(), random.normal(32, 3, second).tolist()
    assert welch(a, b) == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, rel=1e-9)
    assert welch(b, a) == pytest.approx(welch(a, b), rel=1e-12)


def test_one_value_tells_nothing_and_no_noise_tells_all():
    assert half_width([3.0]) is None
    assert welch([3.0], [1.0, 2.0]) is None
    assert welch([3.0, 3.0], [2.0, 2.0]) == 0.0
    assert welch([3.0, 3.0], [3.0, 3.0]) == 1.0


@pytest.mark.parametrize(
    ("metric", "best"),
    [("bleu", "b"), ("accuracy", "b"), ("anything", "b"), ("loss", "a"), ("perplexity", "a"), ("bits_per_byte", "a")],
)
def test_the_best_comes_first(metric: str, best: str):
    variants = [trained("a", 1.0, 1.2, metric=metric), trained("b", 5.0, 5.2, metric=metric)]
    found = compare("any task", variants, ["not measured", metric])
    assert (found["metric"], found["variants"][0]["name"]) == (metric, best)
    assert found["higher_is_better"] == (best == "b")
    assert found["differences"][0]["better"] == best
    assert found["differences"][0]["by"] == pytest.approx(4.0)
    assert list(found["variants"][0]["metrics"]) == [metric]


def test_only_differences_beyond_the_noise_are_called_so():
    found = compare(
        "translate",
        [trained("a", 30, 31, 32), trained("b", 30.5, 31.5, 32.5), trained("c", 20, 20.5, 21)],
        TRANSLATION,
    )
    said = {(pair["better"], pair["worse"]): pair["beyond_noise"] for pair in found["differences"]}
    assert said == {("b", "a"): False, ("b", "c"): True, ("a", "c"): True}
    assert found["notes"][0].startswith("b: better bleu than c by 11.00 (p")
    assert "no clear difference from a (p = .5" in found["notes"][0]


def test_one_seed_is_said_to_be_too_few():
    found = compare("translate", [trained("a", 30), trained("b", 20)], TRANSLATION)
    assert found["notes"] == ["One seed of a variant cannot tell a difference from noise; train three or more."]
    assert "±" not in text_table(*comparison_table(found))


def test_a_failure_is_shown_and_does_not_count():
    found = compare(
        "translate",
        [trained("a", failed={1: "boom | bang"}), trained("b", 20, 22, failed={3: "no room"})],
        TRANSLATION,
    )
    assert [variant["name"] for variant in found["variants"]] == ["b", "a"]
    table = text_table(*comparison_table(found)).splitlines()
    assert table[0].split()[-1] == "failed"
    assert "21.00 ± 12.71" in table[1] and table[1].endswith("seed 3: no room")
    assert table[2].endswith("seed 1: boom | bang")
    assert found["differences"] == []
    assert "boom \\| bang" in markdown_table(*comparison_table(found))


def test_the_columns_of_the_table_stand_below_each_other():
    found = compare("translate", [trained("a", 9.5, 9.7), trained("long name", 33.25, 34.25)], TRANSLATION)
    head, first, second = text_table(*comparison_table(found)).splitlines()
    assert head.index("bleu") + 4 == first.index("±") + 6 == second.index("±") + 6
    assert first.split()[:5] == ["long", "name", "33.75", "±", "6.35"]
    rows = markdown_table(*comparison_table(found)).splitlines()
    assert len({len(row) for row in rows}) == 1 and set(rows[1]) <= set("|-: ")


def test_an_outcome_is_read_from_a_run_without_its_warm_up(tmp_path: Path):
    summary = {"seed": 3, "metrics": {"loss": 2.0}, "parameters": 7, "steps": 20, "seconds": 4.0}
    records = [{"step": step, "words_per_second": speed} for step, speed in ((5, 1.0), (10, 7.0), (15, 9.0))]
    records.append({"step": 20, "valid_loss": 2.5, "seconds": 4.0})
    outcome = Outcome.from_run(tmp_path, summary, records)
    assert (outcome.speed, outcome.unit, outcome.seed) == (8.0, "words", 3)
    assert outcome.memory is None, "older runs did not record it"
    assert outcome.validations == [records[-1]]


def test_the_picture_is_drawn_also_without_seconds_or_curves(tmp_path: Path):
    curve = [{"step": 1, "valid_bleu": 1.0}, {"step": 2, "valid_bleu": 2.0}]
    one = Outcome(tmp_path, 1, {"bleu": 3.0}, 1, 2, 1.0, 1, validations=curve)
    for number, variants in enumerate([[TrainedVariant("a", [], [one])], [trained("b", 3.0, 4.0)]]):
        path = tmp_path / f"{number}.png"
        draw_comparison(variants, "bleu", path)
        assert path.stat().st_size > 10_000
    draw_comparison([trained("c")], "bleu", tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
