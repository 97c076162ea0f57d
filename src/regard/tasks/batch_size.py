"""`training.tokens_per_batch = "auto"`: a number that is found once, when a training starts, and is then the run's.

On a GPU it is the largest that its memory has room for, by the prediction of `training.memory`: rows of a power of two,
or of one and a half times that. A CPU is not faster with more of them, and gets a usual number. The learning rate stays
as it is set.
"""

from __future__ import annotations

from typing import Any

from regard import console
from regard.settings import TaskSettings
from regard.tasks.task import Task

ROOM = 0.85  # of the memory that is free: allocators leave gaps, and validation takes some
# More than that keeps no GPU busier, and an epoch would have few steps.
MOST = {"training.tokens_per_batch": 131_072, "training.images_per_batch": 2_048}
FEWEST = 4  # rows
TRIED = 4  # times the usual number, from which the largest is told


def with_batch_size(task: Task[Any]) -> Task[Any]:
    """A task like this one, whose batch size is "auto", for which it is known."""
    found = sized(task, _rows_for_now(task.settings))
    if task.hardware.device.type == "cuda":
        from regard.hardware import free_memory
        from regard.training.memory import available

        room = int(ROOM * available(task.hardware.device))
        found = largest(sized(task, TRIED * _rows_for_now(task.settings)), room)
        free_memory(task.hardware.device)
    console.say(f'{found.settings.BATCH} = {found.settings.batch_size:,}, for "auto".')
    return found


def largest(task: Task[Any], room: int) -> Task[Any]:
    """A task like this one, with as many rows as there is room for, in bytes; told from those it has now."""
    from regard.data.batch import DataState
    from regard.training.memory import predict
    from regard.training.optimizer import Optimizer

    settings, pieces = task.settings, task.settings.training.pieces
    task.prepare()
    task.model = task.build().to(task.hardware.device)
    optimizer = Optimizer(task.model, settings.training)
    weights = sum(weight.nbytes for weight in task.model.parameters())
    lasting = optimizer.still_to_remember() + (weights if settings.training.ema else 0)
    batch, _ = next(task.stream.batches(DataState()))
    tried = -(-len(batch.labels) // pieces)
    stay = pieces > 1 or not optimizer.captured
    prediction = predict(task.model, task.loss, task.hardware, batch, tried, lasting, stay)
    rows = settings.batch_size // _row(settings)
    # Of batches of similar lengths, some have more rows and some fewer: what counts is how many times as many.
    times = prediction.rows_within(room) / tried if prediction else 0.0
    most = max(1, MOST[settings.BATCH] // _row(settings))
    return sized(task, max(pieces, round_number(min(most, int(rows * times)))))


def sized(task: Task[Any], rows: int) -> Task[Any]:
    """A task like this one whose batches have so many rows."""
    section, _, name = task.settings.BATCH.partition(".")
    settings = task.settings.with_section(section, **{name: rows * _row(task.settings)})
    return type(task)(settings, task.folder, task.hardware)


def round_number(rows: int) -> int:
    """The largest of 1, 2, 3, 4, 6, 8, 12, 16 … that is not above this."""
    power = 1 << max(0, rows.bit_length() - 1)
    return power * 3 // 2 if power >= 2 and rows >= power * 3 // 2 else power


def _rows_for_now(settings: TaskSettings) -> int:
    return max(FEWEST, settings.training.pieces, settings.batch_size // _row(settings))


def _row(settings: TaskSettings) -> int:
    """How much of the batch size a row is."""
    row: int = settings.row[1] if settings.BATCH == "training.tokens_per_batch" else 1  # type: ignore[attr-defined]
    return row
