"""Named arrays: numbers that say what their axes are, ready for a table, a file or a picture."""

from __future__ import annotations

import csv
import html
import io
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

MOST_ROWS = 60  # of a table in a notebook
TEXTS = ("position", "looked at", "from", "input", "written", "source", "target", "word")  # axes whose labels may recur


@dataclass(frozen=True)
class Named:
    """`axes` names every axis; `labels` what stands along it."""

    name: str
    values: NDArray[Any]
    axes: tuple[str, ...]
    labels: tuple[list[str], ...]
    unit: str = ""
    notes: dict[str, Any] = field(default_factory=dict)  # what else was measured

    def __post_init__(self) -> None:
        assert self.values.shape == tuple(map(len, self.labels)), (self.name, self.values.shape)
        assert len(self.axes) == len(self.labels)

    def __repr__(self) -> str:
        """In a line; all numbers are `values`."""
        shape = " × ".join(f"{len(labels)} {axis}" for axis, labels in zip(self.axes, self.labels, strict=True))
        return f"Named({self.name!r}: {shape}{f', {self.unit}' if self.unit else ''})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.values, dtype=dtype)

    @property
    def columns(self) -> list[str]:
        """What `rows` have, each by another name."""
        names = [name for axis in range(len(self.axes)) for name in self._columns_of(axis)]
        names += ["word"] if self._words is not None else []
        return [*names, "value" if self.name in names else f"{self.name} ({self.unit})" if self.unit else self.name]

    def rows(self) -> Iterator[list[Any]]:
        """One row for each number: what it is about, and the number.

        Labels that may recur, such as tokens, come after their number, from 1; then the word that was found there.
        """
        numbered = [len(self._columns_of(axis)) > 1 for axis in range(len(self.axes))]
        words = self._words
        for index, labels in zip(np.ndindex(self.values.shape), itertools.product(*self.labels), strict=True):
            places = [[n + 1, label] if two else [label] for n, label, two in zip(index, labels, numbered, strict=True)]
            word = [] if words is None else [words[index]]
            yield [*itertools.chain(*places), *word, _known(self.values[index].item())]

    def _columns_of(self, axis: int) -> list[str]:
        name, labels = self.axes[axis], self.labels[axis]
        counted = any(labels == [str(n + first) for n in range(len(labels))] for first in (0, 1))
        return [name] if counted or name not in TEXTS else [f"{name} number", name]

    @property
    def _words(self) -> NDArray[Any] | None:
        """One for each number, where there are any."""
        words = np.array(self.notes.get("words"), dtype=object)
        return words if words.shape == self.values.shape and self.notes.get("words") is not None else None

    def to_json(self) -> dict[str, Any]:
        content = {"name": self.name, "unit": self.unit, "axes": list(self.axes), "labels": list(self.labels)}
        return content | {"values": _known(self.values.tolist())} | self.notes

    def to_csv(self) -> str:
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows())
        return file.getvalue()

    def _repr_html_(self) -> str:
        """As notebooks show it: a matrix as a table, anything else as a list of numbers."""
        if self.values.ndim == 2:
            head = "".join(f"<th>{html.escape(label)}</th>" for label in ["", *self.labels[1]])
            body = "".join(
                f"<tr><th>{html.escape(label)}</th>{''.join(f'<td>{_short(value)}</td>' for value in row)}</tr>"
                for label, row in zip(self.labels[0], self.values, strict=True)
            )
        else:
            head = "".join(f"<th>{html.escape(axis)}</th>" for axis in self.columns)
            body = "".join(
                f"<tr>{''.join(f'<td>{html.escape(_short(cell))}</td>' for cell in row)}</tr>"
                for row in itertools.islice(self.rows(), MOST_ROWS)
            )
        caption = f"{self.name}{f' ({self.unit})' if self.unit else ''}"
        return f"<table><caption>{html.escape(caption)}</caption><tr>{head}</tr>{body}</table>"


def named(
    name: str,
    values: Tensor | ArrayLike,
    axes: Sequence[tuple[str, Sequence[str]]],
    unit: str = "",
    **notes: Any,
) -> Named:
    """`axes`: the name of each, and what stands along it."""
    array = values.detach().float().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    return Named(name, array, tuple(axis for axis, _ in axes), tuple(list(labels) for _, labels in axes), unit, notes)


def _known(value: Any) -> Any:
    """None for NaN: what there is not, such as a head that a layer does not have. JSON has no other word for it."""
    if isinstance(value, list):
        return [_known(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _short(cell: Any) -> str:
    return f"{cell:.3f}" if isinstance(cell, float | np.floating) else str(cell)
