"""The training loop: one for every task.

A task gives the model, a stream of batches, a loss (summed over its targets) and a validation; the loop does the rest:
learning rate, micro-batches, clipping, averaging, logging, validating, saving, stopping and resuming.

Two things make a run exact. Every random choice of a step follows from (seed, step, micro-batch), and the
data's state is three integers; so a run that is killed and resumed gives the same bytes as one that is not.

A GPU is not waited for after every step: the loss of a step is read when the next ones are under way (`update`). A
validation or a save waits for all of them, so that metrics and files are the same as if every step had been waited for.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from regard import console
from regard.data.batch import Batch
from regard.errors import Diverged, Interrupted, RegardError, UsageError
from regard.files import flush
from regard.hardware import (
    Hardware,
    free_memory,
    keep_freed_memory,
    out_of_memory,
    peak_memory,
    seed_everything,
)
from regard.metrics import lower_is_better
from regard.recipes.writing import to_toml
from regard.training.ahead import ahead
from regard.training.averaging import MovingAverage
from regard.training.beside import Beside
from regard.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    Checkpoints,
    load_weights,
    not_finite,
    weights_of,
)
from regard.training.estimate import Estimate, accepts
from regard.training.folder import RunFolder
from regard.training.graph import Backward
from regard.training.memory import available, predict, shown
from regard.training.optimizer import Optimizer
from regard.training.pieces import Division, add_pieces
from regard.training.processes import ALONE, Processes
from regard.training.progress import Begun, Progress, Window
from regard.training.rows import gathered, own_rows
from regard.training.schedule import learning_rate
from regard.training.stopping import stop_on_signal
from regard.training.tensors import save_tensors
from regard.training.update import Outcome, Update

AHEAD = 2  # steps that a GPU may be given before the loss of an earlier one is read
DRAW_EVERY = 30.0  # seconds, at least, between two drawings of the curves; they are also drawn at the end


class Trainable(Protocol):
    """What the loop asks of a task."""

    settings: Any
    model: Any
    stream: Any
    folder: RunFolder
    hardware: Hardware

    def build(self) -> nn.Module: ...
    def start(self) -> None: ...
    def loss(self, batch: Any) -> Tensor: ...
    def validate(self, step: int) -> dict[str, float]: ...
    def draw(self) -> None: ...


class Trainer:
    def __init__(self, task: Trainable, processes: Processes = ALONE):
        self.task, self.folder, self.hardware, self.processes = task, task.folder, task.hardware, processes
        self.settings, self.seed, self.width = task.settings.training, task.settings.seed, task.settings.width
        self.checkpoints = Checkpoints(
            self.folder.checkpoints,
            every=self.settings.checkpoint_every,
            keep=max(self.settings.keep_checkpoints, self.settings.average_checkpoints),
            warn=console.warn,
            processes=processes if self.sharded else ALONE,
        )
        self.resumed_at = self._resumed_at()
        if not self.resumed_at:
            task.start()
        self.model: nn.Module = task.model
        if self.sharded:
            from regard.training.sharding import shard  # loads what others never need

            shard(self.model, self.hardware.device, processes, self.settings.reduce)
        else:
            self.model.to(self.hardware.device)
        self.optimizer = Optimizer(self.model, self.settings)
        self.average = MovingAverage(self.model, self.settings.ema) if self.settings.ema else None
        self.progress = Progress()
        self.estimate = Estimate(task.settings, self.hardware.name, self.hardware.device.type == "cuda")
        self.stop_asked = False  # of this process
        self.all_asked = False  # of any process, as all know since the last update
        self.drawn, self.pictures = time.perf_counter(), Beside()
        self.under_way: deque[Begun] = deque()
        self.memory: dict[str, int] = {}  # in bytes: predicted, and the peak of the steps before the first validation
        self._begin_updates()

    @property
    def sharded(self) -> bool:
        """Whether each process holds a part of the model only."""
        return self.settings.shard and self.processes.count > 1

    def _begin_updates(self) -> None:
        """What computes updates, with nothing captured yet."""
        self.backward = Backward(self.model, self.task.loss, self.hardware, self.captured)
        self.unwaited: Update | None = None
        if self._can_run_ahead:
            self.unwaited = Update(self.backward, self.optimizer, self.average, self._in_pieces)

    # ------------------------------------------------------------ the loop

    def run(self) -> Progress:
        """Train from the newest whole checkpoint, or from the start, to the end."""
        self._resume()
        if self.hardware.device.type == "cpu":
            keep_freed_memory()
        with (
            stop_on_signal(self),
            console.progress(self.settings.steps, "training", self.progress.step, time_left=False) as show,
            closing(
                ahead(self.task.stream.batches(self.progress.data), self.hardware.device.type == "cuda")
            ) as batches,
        ):
            self.noted, first = time.perf_counter(), True
            while self.progress.step < self.settings.steps and not self._out_of_patience():
                batch, self.progress.data = next(batches)
                step = self.progress.step + 1
                if first:
                    self._foresee(batch)
                    first = False
                outcome = self._update_that_fits(step, batch, show)
                self.progress.step = step
                self.under_way.append(Begun(step, batch.targets, batch.unit, self.progress.data, outcome))
                if self._pauses(step):
                    taken = self._catch_up(show)
                    self.memory.setdefault("steps_memory_bytes", peak_memory(self.hardware.device))
                    self._after(step)
                    self.estimate.add(step, taken, self._seconds())
                elif len(self.under_way) > (AHEAD if self.unwaited else 0):
                    self.estimate.add(step, self._note(self.under_way.popleft(), show), 0.0)
                for line in self.estimate.news(step):
                    console.say(line)
                if self.all_asked if self.processes.count > 1 else self.stop_asked:
                    self._catch_up(show)
                    self._save()
                    self._draw()
                    self.pictures.wait()
                    raise Interrupted
        return self.progress

    def final_weights(self, last: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The model that the run is for: the mean of the last, where the settings say so, else the best."""
        if self.settings.average_checkpoints:
            # The regular ones and the last: the same, however often the run was stopped in between.
            chosen = {*self.checkpoints.regular_steps(), self.progress.step} & set(self.checkpoints.steps())
            steps = self.checkpoints.whole(sorted(chosen))[-self.settings.average_checkpoints :]
            return self.checkpoints.mean(steps) if steps else last
        best = self.progress.best_step
        if best not in (0, self.progress.step):
            if best in self.checkpoints.steps() and self.checkpoints.is_whole(best):
                checkpoint = self.checkpoints.load(best)
                return checkpoint.average if self.average else checkpoint.weights
            console.warn(f"The best step, {best:,}, has no checkpoint: the final model is that of the last step.")
        return last

    def finish(self, original: Path | None = None) -> None:
        """The first process writes the final weights; all put them into the model. A picture may still be under way.

        `original`: the run folder, where this process has a copy of it.
        """
        # What was validated: the moving average, where there is one.
        last = self.average.weights if self.average else weights_of(self.model)
        last = gathered(last, kept=self.processes.first) if self.sharded else last
        if self.processes.first:
            self._write_final(last)
        self.processes.wait()
        if self.sharded or original is not None:
            weights = load_file((original or self.folder.path) / self.folder.model.name)
            self.task.model = self.model = self._whole_model(weights) if self.sharded else self.model
            load_weights(self.model, weights)

    def _whole_model(self, weights: Mapping[str, Tensor]) -> nn.Module:
        from regard.training.sharding import whole_model

        return whole_model(self.task.build, weights, self.hardware.device)

    def _write_final(self, last: dict[str, Tensor]) -> None:
        """`last`: the weights of the last step."""
        weights = {name: tensor.cpu() for name, tensor in self.final_weights(last).items()}
        if bad := not_finite(weights):
            raise Diverged(
                "The final model cannot be used: its weights are not finite numbers.",
                f"{bad} holds infinity or NaN after step {self.progress.step:,}.",
                "Lower training.learning_rate, raise training.warmup, or set training.clip_norm=1.0, and train again.",
            )
        temporary = self.folder.temporary(self.folder.model.name)
        try:
            save_tensors(temporary, weights)
            self.folder.manifest.put(temporary, self.folder.model.name)
        except (OSError, SafetensorError) as error:
            temporary.unlink(missing_ok=True)
            raise RegardError(
                f"The final model could not be written to '{self.folder.model}'.",
                f"{error}",
                "Free some room on the disk and run the same command with --resume; checkpoints are kept.",
            ) from None
        if not self.sharded:
            load_weights(self.model, weights)
        self._draw()

    @property
    def _can_run_ahead(self) -> bool:
        """Whether updates can be left to themselves: on a GPU, with an optimizer that can be captured and guarded."""
        return self.captured and self.optimizer.captured and self.optimizer.can_be_guarded

    @property
    def captured(self) -> bool:
        """Whether the task's loss can be recorded as a graph; a plug-in need not say."""
        return getattr(self.task, "captured", True) and not self.sharded

    def _update_that_fits(self, step: int, batch: Batch, show: console.Show) -> Outcome:
        """The same update in more and smaller pieces if memory runs out: the loss is a sum, any split of it will do."""
        while True:
            self.optimizer.moved = False
            try:
                return self._update(step, batch)
            except (MemoryError, RuntimeError) as error:
                pieces = more_pieces(self.task.settings, len(batch.labels))
                if not out_of_memory(error) or self.optimizer.moved or not pieces or self.processes.count > 1:
                    raise
            # Here, not in `except`: what was computed so far is held until that is left.
            self._catch_up(show)
            self._split(
                pieces, f"Step {step:,} did not fit into memory. It is computed again, and from now on every step,"
            )

    def _foresee(self, batch: Batch) -> None:
        """Say how much memory the training will take; where that is more than there is, take less at a time."""
        if self.sharded:
            # Rows and blocks of one process are not those of another: told is what is sure.
            weights = sum(own_rows(weight).nbytes for weight in self.optimizer.parameters.values())
            lasting = 2 * weights + self.optimizer.still_to_remember() // self.processes.count
            console.say(
                f"Each process holds {shown(lasting)} of weights, gradients and optimizer, and besides that its batch."
            )
            return
        rows, device = len(batch.labels), self.hardware.device
        weights = sum(weight.nbytes for weight in self.optimizer.parameters.values())
        sums = weights * self._division.held(self.settings.pieces)
        prediction = predict(
            self.model,
            self.task.loss,
            self.hardware,
            batch,
            math.ceil(rows / self.settings.pieces),
            self.optimizer.still_to_remember() + sums,
            gradients_stay=self.unwaited is None or self.settings.pieces > 1,
        )
        if prediction is None:
            return
        free = available(device)
        # Compiled blocks may fit all the same.
        alone = self.processes.count == 1  # several would have to agree on it
        while alone and prediction.growth(math.ceil(rows / self.settings.pieces)) > free and not self.hardware.compile:
            if not (pieces := more_pieces(self.task.settings, rows)):
                break
            self._split(pieces, "A step does not fit into the memory that is free. It is computed")
        self.memory["memory_before_bytes"] = prediction.present
        peak = self.memory["predicted_memory_bytes"] = prediction.peak(math.ceil(rows / self.settings.pieces))
        most = "At most about" if self.hardware.compile else "About"
        each = " by each process" if self.processes.count > 1 else ""
        console.say(f"{most} {shown(peak)} of memory will be used{each}, of {shown(prediction.present + free)}.")

    def _split(self, pieces: int, why: str) -> None:
        """From now on compute updates in this many pieces; a resumed run does so too."""
        console.warn(f"{why} with training.micro_batches = {pieces}: the same result, a little slower.")
        self.task.settings = self.task.settings.with_section("training", micro_batches=pieces)
        self.settings = self.task.settings.training
        self.folder.write_text("config.toml", to_toml(self.task.settings))
        self.optimizer.begin_again(self.settings)  # without the gradients of the pieces that did fit
        self._begin_updates()
        free_memory(self.hardware.device)

    def _update(self, step: int, batch: Batch) -> Outcome:
        """One update of the weights; the mean loss and the gradient's norm."""
        rate = learning_rate(step, self.settings, self.width)
        if not self.model.training:
            self.model.train()
        pieces = batch.split(self.settings.pieces) if self.settings.pieces > 1 else [batch]
        share = self.average.share(step) if self.average else 0.0
        if self.unwaited:
            return self.unwaited(
                pieces, batch.targets, rate, share, lambda index: seed_everything(self.seed, step, index)
            )
        with self.processes.noticing_loss():  # blocks of a sharded model wait for each other
            return self._waited(step, batch, pieces, rate, share)

    def _waited(self, step: int, batch: Batch, pieces: list[Batch], rate: float, share: float) -> Outcome:
        """The same, where the loop waits for every step."""
        if len(pieces) == 1:
            seed_everything(self.seed, step, 0)
            total = self.backward(batch, batch.targets)
        else:
            # Divided by the targets of the whole batch, so that any split gives the same gradient.
            total = self._in_pieces(pieces, batch.targets, lambda index: seed_everything(self.seed, step, index))
        outcome = Outcome(torch.stack([total, self.optimizer.gradient_norm()]))
        self._must_be_finite(step, *outcome.read())
        self.optimizer.step(rate)
        if self.average:
            self.average.update(self.model, share)
        return outcome

    def _in_pieces(self, pieces: list[Batch], targets: int, seed: Callable[[int], None]) -> Tensor:
        loss, self.all_asked = add_pieces(
            pieces, targets, self.backward, self.optimizer, seed, self._division, self.stop_asked
        )
        return loss

    @property
    def _division(self) -> Division:
        return Division(self.processes, self.settings.reduce, self.sharded)

    def _note(self, begun: Begun, show: console.Show) -> float:
        """Read the loss of a step, show and log it; the seconds since the one before."""
        loss, norm = begun.outcome.read()
        self._must_be_finite(begun.step, loss, norm)
        taken = self._seconds()
        window = self.progress.window
        window.add(loss, norm, begun.targets, taken)
        show(
            begun.step,
            lambda: (
                f"loss {window.loss:.3f} · {window.speed:,.0f} {begun.unit}/s{self.estimate.shown(self.progress.step)}"
            ),
        )
        if begun.step % self.settings.log_every == 0:
            self._log(begun, window)
            self.progress.window = Window()
        return taken

    def _catch_up(self, show: console.Show) -> float:
        """Wait for all steps under way; the seconds of one."""
        taken = [self._note(self.under_way.popleft(), show) for _ in range(len(self.under_way))]
        return sum(taken) / max(1, len(taken))

    def _seconds(self) -> float:
        """Since this was last asked; they are counted as the run's."""
        before, self.noted = self.noted, time.perf_counter()
        self.progress.seconds += self.noted - before
        return self.noted - before

    def _pauses(self, step: int) -> bool:
        """Whether it is time to validate or to save."""
        every = (self.settings.validate_every, self.settings.checkpoint_every, self.settings.steps)
        return any(step % each == 0 for each in every)

    def _after(self, step: int) -> None:
        """Validate and save, when it is time."""
        last = step == self.settings.steps
        if step % self.settings.validate_every == 0 or last:
            self._validate(step)
        if step % self.settings.checkpoint_every == 0 or last:
            self._save()

    def _validate(self, step: int) -> None:
        """Measure on held-out data, and note whether it is the best so far."""
        with self._averaged(), self._whole():
            self.task.model.eval()
            metrics = self.task.validate(step)  # by all processes, a share each
        metrics = self.processes.tell(metrics)
        record = {f"valid_{name}": value for name, value in metrics.items()}
        self.folder.append_metrics({"step": step} | record | {"seconds": round(self.progress.seconds, 3)})
        if time.perf_counter() - self.drawn > DRAW_EVERY:
            self._draw()
        shown = " · ".join(f"{name} {value:.3f}" for name, value in metrics.items())
        console.say(f"step {step:,}: validation {shown}")
        self.progress.metrics = metrics
        value = metrics[self.settings.select]
        score = -value if lower_is_better(self.settings.select) else value
        if not math.isfinite(score):
            console.warn(f"Step {step:,} cannot be the best: its validation {self.settings.select} is {value}.")
            self.progress.validations_since_best += 1
        elif self.progress.best is not None and score <= self.progress.best:
            self.progress.validations_since_best += 1
        else:
            self.progress.best, self.progress.best_step, self.progress.validations_since_best = score, step, 0

    def _draw(self) -> None:
        if not self.processes.first:
            return
        self.pictures.start(self.task.draw)
        self.drawn = time.perf_counter()

    def _out_of_patience(self) -> bool:
        patience = self.settings.patience
        if patience and self.progress.validations_since_best >= patience:
            console.say(
                f"No better validation in {patience}; stopping early. The best was at step {self.progress.best_step:,}."
            )
            return True
        return False

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """The model with its moving average in place of its weights."""
        if not self.average:
            yield
            return
        own = {name: tensor.clone() for name, tensor in weights_of(self.model).items()}
        load_weights(self.model, self.average.weights)
        try:
            yield
        finally:
            load_weights(self.model, own)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """The task with a whole model: to validate takes no gradients, and no more memory than the weights."""
        if not self.sharded:
            yield
            return
        self.task.model = self._whole_model(weights_of(self.model))
        try:
            yield
        finally:
            self.task.model = self.model

    # ------------------------------------------------------------ saving and resuming

    def _save(self) -> None:
        if not (self.processes.first or self.sharded):
            return
        checkpoint = Checkpoint(
            weights=weights_of(self.model),
            optimizer=self.optimizer.tensors(),
            average=self.average.weights if self.average else {},
            state=self.progress.to_json(),
        )
        try:
            if self.folder.metrics.exists():
                flush(self.folder.metrics)  # a checkpoint never knows more than the metrics
            self.checkpoints.save(self.progress.step, checkpoint, self.progress.best_step)
        except (CheckpointError, OSError) as error:
            kept = self.checkpoints.steps()
            console.warn(
                f"The checkpoint at step {self.progress.step:,} could not be saved: {error}. "
                + (f"The one at step {kept[-1]:,} is untouched. " if kept else "There is none before it. ")
                + "Training continues; free some room on the disk."
            )

    def _resumed_at(self) -> int:
        """The step of the newest whole checkpoint; 0 if there is none."""
        step = self.checkpoints.newest() or 0
        if step > self.settings.steps:
            raise UsageError(
                f"This run is already at step {step:,}.",
                f"training.steps = {self.settings.steps:,} would end before that.",
                "Give a larger number, or train again with another --out DIR.",
            )
        return step

    def _resume(self) -> None:
        step = self.resumed_at
        self.folder.forget_after(step)
        if not step:
            return
        try:
            checkpoint = self.checkpoints.load(step)
            load_weights(self.model, checkpoint.weights)
            self.optimizer.load(checkpoint.optimizer)
            if self.average:
                self.average.load(checkpoint.average)
            self.progress = Progress.from_json(checkpoint.state)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RegardError(
                f"The checkpoint at step {step:,} is not one of this run.",
                f"{type(error).__name__}: {error}".partition("\n")[0],
                f"Remove '{self.checkpoints.folder / f'step-{step}'}' to go on from the one before.",
            ) from None
        done = step >= self.settings.steps
        console.say(f"All {step:,} steps are done already." if done else f"Continuing from step {step:,}.")

    def _log(self, begun: Begun, window: Window) -> None:
        rate = learning_rate(begun.step, self.settings, self.width)
        self.folder.append_metrics(
            {
                "step": begun.step,
                "loss": window.loss,
                "learning_rate": rate,
                "gradient_norm": window.norm,
                f"{begun.unit}_per_second": round(window.speed, 1),
                "epoch": begun.data.epoch,
                "seconds": round(self.progress.seconds, 3),
            }
        )

    # ------------------------------------------------------------ errors

    def _must_be_finite(self, step: int, loss: float, norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            return
        kept = self.checkpoints.steps()
        rate = learning_rate(step, self.settings, self.width)
        raise Diverged(
            f"Training stopped at step {step:,}: the loss is {loss} and the gradient's norm {norm}.",
            f"The learning rate was {rate:.2e}. The weights were not touched by this step.",
            "Lower training.learning_rate, raise training.warmup, or set training.clip_norm=1.0; "
            + (f"the checkpoint at step {kept[-1]:,} is whole." if kept else "no checkpoint was saved yet."),
        )


def more_pieces(settings: Any, rows: int) -> int:
    """Twice as many pieces as an update of so many rows has; 0 if there is nothing to split."""
    pieces = min(2 * settings.training.pieces, rows)
    return pieces if pieces > settings.training.pieces and accepts(settings, "training.micro_batches", pieces) else 0
