"""What all settings share: frozen, strict and closed sections, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, WrapValidator

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
# Above any use, and below where numbers overflow: what a machine has room for is asked before a model is built.
Layers = Annotated[int, Field(gt=0, le=512)]
Width = Annotated[int, Field(gt=0, le=1 << 17)]
Length = Annotated[int, Field(gt=0, le=1 << 26)]  # of a sequence, or of a list that is in memory
BatchSize = Annotated[int, Field(gt=0, le=1 << 32)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Chance = Annotated[float, Field(ge=0.0, le=1.0)]
FileList = list[str] | list[list[str]]


class Auto(int):
    """A number that is still to be found: what it is for now, and written as "auto"."""

    def __repr__(self) -> str:
        return '"auto"'

    __str__ = __repr__


def or_auto(for_now: int) -> WrapValidator:
    """A number, or "auto" for one that is found when a training starts."""

    def read(value: Any, number: Callable[[Any], int]) -> int:
        if isinstance(value, Auto):
            return value
        return Auto(for_now) if value == "auto" else number(value)

    return WrapValidator(read)


class Settings(BaseModel):
    """Frozen, strict, and closed: an unknown key or a wrong type is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Problem(NamedTuple):
    """Settings that do not fit together: what is wrong, naming the settings, and what to change."""

    reason: str
    advice: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.advice}"
