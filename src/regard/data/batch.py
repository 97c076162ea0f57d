"""What all batches share: tensors of the same number of rows, some of whose positions are to be predicted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar, Self

import torch
from torch import Tensor

from regard.data.tokenizers import PAD

ALIGNED = 256  # bytes: as torch aligns what it allocates


@dataclass(frozen=True)
class Batch:
    """Rows of samples. The label `nothing` marks positions where there is nothing to predict."""

    nothing: ClassVar[int] = PAD
    unit: ClassVar[str] = "tokens"  # what the targets are

    labels: Tensor  # what is to be predicted; its shape is for each kind of batch to say

    def tensors(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]

    def to(self, device: torch.device) -> Self:
        if self.piece is not None:
            return self._over(self.piece.to(device, non_blocking=True))
        return type(self)(*(tensor.to(device, non_blocking=True) for tensor in self.tensors()))

    @cached_property
    def piece(self) -> Tensor | None:
        """The bytes of all tensors, where they lie in one piece of memory: to be copied at once."""
        return None

    def in_one_piece(self, pinned: bool = False) -> Self:
        """The same tensors in one piece of memory; `pinned`: from where a GPU copies by itself."""
        tensors = self.tensors()
        piece = torch.empty(sum(map(_room, tensors)), dtype=torch.uint8, pin_memory=pinned)
        batch = self._over(piece)
        for there, tensor in zip(batch.tensors(), tensors, strict=True):
            there.copy_(tensor)
        return batch

    def _over(self, piece: Tensor) -> Self:
        """Tensors like these, made of the bytes of this memory."""
        views, start = [], 0
        for tensor in self.tensors():
            views.append(piece[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape))
            start += _room(tensor)
        batch = type(self)(*views)
        batch.__dict__["piece"] = piece
        return batch

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


def _room(tensor: Tensor) -> int:
    """The bytes that a tensor takes, up to where the next may begin."""
    return -(-tensor.nbytes // ALIGNED) * ALIGNED


@dataclass(frozen=True)
class DataState:
    """How far the endless stream of batches has been read: this many rows of a window of an epoch."""

    epoch: int = 0
    window: int = 0
    row: int = 0
