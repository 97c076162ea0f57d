"""Tensors of which every process holds some rows: their parts, and the whole.

A tensor that is not divided is its own only part, and whole. Those that are divided are torch's DTensors; importing
these takes half a second, which only a training that has some pays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def divided(tensor: Any) -> bool:
    return hasattr(tensor, "to_local")


def own_rows(tensor: Any) -> Tensor:
    """The rows of a tensor that are here."""
    rows: Tensor = tensor.to_local() if divided(tensor) else tensor
    return rows


def whole(tensor: Any) -> Tensor:
    """A tensor with the rows of all processes, which must all ask for it."""
    together: Tensor = tensor.full_tensor() if divided(tensor) else tensor
    return together


def like(tensor: Tensor, other: Any) -> Tensor:
    """A whole tensor, divided as another of its shape is. Nothing is sent: every process has all of it."""
    if not divided(other) or divided(tensor) or tensor.shape != other.shape:
        return tensor
    from torch.distributed.tensor import DTensor

    mesh = other.device_mesh
    parts = tensor.chunk(mesh.size())  # fewer, where there are fewer rows than processes
    rank = mesh.get_local_rank()
    own = (parts[rank] if rank < len(parts) else tensor[:0]).contiguous().to(other.device)
    return DTensor.from_local(own, mesh, other.placements, run_check=False, shape=other.shape, stride=other.stride())


def gathered(tensors: Mapping[str, Tensor], kept: bool) -> dict[str, Tensor]:
    """Whole tensors in the CPU's memory, put together one by one; none, where they are not to be kept."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        together = whole(tensor)
        if kept:
            found[name] = together.cpu()
    return found
