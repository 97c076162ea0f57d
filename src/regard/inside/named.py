"""Named arrays: numbers with names for their axes and labels along them, ready for a table, a file or a picture."""

from __future__ import annotations

import csv
import html
import io
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from regard.errors import UsageError, did_you_mean

MOST_ROWS = 60  # and columns, of a table in a notebook
# Axes whose labels may recur, such as tokens: in tables they are numbered.
RECURRING = ("position", "looked at", "from", "input", "written", "source", "target", "word")


@dataclass(frozen=True)
class Named:
    """`axes` are the names of the axes, `labels` the labels along each."""

    name: str
    values: NDArray[Any]
    axes: tuple[str, ...]
    labels: tuple[list[str], ...]
    unit: str = ""
    notes: dict[str, Any] = field(default_factory=dict)  # further measurements

    def __post_init__(self) -> None:
        assert self.values.shape == tuple(map(len, self.labels)), (self.name, self.values.shape)
        assert len(self.axes) == len(self.labels)

    def __repr__(self) -> str:
        """One line, without the numbers."""
        return f"Named({self.name!r}: {self.size}{f', {self.unit}' if self.unit else ''})"

    @property
    def size(self) -> str:
        return " × ".join(f"{len(labels)} {axis}" for axis, labels in zip(self.axes, self.labels, strict=True))

    def __getitem__(self, which: str | int) -> Named | float:
        """The entry at a label of the first axis, or at an index from 0; it has one axis less."""
        n = self._index(which)
        if self.values.ndim == 1:
            return float(self.values[n])
        notes = {name: note[n] if self._per_value(note) else note for name, note in self.notes.items()}
        return Named(self.name, self.values[n], self.axes[1:], self.labels[1:], self.unit, notes)

    def __iter__(self) -> Iterator[Named | float]:
        return (self[n] for n in range(len(self)))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def _index(self, which: str | int) -> int:
        if not self.axes:
            raise UsageError(f"'{self.name}' has no axes.", "It is a single number.", "Use its values.")
        axis, labels = self.axes[0], self.labels[0]
        if isinstance(which, str):
            indices = [n for n, label in enumerate(labels) if label == which]
            indices = indices or [n for n, label in enumerate(labels) if label.strip() == which]
            if len(indices) == 1:
                return indices[0]
            if indices:
                raise UsageError(
                    f"'{which}' is not the only {axis} with this label.",
                    f"It is at {', '.join(map(str, indices))}, counted from 0.",
                    "Use one of these indices.",
                )
            raise UsageError(
                f"'{self.name}' has no {axis} '{which}'.", "No label is spelled like this.", did_you_mean(which, labels)
            )
        if isinstance(which, int | np.integer) and not isinstance(which, bool):
            if -len(labels) <= which < len(labels):
                return int(which)
            raise UsageError(
                f"'{self.name}' has no {axis} {which}.",
                f"There {'is' if len(labels) == 1 else 'are'} {len(labels)}, counted from 0.",
                f"Use one from 0 to {len(labels) - 1}.",
            )
        raise UsageError(
            f"{which!r} is neither a label nor a number.",
            f"An entry of the first axis, {axis}, is needed.",
            "For anything else, such as slices, use its values.",
        )

    def _per_value(self, note: Any) -> bool:
        """Whether a note has an entry for each value."""
        return isinstance(note, list) and np.array(note, dtype=object).shape == self.values.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.values, dtype=dtype)

    @property
    def columns(self) -> list[str]:
        """The names of the columns of `rows`, each unique."""
        names = _columns(self.axes, self._numbered, self._words is not None)
        return [*names, "value" if self.name in names else self.name_with_unit]

    @property
    def name_with_unit(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def rows(self) -> Iterator[list[Any]]:
        """One row per value: its labels, its word if there is one, and the value.

        Labels that may recur, such as tokens, are preceded by their number, from 1.
        """
        return self._rows(self._numbered, self._words is not None)

    def _rows(self, numbered: Sequence[bool], with_words: bool) -> Iterator[list[Any]]:
        words = self._words
        for index, labels in zip(np.ndindex(self.values.shape), itertools.product(*self.labels), strict=True):
            coordinates = [
                [n + 1, label] if with_number else [label]
                for n, label, with_number in zip(index, labels, numbered, strict=True)
            ]
            word = ["" if words is None else words[index]] if with_words else []
            yield [*itertools.chain(*coordinates), *word, _without_nan(self.values[index].item())]

    @property
    def _numbered(self) -> list[bool]:
        """For each axis, whether its labels may recur."""

        def are_numbers(labels: list[str]) -> bool:
            return any(labels == [str(n + first) for n in range(len(labels))] for first in (0, 1))

        axes = zip(self.axes, self.labels, strict=True)
        return [axis in RECURRING and not are_numbers(labels) for axis, labels in axes]

    @property
    def _words(self) -> NDArray[Any] | None:
        """The words in the notes, if there is one for each value."""
        words = np.array(self.notes.get("words"), dtype=object)
        return words if words.shape == self.values.shape and self.notes.get("words") is not None else None

    def to_json(self) -> dict[str, Any]:
        content = {"name": self.name, "unit": self.unit, "axes": list(self.axes), "labels": list(self.labels)}
        return content | {"values": _without_nan(self.values.tolist())} | self.notes

    def to_csv(self) -> str:
        return _csv(self.columns, self.rows())

    def _repr_html_(self) -> str:
        """For notebooks: a matrix as a table, anything else as a list of values."""
        caption = self.name_with_unit
        if self.values.ndim != 2:
            first_rows = list(itertools.islice(self.rows(), MOST_ROWS))
            left_out = f", the first {MOST_ROWS} of {self.values.size:,}" if self.values.size > MOST_ROWS else ""
            return html_table(f"{caption}{left_out}", self.columns, first_rows)
        left_out = f", the beginning of {self.size}" if max(self.values.shape) > MOST_ROWS else ""
        words = self._words
        rows = [
            [
                label,
                *(value if words is None else f"{words[row, n]} {_cell_text(value)}" for n, value in enumerate(values)),
            ]
            for row, (label, values) in enumerate(
                zip(self.labels[0], self.values[:MOST_ROWS, :MOST_ROWS], strict=False)
            )
        ]
        return html_table(f"{caption}{left_out}", ["", *self.labels[1][:MOST_ROWS]], rows, named_rows=True)


class NamedArrays(dict[str, Named]):
    """Several arrays by name; its repr has one line, and a notebook shows tables."""

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{name!r}: {array.size}' for name, array in self.items())}}}"

    def _repr_html_(self) -> str:
        return "".join(array._repr_html_() for array in self.values())


class Result:
    """Base of dataclasses whose fields are arrays, dicts of arrays, numbers and strings: repr, JSON and HTML."""

    @property
    def facts(self) -> dict[str, Any]:
        """Fields that are a number or a string."""
        return {name: value for name, value in self._fields().items() if isinstance(value, str | int | float)}

    @property
    def arrays(self) -> dict[str, Named | dict[str, Named]]:
        """Fields that are an array, or several by name."""
        return {name: value for name, value in self._fields().items() if isinstance(value, Named) or _is_group(value)}

    def __repr__(self) -> str:
        facts = [f"{name}={_cell_text(value)}" for name, value in self.facts.items()]
        sizes = [f"{name}: {array.size}" for name, array in self._flat_arrays()]
        return f"{type(self).__name__}({', '.join([*facts, *sizes])})"

    def to_json(self) -> dict[str, Any]:
        def plain(value: Named | dict[str, Named]) -> dict[str, Any]:
            if isinstance(value, Named):
                return value.to_json()
            return {name: array.to_json() for name, array in value.items()}

        return {**_without_nan(self.facts), **{name: plain(value) for name, value in self.arrays.items()}}

    def _repr_html_(self) -> str:
        facts = html_table(type(self).__name__, [], [[*fact] for fact in self.facts.items()], named_rows=True)
        tables = [f"<h4>{html.escape(name)}</h4>{array._repr_html_()}" for name, array in self._flat_arrays()]
        return "".join([facts, *tables])

    def _fields(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def _flat_arrays(self) -> Iterator[tuple[str, Named]]:
        for name, value in self.arrays.items():
            yield from [(name, value)] if isinstance(value, Named) else value.items()


def csv_of(arrays: Sequence[Named]) -> str:
    """All arrays that have the axes of the first one. If there are several, the first column names the array."""
    same_axes = with_axes_of_first(arrays)
    if len(same_axes) == 1:
        return same_axes[0].to_csv()
    numbered = [any(axis) for axis in zip(*(array._numbered for array in same_axes), strict=True)]
    with_words = any(array._words is not None for array in same_axes)
    rows = ([array.name_with_unit, *row] for array in same_axes for row in array._rows(numbered, with_words))
    return _csv(["array", *_columns(same_axes[0].axes, numbered, with_words), "value"], rows)


def with_axes_of_first(arrays: Sequence[Named]) -> list[Named]:
    return [array for array in arrays if array.axes == arrays[0].axes]


def _columns(axes: Sequence[str], numbered: Sequence[bool], with_words: bool) -> list[str]:
    """The columns before that of the values."""
    names = [
        [f"{axis} number", axis] if with_number else [axis] for axis, with_number in zip(axes, numbered, strict=True)
    ]
    return [*itertools.chain(*names), *(["word"] if with_words else [])]


def _csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return file.getvalue()


def _is_group(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(each, Named) for each in value.values())


def html_table(caption: str, head: Sequence[str], rows: Sequence[Sequence[Any]], named_rows: bool = False) -> str:
    """`named_rows`: the first cell of each row is its header."""

    def cell(value: Any, tag: str) -> str:
        return f"<{tag}>{html.escape(_cell_text(value))}</{tag}>"

    lines = ["".join(cell(name, "th") for name in head)] if head else []
    lines += [
        "".join(cell(value, "th" if named_rows and not n else "td") for n, value in enumerate(row)) for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><caption>{html.escape(caption)}</caption>{body}</table>"


def named(
    name: str,
    values: Tensor | ArrayLike,
    axes: Sequence[tuple[str, Sequence[str]]],
    unit: str = "",
    **notes: Any,
) -> Named:
    """`axes`: the name of each axis, and the labels along it."""
    array = values.detach().float().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    return Named(name, array, tuple(axis for axis, _ in axes), tuple(list(labels) for _, labels in axes), unit, notes)


def _without_nan(value: Any) -> Any:
    """None for NaN, which JSON lacks: values that do not exist, such as those of heads that a layer does not have."""
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    return None if isinstance(value, float | np.floating) and math.isnan(value) else value


def _cell_text(cell: Any) -> str:
    if isinstance(cell, list | tuple):
        return ", ".join(map(_cell_text, cell))
    if cell is None or _without_nan(cell) is None:
        return ""
    return f"{cell:.3f}" if isinstance(cell, float | np.floating) else str(cell)
