"""Learning-rate schedules."""

import math

import pytest

from regard.settings import TrainingSettings
from regard.training.schedule import learning_rate


def settings(schedule: str, **changes) -> TrainingSettings:
    return TrainingSettings(**{"schedule": schedule, "learning_rate": 0.01, "warmup": 100, "steps": 1000} | changes)


def test_paper_schedule_is_the_papers_formula():
    chosen = settings("paper", learning_rate=1.0, warmup=4000)
    for step in (1, 100, 4000, 20_000):
        assert learning_rate(step, chosen, 512) == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5))


def test_inverse_sqrt_peaks_at_the_end_of_warmup_and_halves_at_four_times_it():
    chosen = settings("inverse-sqrt")
    assert learning_rate(50, chosen, 8) == pytest.approx(0.005)
    assert learning_rate(100, chosen, 8) == pytest.approx(0.01)
    assert learning_rate(400, chosen, 8) == pytest.approx(0.005)


def test_cosine_goes_from_peak_to_final():
    chosen = settings("cosine", final_learning_rate=0.001)
    assert learning_rate(100, chosen, 8) == pytest.approx(0.01)
    assert learning_rate(550, chosen, 8) == pytest.approx(0.0055)
    assert learning_rate(1000, chosen, 8) == pytest.approx(0.001)


def test_cosine_is_half_a_wave_and_linear_a_straight_line():
    for step in (100, 101, 325, 550, 775, 999, 1000, 1500):
        progress = min(1, (step - 100) / 900)
        wave, line = (
            learning_rate(step, settings(kind, final_learning_rate=0.001), 8) for kind in ("cosine", "linear")
        )
        assert wave == pytest.approx(0.001 + 0.009 * (1 + math.cos(math.pi * progress)) / 2)
        assert line == pytest.approx(0.001 + 0.009 * (1 - progress))


@pytest.mark.parametrize("schedule", ["inverse-sqrt", "cosine", "linear", "constant"])
def test_the_rate_rises_in_a_line_to_its_peak(schedule):
    rates = [learning_rate(step, settings(schedule), 8) for step in range(1, 101)]
    assert rates == pytest.approx([0.0001 * step for step in range(1, 101)])


@pytest.mark.parametrize(("steps", "last"), [(1, 0.01), (2, 0.001)])
def test_a_training_as_short_as_its_warmup_has_the_peak(steps, last):
    for kind in ("cosine", "linear"):
        chosen = settings(kind, final_learning_rate=0.001, warmup=1, steps=steps)
        assert learning_rate(1, chosen, 8) == pytest.approx(0.01)
        assert learning_rate(steps, chosen, 8) == pytest.approx(last)


def test_without_warmup_roots_start_from_the_first_step():
    paper, roots = (settings(kind, warmup=0) for kind in ("paper", "inverse-sqrt"))
    assert learning_rate(4, paper, 16) == pytest.approx(0.01 / 4 / 2)
    assert learning_rate(4, roots, 16) == pytest.approx(0.01 / 2)


@pytest.mark.parametrize("schedule", ["paper", "inverse-sqrt", "cosine", "linear", "constant"])
def test_every_schedule_works_without_warmup(schedule):
    rates = [learning_rate(step, settings(schedule, warmup=0), 8) for step in range(1, 999)]
    assert all(rate > 0 for rate in rates)
    assert rates == sorted(rates, reverse=True)
