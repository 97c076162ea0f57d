"""Learning-rate schedules."""

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


@pytest.mark.parametrize("schedule", ["paper", "inverse-sqrt", "cosine", "constant"])
def test_every_schedule_works_without_warmup(schedule):
    rates = [learning_rate(step, settings(schedule, warmup=0), 8) for step in range(1, 999)]
    assert all(rate > 0 for rate in rates)
    assert rates == sorted(rates, reverse=True)
