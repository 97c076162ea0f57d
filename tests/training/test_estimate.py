"""How long a training takes, from given times: no clock here."""

from __future__ import annotations

import itertools
import re

import pytest

import regard
from regard.errors import Interrupted
from regard.recipes import from_toml, recipe_text, resolve
from regard.settings import TrainingSettings
from regard.training.estimate import LONG, Estimate, duration, pauses_left
from regard.training.loop import Trainer


def estimate(recipe: str = "demo", *overrides: str, gpu: bool = False) -> Estimate:
    return Estimate(resolve(recipe, overrides), "2 CPU cores", gpu)


def fed(
    one: Estimate, steps: int, update: float, start: int = 0, validation: float = 0.0, save: float = 0.0
) -> list[str]:
    """The lines that it tells over these steps."""
    told = []
    for step in range(start + 1, start + steps + 1):
        validates = step % one.training.validate_every == 0
        saves = step % one.training.checkpoint_every == 0
        one.add(step, update, validation if validates else save if saves else 0.0)
        told += one.news(step)
    return told


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 seconds"),
        (1, "1 second"),
        (89, "89 seconds"),
        (90, "2 minutes"),
        (720, "12 minutes"),
        (5399, "90 minutes"),
        (5400, "1.5 hours"),
        (7200, "2 hours"),
        (51_600, "14 hours"),
        (3 * 86_400, "3 days"),
        (40 * 86_400, "40 days"),
    ],
)
def test_durations_in_words(seconds: float, text: str):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("steps", "validate_every", "save_every"), [(600, 150, 0), (601, 150, 50), (7, 3, 1), (10, 100, 25)]
)
def test_validations_and_saves_are_counted_as_the_loop_makes_them(steps: int, validate_every: int, save_every: int):
    training = TrainingSettings(steps=steps, validate_every=validate_every, save_every=save_every)
    every = training.checkpoint_every
    for step in range(steps + 1):
        later = range(step + 1, steps + 1)
        validations = sum(at % validate_every == 0 or at == steps for at in later)
        saves = sum(at % every == 0 and not (at % validate_every == 0 or at == steps) for at in later)
        assert pauses_left(step, training) == (validations, saves)


def test_the_first_steps_do_not_count():
    one = estimate("demo", "training.steps=1000", "training.validate_every=1000")
    for step, update in enumerate((30.0, 9.0, 1.0, 1.0), start=1):  # compiling, caches, and then as it goes on
        one.add(step, update, 0.0)
        assert one.seconds_left(step) is None
    one.add(5, 1.0, 0.0)
    assert one.seconds_left(5) == 995.0


def test_one_slow_step_among_many_changes_nothing():
    one = estimate("demo", "training.steps=1000")
    fed(one, 20, 1.0)
    one.add(21, 60.0, 0.0)
    assert one.seconds_left(21) == 979.0


def test_fast_steps_count_too():
    one = estimate("demo", "training.steps=100000", "training.validate_every=100000")
    assert fed(one, 150, 0.01) == []
    assert fed(one, 200, 0.01, start=150) == ["About 17 minutes to go: 99,798 steps at 10 ms, on 2 CPU cores."]


def test_validations_and_saves_count_as_soon_as_they_are_known():
    one = estimate("demo", "training.steps=100", "training.validate_every=20", "training.save_every=10")
    fed(one, 9, 1.0)
    assert one.seconds_left(9) == 91.0
    fed(one, 1, 1.0, start=9, save=2.0)
    assert one.seconds_left(10) == 90.0 + 4 * 2.0  # saves at 30, 50, 70, 90
    fed(one, 10, 1.0, start=10, validation=7.0)
    assert one.seconds_left(20) == 80.0 + 4 * 7.0 + 4 * 2.0
    fed(one, 80, 1.0, start=20, validation=7.0)
    assert one.seconds_left(100) == 0.0


def test_it_is_told_once_in_one_line():
    one = estimate("demo", "training.steps=2000", "training.validate_every=100")
    told = fed(one, 1000, 0.35, validation=1.0)
    assert told == ["About 12 minutes to go: 1,992 steps at 0.35 s, on 2 CPU cores."]


def test_again_if_validations_make_it_much_longer():
    one = estimate("demo", "training.steps=2000", "training.validate_every=100")
    first, second = fed(one, 1000, 0.35, validation=60.0)
    assert first.startswith("About 12 minutes to go")
    assert second == "About 30 minutes to go: 1,900 steps at 0.35 s, validations at 60.0 s, on 2 CPU cores."


def test_a_resumed_training_tells_what_is_left():
    one = estimate("demo", "training.steps=2000", "training.validate_every=1000")
    assert fed(one, 50, 0.35, start=1200) == ["About 5 minutes to go: 792 steps at 0.35 s, on 2 CPU cores."]


def test_with_patience_it_is_at_most_that():
    one = estimate("demo", "training.steps=2000", "training.validate_every=100", "training.patience=3")
    assert fed(one, 50, 1.0)[0].startswith("At most 33 minutes to go:")


def test_a_training_of_seconds_needs_no_line():
    one = estimate("demo", "training.steps=600", "training.validate_every=150")
    assert fed(one, 600, 0.09, validation=1.0) == []


def test_hours_say_what_to_change():
    one = estimate("multi30k", "training.validate_every=1000")
    line, advice = fed(one, 20, 5.2)
    assert line == "About 10 hours to go: 6,997 steps at 5.2 s, on 2 CPU cores."
    assert advice == (
        "To make it shorter, start a new run with training.steps=693 training.warmup=69 (about an hour), "
        "or training.tokens_per_batch=2048 "
        "(a step takes about a quarter), or model.width=128, or a GPU."
    )


def test_on_a_gpu_a_gpu_is_no_advice():
    one = estimate("multi30k", gpu=True)
    _, advice = fed(one, 20, 5.2)
    assert "GPU" not in advice and "training.steps=" in advice


def test_costly_validations_are_named():
    one = estimate("demo", "training.steps=2000", "training.validate_every=100")
    advice = fed(one, 1000, 0.35, validation=900.0)[-1]
    assert "training.validate_every=400" in advice


@pytest.mark.parametrize(
    "recipe", ["multi30k", "enwik8", "bert-small", "imdb", "cifar10", "cifar10-swin", "mnist-pixels", "words", "recall"]
)
def test_what_is_advised_can_be_set(recipe: str):
    one = estimate(recipe)
    *_, advice = fed(one, 20, 4 * LONG / one.training.steps)
    assert advice.startswith("To make it shorter, start a new run with training.steps=")
    overrides = re.findall(r"[a-z_]+\.[a-z_]+=\d+", advice)
    assert any(override.startswith(one.settings.BATCH) for override in overrides)
    for override in overrides:
        resolve(recipe, [override])


def test_what_cannot_be_set_is_not_advised():
    one = estimate("multi30k", "training.tokens_per_batch=256", "model.width=24", "model.heads=8")
    *_, advice = fed(one, 20, 5.2)
    assert "tokens_per_batch" not in advice and "width" not in advice


def test_a_run_from_another_keeps_its_shape():
    settings = from_toml(recipe_text("trec"), "trec", ["training.start_from=elsewhere", "training.steps=100000"])
    one = Estimate(settings, "2 CPU cores", gpu=False)
    *_, advice = fed(one, 20, 5.2)
    assert "model.width" not in advice


def test_a_training_tells_it_and_a_resumed_one_again(tiny_recipe, tmp_path, monkeypatch):
    """With a watch that goes on by 20 s whenever the loop looks at it."""
    watch, said = itertools.count(step=20.0), []
    monkeypatch.setattr("regard.training.loop.time.perf_counter", lambda: next(watch))
    monkeypatch.setattr("regard.console.say", said.append)
    options = [
        "training.validate_bleu=false",
        "decoding.beam=1",
        "decoding.max_ratio=0.1",
        "training.validate_every=20",
        "training.save_every=20",
    ]
    update = Trainer._update

    def stop_at_ten(self, step, batch):
        self.stop_asked = step == 10
        return update(self, step, batch)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Trainer, "_update", stop_at_ten)
        regard.train(str(tiny_recipe), *options, "training.steps=20", out=tmp_path / "run")
    assert [line for line in said if "About 6 minutes to go: 17 steps at 20.0 s, on " in line]
    said.clear()
    regard.train(str(tiny_recipe), *options, "training.steps=20", out=tmp_path / "run", resume=True)
    assert [line for line in said if "About 2 minutes to go: 7 steps at 20.0 s, on " in line]
