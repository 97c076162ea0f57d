"""What every task is: one object that is prepared, trained, scored and used. A loaded run is its task."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from regard import console
from regard.data.splits import SHOWN_AS
from regard.errors import RegardError, UsageError
from regard.settings import FileList, TaskSettings
from regard.training.folder import RunFolder

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regard.data.stream import Stream
    from regard.decoding.engines import Engines
    from regard.evaluation.metrics import Evaluation
    from regard.explain.explanation import Explanation
    from regard.hardware import Hardware
    from regard.inside.trace import Trace
    from regard.training.processes import Processes

S = TypeVar("S", bound=TaskSettings)
DATA = "data.json"
FINGERPRINTS = 2  # how they are made: those made otherwise cannot be compared


@dataclass(frozen=True)
class About:
    """A few words about a task, for help, errors, comparisons and `regard init`."""

    noun: str  # what a trained run is: "a translator"
    verb: str  # the command that uses it
    metrics: tuple[str, ...]  # what a comparison shows; the first decides
    starter: str = ""  # the recipe that `regard init` prints
    advice: str = ""  # what to edit in it


class Task(ABC, Generic[S]):
    """A subclass declares `about` and `Settings`, and implements the abstract methods."""

    about: ClassVar[About]
    Settings: ClassVar[type[TaskSettings]]
    # Runs of which tasks it may start from, and what a run needs to have for that.
    starts_from: ClassVar[tuple[str, ...]] = ()
    handed_on: ClassVar[tuple[str, ...]] = ()  # files that a run starting from this one takes over
    REHEARSED: ClassVar[int] = 4096  # tokens of made-up data, about
    example: Any = ""  # what might be given to it
    used_on_gpu: ClassVar[tuple[str, ...]] = ()  # modules of a loaded run, imported while a GPU starts

    model: Any
    stream: Stream[Any, Any]

    def __init__(self, settings: S, folder: RunFolder, hardware: Hardware | None = None):
        self.settings, self.folder = settings, folder
        self._engines: dict[bool, Engines] = {}
        self._processes: Processes | None = None
        if hardware is not None:
            self.hardware = hardware

    # ------------------------------------------------------------ from data to a model

    @classmethod
    def check_files(cls, settings: Any) -> None:
        """Everything that the settings name is there. Quick: nothing is read."""

    @classmethod
    def examine(cls, settings: Any) -> tuple[dict[str, Any], list[str]]:
        """What `regard doctor` tells about the data: figures, and advice."""
        return {}, ["This task has no files to check."]

    @abstractmethod
    def prepare(self) -> None:
        """Read and check all data, write to the run folder what a loaded run needs, and make the stream of batches."""

    @abstractmethod
    def restore(self) -> None:
        """Read back from the run folder what `prepare` wrote there: enough to build the model and to use it."""

    @abstractmethod
    def build(self) -> nn.Module:
        """The model, with random weights."""

    @abstractmethod
    def architecture(self) -> dict[str, Any]:
        """What another program must know to load the weights: goes to config.json."""

    @abstractmethod
    def describe(self) -> str:
        """How much data there is, in words."""

    def rehearsal(self) -> Any:
        """A batch of made-up data. Asked of a copy of the task, which then has a small `model` and what `loss` needs.

        Widths and lengths are as in training, layers and rows fewer. None: there is nothing to rehearse.
        """
        return None

    def start(self) -> None:
        """Put what was learned before, where the settings name it, in place of the model's random weights."""
        from regard.tasks.starting import start_weights

        start_weights(self)

    # ------------------------------------------------------------ training and scoring

    @property
    def processes(self) -> Processes:
        """Those that train it together, and score it together while they do; a loaded run is alone."""
        from regard.training.processes import ALONE

        return self._processes or ALONE

    def train_with(self, processes: Processes) -> None:
        self._processes = processes

    def hidden(self, batch: Any) -> Tensor:
        """What the model's head reads, [..., D], for the labels of the batch, [...]."""
        raise NotImplementedError

    def logits(self, batch: Any) -> Tensor:
        """Of what is to be predicted, [..., W], for the labels of the batch, [...]."""
        logits: Tensor = self.model.to_logits(self.hidden(batch))
        return logits

    def loss(self, batch: Any) -> Tensor:
        """Summed over the targets of the batch; unless a task has another, the cross-entropy of its logits.

        A task implements `hidden` if its model has a `Head`, `to_logits`, and else `logits`.
        """
        from regard.training.head_loss import head_loss
        from regard.training.loss import training_loss

        training: Any = self.settings.training
        smoothing, consistency = training.label_smoothing, getattr(training, "consistency", 0.0)
        if not self.head_alone:
            return training_loss(self.logits, batch, smoothing, consistency)
        return head_loss(self.hidden, self.model.to_logits, batch, smoothing, consistency)

    @property
    def head_alone(self) -> bool:
        """Whether logits are what the model's head makes of `hidden`: then a loss never needs all of them at once."""
        return type(self).logits is Task.logits

    @property
    def captured(self) -> bool:
        """Whether the loss waits for nothing, so that a GPU can record it once and replay it (`training/graph.py`)."""
        return True

    @abstractmethod
    def validate(self, step: int) -> dict[str, float]:
        """The metrics on the validation data."""

    @abstractmethod
    def test(self) -> dict[str, float]:
        """The metrics of the finished model for summary.json, on held-out data."""

    @abstractmethod
    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        """Score held-out data: the run's own, or the files given."""

    @abstractmethod
    def next_commands(self) -> list[str]:
        """What a user may want to do with the finished run."""

    def engines(self, int8: bool = False) -> Engines:
        """What the model is decoded with: made once for it."""
        from regard.decoding.engines import Engines

        if self._engines.get(int8) is None or self._engines[int8].source is not self.model:
            self._engines[int8] = Engines(self.model, self.hardware.device, self.hardware.precision, int8)
        if self._processes is not None:
            # Texts are searched for in as many groups as an update has pieces, whoever takes them: those that share
            # a group share products, whose last bits may depend on that.
            self._engines[int8].share(self._processes, self.settings.training.pieces)
        return self._engines[int8]

    def first_inputs(self) -> list[Any]:
        """What the page of `regard explore` begins with, and what it is compared with: held-out data where possible."""
        return [self.example]

    def trace(self, *given: Any, **options: Any) -> Trace:
        """Everything that the model computed for one input: `run.trace("A sentence.")`.

        Defined by the `subject` of a task, which has the same parameters; tasks without layers have none.
        """
        from regard.inside.trace import trace

        if not hasattr(self, "subject"):
            raise UsageError(
                f"'{self.folder.path}' cannot be traced.",
                f"It is {self.about.noun}, which has no layers.",
                "Choose another run.",
            )
        _check_arguments(self.subject, given, options)
        return trace(self.subject(*given, **options))

    def explain(self, *given: Any, what: str = "", **choice: Any) -> Explanation:
        """An explanation in numbers and as a picture: `run.explain("A sentence.", what="lens").save("lens.svg")`.

        The input is that of `trace`. Kinds and options are those of `regard explain`: stack, layer, head, answer,
        token, method, reading, count, temperature.
        """
        from regard.explain.view import explain, make_choice

        return explain(self, given, what, make_choice(choice))

    def draw(self) -> None:
        """The course of training so far, as a picture."""
        from regard.explain.training_curves import training_curves

        training_curves(self.folder.read_metrics(), self.about.metrics, self.folder.plots / "curves.png")

    # ------------------------------------------------------------ the same data as before

    def remember_data(self, fingerprints: Mapping[str, str]) -> None:
        """Keep a fingerprint of each split of a new run. In one that is resumed, other training data is an error.

        A run continues exactly only with the same training data in the same order, and its metrics are of the data
        held out then. Fingerprints are of the content alone: data that was copied or moved is the same data.
        """
        if self._changed(fingerprints, "train"):
            raise RegardError(
                f"The training data of '{self.folder.path}' has changed since the run was started.",
                "A run continues where it stopped, in the same order of the same data.",
                f"Restore the data, or {self._new_run()}",
            )
        for split in ("valid", "test"):
            self.notice_change(fingerprints, split)
        content = {"format": FINGERPRINTS, **fingerprints}
        if not self.folder.has(DATA) or self.folder.read_json(DATA) != content:
            self.folder.write_json(DATA, content)

    def _new_run(self) -> str:
        """How to go on with other data."""
        if self.settings.task in self.starts_from:
            return f"start a new run from what this one has learned: --from {self.folder.path}"
        return "train on the new data in another folder: --out DIR"

    def notice_change(self, fingerprints: Mapping[str, str], split: str) -> None:
        """Say so if a split is not what it was when the run was trained."""
        if self._changed(fingerprints, split):
            console.warn(
                f"The {SHOWN_AS[split]} data of '{self.folder.path}' has changed since the run was trained: metrics "
                "are not comparable, and some of it may have been trained on."
            )

    def _changed(self, fingerprints: Mapping[str, str], split: str) -> bool:
        """Runs of earlier versions have no fingerprints, or others, and are not judged."""
        before = self.folder.read_json(DATA, dict[str, str | int]) if self.folder.has(DATA) else {}
        return before.get("format") == FINGERPRINTS and before.get(split) != fingerprints[split]

    def picture(self, name: str, files: FileList | None, split: str) -> Path:
        """Where to draw what an evaluation shows. That of the run's own test is not overwritten by any other."""
        other = f"-{Path(str(files[0])).name.partition('.')[0]}" if files else f"-{split}"
        return self.folder.plots / f"{name}{'' if other == '-test' and not files else other}.png"

    def drawn(self, path: Path, draw: Callable[[Path], object]) -> str | None:
        """Draw a picture that goes with a result, and say where it is.

        None, with a warning, where it cannot be written, as in a run folder that is read-only: the result stands
        without it.
        """
        try:
            draw(path)
        except OSError as error:
            console.warn(f"The picture '{path}' could not be written: {error}")
            return None
        return str(path.resolve())


def _check_arguments(subject: Callable[..., Any], given: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    """A clear error if an input is missing, superfluous, or neither a string nor a path."""
    signature = inspect.signature(subject)
    required = [name for name, parameter in signature.parameters.items() if parameter.default is parameter.empty]
    call = f"run.trace({', '.join(required)})"
    try:
        bound = signature.bind(*given, **options).arguments
    except TypeError as error:
        raise UsageError(
            "These arguments do not fit this run.", f"{str(error)[:1].upper()}{str(error)[1:]}.", f"Use {call}."
        ) from None
    for name, value in bound.items():
        types = {"str": (str,), "Path | str": (str, Path)}.get(signature.parameters[name].annotation, (object,))
        if not isinstance(value, types):
            file, actual = Path in types, "None" if value is None else type(value).__name__
            raise UsageError(
                f"The {name} must be {'the path of a file' if file else 'a string'}, not {actual}.",
                "Images are read from their files." if file else "The model reads text.",
                f"Use {call}, with {'a path' if file else 'a string'} as the {name}.",
            )
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise UsageError(f"The {name} is not Unicode.", "It has half of a surrogate pair.", "Give it in UTF-8.")


def must_have_no_files(files: Sequence[Any] | None, what: str, why: str) -> None:
    """A clear error where a task is scored on its own data only."""
    if files:
        raise UsageError(what, why, "Leave the files out.")
