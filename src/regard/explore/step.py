"""The steps of a walk through a model, and the figures that illustrate them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# strip: a vector of the position · row: what it attends to · map: all positions · bars: the likeliest of an answer
Draw = Literal["strip", "row", "map", "bars"]


@dataclass(frozen=True)
class Figure:
    matrix: str
    draw: Draw
    label: str
    sign: str = ""  # before it: "+", "=", "→"
    heads: bool = False  # one per head
    rows: str = ""  # the stack whose positions are its rows; "": answers
    columns: str = ""  # the stack whose positions are its columns; "": the components of a vector


@dataclass(frozen=True)
class Step:
    id: str
    group: str
    title: str
    sentence: str
    formula: str
    figures: list[Figure] = field(default_factory=list)
    legend: str = ""  # what the letters of the formula mean that the sentence does not name
