"""A claim: a sentence of a lecture, an experiment that could contradict it, and a verdict by a threshold stated first.

A file of `regard/claims` is one. It has

    ABOUT                        the sentence, the decks that say it, what is measured, the threshold
    experiment(budget, seed)     measurements by name: numbers, or arrays of the same shape for every seed
    verdict(measured)            holds, does not hold, or depends on something: a function of the measurements alone
    picture(measured)            one idea, as a matplotlib figure

and, instead of `experiment`, may have `experiments(budget, seeds)`, where many seeds are quicker side by side: its
arrays have the seeds along their first axis.

Shapes: S seeds; what follows is up to the claim
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.evaluation.compare import half_width
from regard.files import sha256

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Size = Literal["tiny", "normal", "full"]
Choice = TypeVar("Choice")

GROUPS = {
    "attention": "Attention",
    "positions": "Positions",
    "blocks": "Blocks",
    "recurrence": "Recurrence",
    "cost": "Cost",
    "before": "Before attention",
    "text": "Text",
    "vision": "Vision",
    "limits": "Limits",
    "svm": "Attention as a support vector machine",
}
DECKS = {
    "000": "Transformers (Data Science II)",
    "001": "Transformers and Vision Transformers",
    "002": "Attention is All You Need",
    "003": "Transformers: prerequisites and architecture",
    "004": "Transformers and language models",
}


@dataclass(frozen=True)
class Seeds:
    """How many each size of a claim takes."""

    tiny: int = 2
    normal: int = 5
    full: int = 10


ONE = Seeds(1, 1, 1)  # nothing in it is random


@dataclass(frozen=True)
class About:
    text: str  # the claim, in our own words
    decks: tuple[str, ...]
    group: str
    measures: str  # what is measured
    threshold: str  # when the claim holds: stated before looking
    figures: dict[str, str]  # measurements of one number, each with what it is; the first one stands in the table
    seeds: Seeds = field(default_factory=Seeds)
    timed: bool = False  # seconds are measured: nothing else runs beside it
    full_only: bool = False  # too long for two cores: it runs with --full only


@dataclass(frozen=True)
class Budget:
    """How much an experiment may take. Claims choose by it: `budget.choose(tiny=10, normal=1000)`."""

    size: Size = "normal"
    folder: Path = Path("runs/claims")  # what is made on the way is kept there, and continues
    device: str = "auto"

    @property
    def trainings(self) -> Path:
        """Where trainings are kept, for all claims."""
        return self.folder / "trainings"

    def choose(self, *, tiny: Choice, normal: Choice, full: Choice | None = None) -> Choice:
        """One of these; without its own, the full size takes what the normal one does."""
        if self.size == "tiny":
            return tiny
        return full if self.size == "full" and full is not None else normal


@dataclass(frozen=True)
class Verdict:
    outcome: Literal["holds", "does not hold", "depends", "not run"]
    words: str  # why
    on: str = ""  # what it depends on

    def __str__(self) -> str:
        return f"{self.outcome} on {self.on}" if self.on else self.outcome


def holds(words: str) -> Verdict:
    return Verdict("holds", words)


def does_not_hold(words: str) -> Verdict:
    return Verdict("does not hold", words)


def depends(on: str, words: str) -> Verdict:
    return Verdict("depends", words, on)


class Measured(Mapping[str, NDArray[Any]]):
    """Measurements by name, each with the seeds along its first axis: [S, …]."""

    def __init__(self, arrays: Mapping[str, ArrayLike]):
        self._arrays = {name: np.asarray(values, np.float64) for name, values in arrays.items()}

    @classmethod
    def stacked(cls, of_seeds: Sequence[Mapping[str, ArrayLike]]) -> Measured:
        return cls({name: np.stack([np.asarray(each[name]) for each in of_seeds]) for name in of_seeds[0]})

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def mean(self, name: str) -> float:
        """Over the seeds, of a measurement that is one number."""
        return float(self[name].mean())

    def half_width(self, name: str) -> float | None:
        """Of the 95 % interval of that mean; one seed has none."""
        return half_width(self[name].tolist())

    def interval(self, name: str) -> tuple[float, float]:
        """That interval, from its lower to its upper end; of one seed, the value itself."""
        mean, half = self.mean(name), self.half_width(name) or 0.0
        return mean - half, mean + half

    def curve(self, name: str) -> NDArray[Any]:
        """The mean over the seeds, of a measurement that is an array."""
        mean: NDArray[Any] = self[name].mean(0)
        return mean


Experiments = Callable[[Budget, Sequence[int]], Mapping[str, ArrayLike]]


@dataclass(frozen=True)
class Claim:
    name: str
    about: About
    experiments: Experiments
    at_once: bool  # all seeds in one call
    verdict: Callable[[Measured], Verdict]
    picture: Callable[[Measured], Figure]
    file: Path

    @classmethod
    def of(cls, name: str, module: Any) -> Claim:
        """From the file of a claim."""
        at_once = hasattr(module, "experiments")
        experiments = module.experiments if at_once else _one_by_one(module)
        assert module.__file__ is not None
        return cls(name, module.ABOUT, experiments, at_once, module.verdict, module.picture, Path(module.__file__))

    def measure(self, budget: Budget, seeds: Sequence[int]) -> Measured:
        return Measured(self.experiments(budget, seeds))

    def seeds(self, size: Size) -> list[int]:
        return list(range(1, getattr(self.about.seeds, size) + 1))

    @cached_property
    def digest(self) -> str:
        """Of its file and of what claims share, before it is run: results of other versions are not kept."""
        shared = sorted(Path(__file__).parent.glob("*.py"))
        return hashlib.sha256("".join(map(sha256, [self.file, *shared])).encode()).hexdigest()


def _one_by_one(module: ModuleType) -> Experiments:
    def experiments(budget: Budget, seeds: Sequence[int]) -> Measured:
        return Measured.stacked([module.experiment(budget, seed) for seed in seeds])

    return experiments
