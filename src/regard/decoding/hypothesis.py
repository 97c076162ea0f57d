"""What is asked of decoding, and what it returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.tokenizers import TextTokenizer


@dataclass(frozen=True)
class Hypothesis:
    """One finished output: its tokens without <end>, and how likely they are."""

    tokens: list[int]
    log_probability: float
    score: float  # log-probability after the length penalty


@dataclass(frozen=True)
class SearchRecord:
    """A beam search as it went: what was considered at each step, what was kept, and what came of it.

    Shapes: L steps · K beams · C candidates of a beam · E hypotheses that ended
    """

    tokenizer: TextTokenizer
    alpha: float  # of the length penalty
    considered_LKC2: NDArray[np.float32]  # word, and log-probability of all up to it; -inf: not possible
    written_LK: NDArray[np.int64]  # what was kept: word · K + the beam it goes on from
    ended_E4: NDArray[np.float32]  # log-probability, last step, beam there, length
    hypotheses: list[Hypothesis]  # best first


@dataclass(eq=False)
class Request:
    """A text to be written."""

    number: int  # among those that are asked for
    reads: Sequence[int] | NDArray[Any]  # what comes before: a source, or the beginning of the text itself
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
