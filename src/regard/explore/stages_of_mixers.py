"""The stages inside mixers other than plain attention, by name: the streams of Hyena, and recurrent states.

    PART.projected                   Hyena: x W_in, all streams concatenated
    PART.streams                     after the short convolution: v, x¹ … xᴺ
    PART.gated1, .convolved1 …       the output of each gate and of each long convolution
    PART.states, .memories           recurrence: h after each position, both directions concatenated; of an LSTM also c
    PART.pairs                       Bahdanau's decoder: the input of maxout, in pairs
    PART.mixed                       Hyena and Bahdanau's decoder: what W_out multiplies

Each is recomputed from the part's input with its own weights (inside/formulas.py).

Shapes: T positions · D model width · X width of a stage
"""

from __future__ import annotations

from torch import Tensor

from regard.errors import UsageError
from regard.explore.session import TracedInput
from regard.inside import formulas
from regard.inside.parts import PartTrace

MOST_GATES = 8  # that the settings of Hyena allow
NAMES = ("projected", "streams", "states", "memories", "pairs", "mixed")
NUMBERED = tuple(f"{stage}{n}" for n in range(1, MOST_GATES + 1) for stage in ("gated", "convolved"))


def stage(traced: TracedInput, owner: str, quantity: str) -> Tensor:
    available = stages(traced, traced.part(owner))
    if quantity not in available:
        raise UsageError(f"'{owner}' has no '{quantity}'.", "It mixes positions in another way.", "Choose another.")
    return available[quantity]


def stages(traced: TracedInput, part: PartTrace) -> formulas.Stages:
    context = part.context
    if context is None:
        return {}
    return traced.cached(f"stages of {part.name}", lambda: formulas.stages(part.module, part.read_TD, context))
