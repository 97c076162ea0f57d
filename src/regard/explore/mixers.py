"""Questions about mixers: how positions influence each other, and the filters of convolutions.

Shapes: T positions of y · S positions of x · D channels · K taps
"""

from __future__ import annotations

from typing import Any

import torch

from regard.errors import UsageError
from regard.explore.session import TracedInput
from regard.inside import operator
from regard.inside.influence import PROBES
from regard.inside.named import named
from regard.inside.parts import PartTrace

FEW_CHANNELS = 5  # shown at first: from the slowest decay to the fastest
LONGEST_FILTER = 256  # taps shown, unless the input is longer
FEW_GRADIENTS = 512  # up to this many, influence is always exact
MOST_POSITIONS = 512  # of a matrix of positions by positions


def influence(
    traced: TracedInput, stack: str = "", part: str = "", source: str = "", exact: bool = False
) -> dict[str, Any]:
    """‖∂y_t/∂x_s‖ of a stack, of one part, or of a stack with respect to another's input.

    Estimated where the exact one takes long, unless `exact`.
    """
    _check_length(traced)
    name = part.split(".")[0] or stack or traced.trace.last.name
    length, width = traced.trace[name].layers[-1].after_TD.shape
    probes = width if exact or length * width <= FEW_GRADIENTS else PROBES
    return traced.trace.influence(stack, part, source, probes).to_json()


@torch.no_grad()
def filters(traced: TracedInput, part: str, channel: int | None = None) -> dict[str, Any]:
    """The weight of t positions back and t ahead, for some channels or for this one: a panel per filter."""
    mixer = _convolving(traced, part)
    taps = max(len(_pieces(traced, part)), min(LONGEST_FILTER, mixer.filter.length))
    panels = operator.filters(traced.part(part), taps)
    channels = panels[0].values.shape[0]
    if channel is None:
        shown = sorted({round(n * (channels - 1) / (FEW_CHANNELS - 1)) for n in range(FEW_CHANNELS)})
    else:
        _check_index(channels, channel, "channel")
        shown = [channel]
    return {
        "channels": channels,
        "shown": shown,
        "filters": [
            {
                "convolution": panel.notes["convolution"],
                "direction": panel.notes["direction"],
                "values": panel.values[shown].tolist(),
            }
            for panel in panels
        ],
    }


@torch.no_grad()
def toeplitz(traced: TracedInput, part: str, channel: int = 0, convolution: int = 0) -> dict[str, Any]:
    """The convolution of one channel as a Toeplitz matrix."""
    _check_length(traced)
    mixer, pieces = _convolving(traced, part), _pieces(traced, part)
    _check_index(len(mixer.filters(1)), convolution, "convolution")
    _check_index(mixer.width, channel, "channel")
    matrix_TT = mixer.toeplitz(len(pieces), channel, convolution)
    return named("convolution", matrix_TT, [("position", pieces), ("from", pieces)]).to_json()


def whole_operator(traced: TracedInput, part: str, channel: int | None = None) -> dict[str, Any]:
    """The matrix that a Hyena applies to v: of one channel, or the mean magnitude over all."""
    _check_length(traced)
    return traced.trace.operator(part, channel).to_json()


def _convolving(traced: TracedInput, name: str) -> Any:
    part: PartTrace = traced.part(name)
    if not hasattr(part.module, "toeplitz"):
        raise UsageError(f"'{name}' has no filters.", "It is not a convolution.", "Choose another part.")
    return part.module


def _pieces(traced: TracedInput, part: str) -> list[str]:
    return traced.trace.subject.stack(part.split(".")[0]).pieces


def _check_index(count: int, index: int, noun: str) -> None:
    if not 0 <= index < count:
        raise UsageError(f"There is no {noun} {index + 1}.", f"There are {count}.", "Choose another.")


def _check_length(traced: TracedInput) -> None:
    if traced.longest > MOST_POSITIONS:
        raise UsageError(
            f"A matrix of {traced.longest:,} positions is too large to be computed here.",
            f"The limit is {MOST_POSITIONS}.",
            "Use a shorter input.",
        )
