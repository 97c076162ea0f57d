"""What the page asks about mixers: how positions influence each other, and the filters of convolutions.

Shapes: T positions of y · S positions of x · D channels · K taps
"""

from __future__ import annotations

from typing import Any

import torch

from regard.errors import UsageError
from regard.explore.session import Looked
from regard.inside import operator
from regard.inside.influence import PROBES
from regard.inside.named import named
from regard.inside.parts import PartTrace

FEW_CHANNELS = 5  # drawn at first: from the one that forgets most slowly to the one that forgets fastest
LONGEST_FILTER = 256  # taps that are shown, if the input is not longer
FEW_GRADIENTS = 512  # up to here influence is exact without being asked
MOST_POSITIONS = 512  # of a matrix of positions


def influence(looked: Looked, stack: str = "", part: str = "", of: str = "", exact: bool = False) -> dict[str, Any]:
    """‖∂y_t/∂x_s‖ of a stack, of one part, or of a stack by what another one reads.

    Where that takes long it is estimated, unless it is asked for exactly.
    """
    _check_length(looked)
    name = part.split(".")[0] or stack or looked.trace.last.name
    length, width = looked.trace[name].layers[-1].after_TD.shape
    probes = width if exact or length * width <= FEW_GRADIENTS else PROBES
    return looked.trace.influence(stack, part, of, probes).to_json()


@torch.no_grad()
def filters(looked: Looked, part: str, channel: int | None = None) -> dict[str, Any]:
    """How much some channels, or this one, take from t positions back and t ahead: a panel for each filter."""
    mixer = _convolving(looked, part)
    taps = max(len(_pieces(looked, part)), min(LONGEST_FILTER, mixer.filter.length))
    every = operator.filters(looked.part(part), taps)
    channels = every[0].values.shape[0]
    if channel is None:
        chosen = sorted({round(n * (channels - 1) / (FEW_CHANNELS - 1)) for n in range(FEW_CHANNELS)})
    else:
        chosen = [_one_of(range(channels), channel, "channel")]
    return {
        "channels": channels,
        "shown": chosen,
        "filters": [
            {"convolution": each.notes["convolution"], "direction": each.notes["direction"]}
            | {"values": each.values[chosen].tolist()}
            for each in every
        ],
    }


@torch.no_grad()
def toeplitz(looked: Looked, part: str, channel: int = 0, convolution: int = 0) -> dict[str, Any]:
    """A convolution of one channel as the matrix that it is."""
    _check_length(looked)
    mixer, pieces = _convolving(looked, part), _pieces(looked, part)
    _one_of(mixer.filters(1), convolution, "convolution")
    _one_of(range(mixer.width), channel, "channel")
    matrix_TT = mixer.toeplitz(len(pieces), channel, convolution)
    return named("convolution", matrix_TT, [("position", pieces), ("from", pieces)]).to_json()


def whole_operator(looked: Looked, part: str, channel: int | None = None) -> dict[str, Any]:
    """All that a Hyena does with its v, as a matrix: of one channel, or the mean size over all."""
    _check_length(looked)
    return looked.trace.operator(part, channel).to_json()


def _convolving(looked: Looked, name: str) -> Any:
    part: PartTrace = looked.part(name)
    if not hasattr(part.module, "toeplitz"):
        raise UsageError(f"'{name}' has no filters.", "It is not a convolution.", "Choose another part.")
    return part.module


def _pieces(looked: Looked, part: str) -> list[str]:
    return looked.trace.subject.stack(part.split(".")[0]).pieces


def _one_of(all_of: Any, number: int, what: str) -> Any:
    if not 0 <= number < len(all_of):
        raise UsageError(f"There is no {what} {number + 1}.", f"There are {len(all_of)}.", "Choose another.")
    return all_of[number]


def _check_length(looked: Looked) -> None:
    longest = max(len(stack.pieces) for stack in looked.trace.subject.stacks)
    if longest > MOST_POSITIONS:
        raise UsageError(
            f"A matrix of {longest:,} positions is too large to be computed here.",
            f"The limit is {MOST_POSITIONS}.",
            "Use a shorter input.",
        )
