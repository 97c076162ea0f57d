"""What is asked of decoding, and what it returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Hypothesis:
    """One finished output: its tokens without <end>, and how likely they are."""

    tokens: list[int]
    log_probability: float
    score: float  # log-probability after the length penalty


@dataclass(eq=False)
class Request:
    """A text to be written."""

    number: int  # among those that are asked for
    reads: list[int]  # what comes before: a source sentence, or the beginning of the text itself
    first: int  # the first token that is fed
    limit: int  # most tokens written
    forced: list[int] = field(default_factory=list)  # tokens that must come first
    uniform: NDArray[np.float32] | None = None  # what its tokens are drawn with
    seen: Iterable[int] = ()  # what counts as written already, besides `reads` and `first`
    skipped: int = 0  # the first tokens that come out are no news, but belong to its beginning


def upload(numbers: Any, device: torch.device | None) -> Tensor:
    """Numbers on the device, without waiting for what it is doing."""
    tensor = torch.from_numpy(np.asarray(numbers))
    if device is None or device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
