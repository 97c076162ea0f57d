"""What a walk through a model is made of: steps, and the matrices that show them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# strip: the vector of the position · row: what it looks at · map: all positions · bars: the likeliest of an answer
Draw = Literal["strip", "row", "map", "bars"]


@dataclass(frozen=True)
class Show:
    matrix: str
    draw: Draw
    label: str
    sign: str = ""  # between the one before and this: "+", "=", "→"
    heads: bool = False  # it has one for each head
    rows: str = ""  # the stack whose positions its rows are; "": answers
    columns: str = ""  # the stack whose positions its columns are; "": numbers of a vector


@dataclass(frozen=True)
class Step:
    id: str
    group: str
    title: str
    sentence: str
    formula: str
    shows: list[Show] = field(default_factory=list)
