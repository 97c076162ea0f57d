"""How far a training has come: all that changes during it, besides tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pydantic import TypeAdapter

from regard.data.batch import DataState
from regard.training.update import Outcome


@dataclass
class Window:
    """Means since the last line of the log."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    targets: int = 0
    seconds: float = 0.0  # of the updates alone, without validating and saving

    def add(self, loss: float, norm: float, targets: int, seconds: float) -> None:
        self.losses.append(loss)
        self.norms.append(norm)
        self.targets += targets
        self.seconds += seconds

    @property
    def loss(self) -> float:
        return sum(self.losses) / len(self.losses)

    @property
    def norm(self) -> float:
        return sum(self.norms) / len(self.norms)

    @property
    def speed(self) -> float:
        return self.targets / self.seconds


@dataclass
class Progress:
    """All that changes during a training, besides tensors. Saved with every checkpoint."""

    step: int = 0
    data: DataState = field(default_factory=DataState)
    seconds: float = 0.0
    best: float | None = None
    best_step: int = 0
    validations_since_best: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    window: Window = field(default_factory=Window)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Progress:
        known = {field.name for field in fields(cls)} & content.keys()  # earlier versions had other names
        return TypeAdapter(cls).validate_python({name: content[name] for name in known})


@dataclass(frozen=True)
class Begun:
    """A step whose loss has not been read yet."""

    step: int
    targets: int
    unit: str
    data: DataState  # after it
    outcome: Outcome
