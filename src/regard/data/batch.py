"""What all batches share: tensors of the same number of rows, some of whose positions are to be predicted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar, Self

import torch
from torch import Tensor

from regard.data.tokenizers import PAD


@dataclass(frozen=True)
class Batch:
    """Rows of samples. The label `nothing` marks positions where there is nothing to predict."""

    nothing: ClassVar[int] = PAD
    unit: ClassVar[str] = "tokens"  # what the targets are

    labels: Tensor  # what is to be predicted; its shape is for each kind of batch to say

    def tensors(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]

    def to(self, device: torch.device) -> Self:
        return type(self)(*(tensor.to(device, non_blocking=True) for tensor in self.tensors()))

    def pin_memory(self) -> Self:
        return type(self)(*(tensor.pin_memory() for tensor in self.tensors()))

    def split(self, pieces: int) -> list[Self]:
        """The same rows as several smaller batches."""
        parts = zip(*(tensor.tensor_split(pieces) for tensor in self.tensors()), strict=True)
        return [type(self)(*part) for part in parts]

    def first(self, rows: int) -> Self:
        return type(self)(*(tensor[:rows] for tensor in self.tensors()))

    def twice(self) -> Self:
        """Every row a second time, below the first."""
        return type(self)(*(torch.cat([tensor, tensor]) for tensor in self.tensors()))

    @cached_property
    def targets(self) -> int:
        """How many labels are to be predicted."""
        return int((self.labels != self.nothing).sum())


@dataclass(frozen=True)
class DataState:
    """How far the endless stream of batches has been read: this many rows of a window of an epoch."""

    epoch: int = 0
    window: int = 0
    row: int = 0
