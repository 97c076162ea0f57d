"""How long a training will take on this machine, from what its steps took so far.

    to go = steps left · seconds of one + validations left · seconds of one + saves left · seconds of one

The first steps of a process do not count: they compile, record graphs and fill caches. What a validation or a save
takes counts as soon as one has been seen.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterator

from regard.errors import UsageError
from regard.recipes import complete, validate
from regard.settings import TaskSettings, TrainingSettings

NOT_TYPICAL = 2  # steps at the start of a process
ENOUGH_STEPS, ENOUGH_SECONDS = 3, 2.0  # what an estimate is made from, at least
SLOW = 5.0  # seconds of a step from which on one is enough: hours are told soon
RECENT = 100  # steps that count later on: a machine may become slower or faster
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
SHORT = MINUTE  # below this nobody needs an estimate
LONG = 2 * HOUR  # above this it says what to change
TOO_FEW = 100  # steps that are no training, and not worth advising


class Estimate:
    """Fed with the times of every step; says what is left, and tells it once in words."""

    def __init__(self, settings: TaskSettings, machine: str, gpu: bool):
        self.settings, self.training = settings, settings.training
        self.machine, self.gpu = machine, gpu
        self.seen, self.counted = 0, 0.0  # steps, and the seconds of those that count
        self.steps: deque[float] = deque(maxlen=RECENT)
        self.validation: float | None = None  # the seconds of the last one, its save included
        self.save: float | None = None  # of the last one without a validation
        self.told = 0.0  # the seconds a step, all included, that were told; 0: nothing yet
        self.told_all = False  # those of validations, too

    def add(self, step: int, update: float, after: float) -> None:
        """A step was made: the seconds of its update, and those of what followed it."""
        self.seen += 1
        if self.seen > NOT_TYPICAL:
            self.steps.append(update)
            self.counted += update
        if validates(step, self.training):
            self.validation = after
        elif step % self.training.checkpoint_every == 0:
            self.save = after

    def seconds_left(self, step: int) -> float | None:
        """From after this step to the end; None as long as too little was seen."""
        enough = len(self.steps) >= ENOUGH_STEPS or (self.steps and self.steps[-1] >= SLOW)
        if not enough or self.counted < ENOUGH_SECONDS:
            return None
        validations, saves = pauses_left(step, self.training)
        updates = (self.training.steps - step) * statistics.median(self.steps)
        return updates + validations * (self.validation or 0.0) + saves * (self.save or 0.0)

    def shown(self, step: int) -> str:
        """For the end of the line of progress."""
        left = self.seconds_left(step)
        return "" if left is None else f" · {duration(left)} left"

    def news(self, step: int) -> Iterator[str]:
        """What to tell now: once, and once more if the first validation shows that it takes much longer."""
        again = self.told > 0
        if self.told_all or step >= self.training.steps or (again and self.validation is None):
            return
        left = self.seconds_left(step)
        if left is None:
            return
        a_step = left / (self.training.steps - step)
        self.told_all = self.validation is not None
        if (again and a_step < 1.5 * self.told) or left < SHORT:
            self.told = self.told or a_step
            return
        self.told = a_step
        about = "At most" if self.training.patience else "About"
        parts = f"{self.training.steps - step:,} steps at {seconds(statistics.median(self.steps))}"
        if self.validation is not None:
            parts += f", validations at {seconds(self.validation)}"
        yield f"{about} {duration(left)} to go: {parts}, on {self.machine}."
        if left > LONG:
            yield from advice(self.settings, step, left, self.validation or 0.0, self.gpu)


def validates(step: int, training: TrainingSettings) -> bool:
    return step % training.validate_every == 0 or step == training.steps


def pauses_left(step: int, training: TrainingSettings) -> tuple[int, int]:
    """How often a training validates after this step, and how often it only saves."""

    def times(every: int) -> int:
        unfinished = step < training.steps and training.steps % every != 0  # the last step always counts
        return training.steps // every - step // every + unfinished

    validations = times(training.validate_every)
    return validations, times(training.checkpoint_every) - validations


def advice(settings: TaskSettings, step: int, left: float, validation: float, gpu: bool) -> Iterator[str]:
    """How to make a long training shorter: settings with values that work here."""
    training = settings.training
    in_an_hour = step + _round_down(HOUR / (left / (training.steps - step)))
    ways = []
    if TOO_FEW <= in_an_hour < training.steps:
        warmup = f" training.warmup={in_an_hour // 10}" if training.warmup > in_an_hour // 10 else ""
        ways.append(f"training.steps={in_an_hour}{warmup} (about an hour)")
    validations, _ = pauses_left(step, training)
    if validations * validation > left / 3:
        ways.append(f"training.validate_every={4 * training.validate_every}")
    quarter = settings.batch_size // 4
    if accepts(settings, settings.BATCH, quarter):
        ways.append(f"{settings.BATCH}={quarter} (a step takes about a quarter)")
    # A run that starts from another has the shape of that one.
    if hasattr(settings, "model") and not getattr(training, "start_from", ""):
        half = settings.width // 2
        if accepts(settings, "model.width", half):
            ways.append(f"model.width={half}")
    if not gpu:
        ways.append("a GPU")
    if ways:
        yield f"To make it shorter, start a new run with {', or '.join(ways)}."


def accepts(settings: TaskSettings, setting: str, value: int) -> bool:
    """Whether these settings accept this value."""
    section, _, name = setting.partition(".")
    tree = settings.model_dump()
    tree[section][name] = value
    try:
        complete(validate(tree))
    except UsageError:
        return False
    return True


def _round_down(number: float) -> int:
    """To two digits: 1,234 is 1,200."""
    whole = int(number)
    unit = 10 ** max(len(str(whole)) - 2, 0)
    return whole // unit * unit


def duration(seconds: float) -> str:
    """About how long: 40 seconds, 12 minutes, 2.5 hours, 14 hours, 3 days."""
    if seconds < 1.5 * MINUTE:
        count, unit = f"{seconds:.0f}", "second"
    elif seconds < 1.5 * HOUR:
        count, unit = f"{seconds / MINUTE:.0f}", "minute"
    else:
        number, unit = (seconds / HOUR, "hour") if seconds < 2 * DAY else (seconds / DAY, "day")
        count = f"{number:.1f}".removesuffix(".0") if number < 9.95 else f"{number:.0f}"
    return f"{count} {unit}" if count == "1" else f"{count} {unit}s"


def seconds(time: float) -> str:
    """The time of one step: 5.2 s, 0.35 s, 12 ms."""
    return f"{time:.1f} s" if time >= 1 else f"{time:.2f} s" if time >= 0.1 else f"{time * 1000:.0f} ms"
