"""What all settings share: frozen, strict and closed sections, and the types of their values."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

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


class Settings(BaseModel):
    """Frozen, strict, and closed: an unknown key or a wrong type is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Problem(NamedTuple):
    """Settings that do not fit together: what is wrong, naming the settings, and what to change."""

    reason: str
    advice: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.advice}"
