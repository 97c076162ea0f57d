"""What passes inside a mixer that is no plain attention, by name: the streams of Hyena, and recurrent states.

    PART.projected                   Hyena: x W_in, all streams side by side
    PART.streams                     after the short convolution: v, x¹ … xᴺ
    PART.gated1, .convolved1 …       what each gate lets through, and what each long convolution makes of it
    PART.states, .memories           recurrence: h after each position, both directions side by side; of an LSTM also c
    PART.pairs                       Bahdanau's decoder: what the larger of each two numbers is taken of
    PART.mixed                       of Hyena and Bahdanau's decoder: what is multiplied by W_out

Each is computed from what the part read, with its own weights.

Shapes: T positions · D model width · X width of a stage
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.explore.session import Looked
from regard.inside.parts import PartTrace
from regard.layers.bahdanau import RecurrentSearch
from regard.layers.convolution import long_convolution
from regard.layers.hyena import Hyena
from regard.layers.recurrent import Recurrent

MOST_GATES = 8  # that the settings of Hyena allow
NAMES = ("projected", "streams", "states", "memories", "pairs", "mixed")
NUMBERED = tuple(f"{stage}{n}" for n in range(1, MOST_GATES + 1) for stage in ("gated", "convolved"))
INITIAL = "initial"  # the state before the first position: [1, X]; not a stage of any position

Stages = dict[str, Tensor]  # [T, X] each


def stage(looked: Looked, of: str, what: str) -> Tensor:
    made = stages(looked, looked.part(of))
    if what not in made:
        raise UsageError(f"'{of}' has no '{what}'.", "It mixes positions in another way.", "Choose another.")
    return made[what]


def stages(looked: Looked, part: PartTrace) -> Stages:
    for kind, make in ((Hyena, of_hyena), (Recurrent, of_recurrence), (RecurrentSearch, of_search)):
        if isinstance(part.module, kind):
            return looked.once(f"stages of {part.name}", lambda make=make: make(part))  # type: ignore[misc]
    return {}


@torch.no_grad()
def of_hyena(part: PartTrace) -> Stages:
    hyena: Hyena = part.module
    assert part.context is not None
    x_1TD = part.read_TD[None]
    streams = hyena.streams(x_1TD, part.context)
    made: Stages = {"projected": hyena.to_streams(x_1TD)[0], "streams": torch.cat(streams, dim=1)[0].T}
    filters = hyena.filters(len(part.read_TD))
    z_1DT, *gates = streams
    for n, x_1DT in enumerate(gates, start=1):
        if hyena.skips is None:
            z_1DT = long_convolution(z_1DT, *filters[n - 1])
            made[f"convolved{n}"] = z_1DT[0].T
        z_1DT = x_1DT * z_1DT
        made["mixed" if n == len(gates) else f"gated{n}"] = z_1DT[0].T
        if hyena.skips is not None and n < len(gates):
            z_1DT = long_convolution(z_1DT, *filters[n - 1]) + hyena.skips[n - 1][:, None] * z_1DT
            made[f"convolved{n}"] = z_1DT[0].T
    return made


@torch.no_grad()
def of_recurrence(part: PartTrace) -> Stages:
    module: Recurrent = part.module
    assert part.context is not None
    first = module.initial(part.context.memory)
    forth = _one_by_one(module, module.forwards, part.read_TD, first)
    if module.backwards is not None:
        back = _one_by_one(module, module.backwards, part.read_TD.flip(0), None)
        forth = {name: torch.cat([x_TD, back[name].flip(0)], dim=1) for name, x_TD in forth.items()}
    return forth


def _one_by_one(module: Recurrent, cell: Any, x_TD: Tensor, state: Any) -> Stages:
    """h after each position, and c of an LSTM, which says it only when it is stopped there."""
    zeros_11D = x_TD.new_zeros(1, 1, cell.hidden_size)
    state = state if state is not None else ((zeros_11D, zeros_11D) if module.vectors == 2 else zeros_11D)
    vectors = [_vectors(state)]
    for x_D in x_TD:
        _, state = cell(x_D[None, None], state)
        vectors.append(_vectors(state))
    made: Stages = {}
    for name, (first_11D, *rest) in zip(("states", "memories"), zip(*vectors, strict=True), strict=False):
        made[name] = torch.cat([x_11D[0] for x_11D in rest])
        made[INITIAL if name == "states" else f"{INITIAL} {name}"] = first_11D[0]
    return made


@torch.no_grad()
def of_search(part: PartTrace) -> Stages:
    module: RecurrentSearch = part.module
    assert part.context is not None
    cells, found_1TD = module.read(part.read_TD[None], part.context)
    states_TD = torch.cat([_vectors(cell)[0] for cell in cells[1:]])
    made: Stages = {"states": states_TD, INITIAL: _vectors(cells[0])[0]}
    if module.vectors == 2:
        made |= {
            "memories": torch.cat([_vectors(cell)[1] for cell in cells[1:]]),
            f"{INITIAL} memories": _vectors(cells[0])[1],
        }
    made["pairs"] = module.to_pairs(torch.cat([states_TD, part.read_TD, found_1TD[0]], dim=-1))
    return made | {"mixed": made["pairs"].unflatten(-1, (-1, 2)).amax(-1)}


def _vectors(state: Any) -> tuple[Tensor, ...]:
    return (state,) if isinstance(state, Tensor) else tuple(state)
