"""What passes inside a mixer that is no plain attention, by name: the streams of Hyena, and recurrent states.

    PART.projected                   Hyena: x W_in, all streams side by side
    PART.streams                     after the short convolution: v, x¹ … xᴺ
    PART.gated1, .convolved1 …       what each gate lets through, and what each long convolution makes of it
    PART.states, .memories           recurrence: h after each position, both directions side by side; of an LSTM also c
    PART.pairs                       Bahdanau's decoder: what the larger of each two numbers is taken of
    PART.mixed                       of Hyena and Bahdanau's decoder: what is multiplied by W_out

Each is computed from what the part read, with its own weights (inside/formulas.py).

Shapes: T positions · D model width · X width of a stage
"""

from __future__ import annotations

from torch import Tensor

from regard.errors import UsageError
from regard.explore.session import Looked
from regard.inside import formulas
from regard.inside.parts import PartTrace

MOST_GATES = 8  # that the settings of Hyena allow
NAMES = ("projected", "streams", "states", "memories", "pairs", "mixed")
NUMBERED = tuple(f"{stage}{n}" for n in range(1, MOST_GATES + 1) for stage in ("gated", "convolved"))


def stage(looked: Looked, of: str, what: str) -> Tensor:
    made = stages(looked, looked.part(of))
    if what not in made:
        raise UsageError(f"'{of}' has no '{what}'.", "It mixes positions in another way.", "Choose another.")
    return made[what]


def stages(looked: Looked, part: PartTrace) -> formulas.Stages:
    def make() -> formulas.Stages:
        assert part.context is not None
        return formulas.stages(part.module, part.read_TD, part.context)

    return looked.once(f"stages of {part.name}", make) if part.context is not None else {}
