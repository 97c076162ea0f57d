"""Named arrays: numbers that say what their axes are, ready for a table, a file or a picture; alone or together."""

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

MOST_ROWS = 60  # of a table in a notebook, and columns
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
        return f"Named({self.name!r}: {self.size}{f', {self.unit}' if self.unit else ''})"

    @property
    def size(self) -> str:
        return " × ".join(f"{len(labels)} {axis}" for axis, labels in zip(self.axes, self.labels, strict=True))

    def __getitem__(self, which: str | int) -> Named | float:
        """What is at a label of the first axis, or at a number, from 0: without that axis."""
        n = self._place(which)
        if self.values.ndim == 1:
            return float(self.values[n])
        notes = {name: note[n] if self._of_each(note) else note for name, note in self.notes.items()}
        return Named(self.name, self.values[n], self.axes[1:], self.labels[1:], self.unit, notes)

    def __iter__(self) -> Iterator[Named | float]:
        return (self[n] for n in range(len(self.values)))

    def _place(self, which: str | int) -> int:
        if not self.axes:
            raise UsageError(f"'{self.name}' has no axes.", "It is a single number.", "Use its values.")
        axis, labels = self.axes[0], self.labels[0]
        if isinstance(which, str):
            found = [n for n, label in enumerate(labels) if label == which]
            found = found or [n for n, label in enumerate(labels) if label.strip() == which]
            if len(found) == 1:
                return found[0]
            if found:
                raise UsageError(
                    f"'{which}' is not the only {axis} with this label.",
                    f"It stands at {', '.join(map(str, found))}, counted from 0.",
                    "Use one of these numbers.",
                )
            raise UsageError(
                f"'{self.name}' has no {axis} '{which}'.", "There is no such label.", did_you_mean(which, labels)
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
            f"One of the first axis, {axis}, is needed.",
            "For anything else, such as slices, use its values.",
        )

    def _of_each(self, note: Any) -> bool:
        """Whether a note has something for each number."""
        return isinstance(note, list) and np.array(note, dtype=object).shape == self.values.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.values, dtype=dtype)

    @property
    def columns(self) -> list[str]:
        """What `rows` have, each by another name."""
        names = _columns(self.axes, self._numbered, self._words is not None)
        return [*names, "value" if self.name in names else self.told]

    @property
    def told(self) -> str:
        """The name, and the unit where there is one."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def rows(self) -> Iterator[list[Any]]:
        """One row for each number: what it is about, and the number.

        Labels that may recur, such as tokens, come after their number, from 1; then the word that was found there.
        """
        return self._rows(self._numbered, self._words is not None)

    def _rows(self, numbered: Sequence[bool], with_words: bool) -> Iterator[list[Any]]:
        words = self._words
        for index, labels in zip(np.ndindex(self.values.shape), itertools.product(*self.labels), strict=True):
            places = [[n + 1, label] if two else [label] for n, label, two in zip(index, labels, numbered, strict=True)]
            word = ["" if words is None else words[index]] if with_words else []
            yield [*itertools.chain(*places), *word, _known(self.values[index].item())]

    @property
    def _numbered(self) -> list[bool]:
        """Of each axis, whether its labels may recur."""

        def counted(labels: list[str]) -> bool:
            return any(labels == [str(n + first) for n in range(len(labels))] for first in (0, 1))

        return [axis in TEXTS and not counted(labels) for axis, labels in zip(self.axes, self.labels, strict=True)]

    @property
    def _words(self) -> NDArray[Any] | None:
        """One for each number, where there are any."""
        words = np.array(self.notes.get("words"), dtype=object)
        return words if words.shape == self.values.shape and self.notes.get("words") is not None else None

    def to_json(self) -> dict[str, Any]:
        content = {"name": self.name, "unit": self.unit, "axes": list(self.axes), "labels": list(self.labels)}
        return content | {"values": _known(self.values.tolist())} | self.notes

    def to_csv(self) -> str:
        return _csv(self.columns, self.rows())

    def _repr_html_(self) -> str:
        """As notebooks show it: a matrix as a table, anything else as a list of numbers."""
        caption = self.told
        if self.values.ndim != 2:
            shown = list(itertools.islice(self.rows(), MOST_ROWS))
            left_out = f", the first {MOST_ROWS} of {self.values.size:,}" if self.values.size > MOST_ROWS else ""
            return html_table(f"{caption}{left_out}", self.columns, shown)
        left_out = f", the beginning of {self.size}" if max(self.values.shape) > MOST_ROWS else ""
        words = self._words
        rows = [
            [label, *(value if words is None else f"{words[row, n]} {_short(value)}" for n, value in enumerate(values))]
            for row, (label, values) in enumerate(
                zip(self.labels[0], self.values[:MOST_ROWS, :MOST_ROWS], strict=False)
            )
        ]
        return html_table(f"{caption}{left_out}", ["", *self.labels[1][:MOST_ROWS]], rows, named_rows=True)


class ByName(dict[str, Named]):
    """Several arrays by name: told in a line, and in a notebook as tables."""

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{name!r}: {array.size}' for name, array in self.items())}}}"

    def _repr_html_(self) -> str:
        return "".join(array._repr_html_() for array in self.values())


class Together:
    """What was measured together, as fields of a dataclass: told in a line, as JSON, and in a notebook.

    Shown are the arrays among the fields, of which one may be several by name, and `facts`.
    """

    @property
    def facts(self) -> dict[str, Any]:
        """What else there is to say: fields that are a number or a word."""
        every = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in every.items() if isinstance(value, str | int | float)}

    @property
    def arrays(self) -> dict[str, Named | dict[str, Named]]:
        every = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in every.items() if isinstance(value, Named) or _several(value)}

    def __repr__(self) -> str:
        told = [f"{name}={_short(value)}" for name, value in self.facts.items()]
        told += [f"{name}: {array.size}" for name, array in self._each()]
        return f"{type(self).__name__}({', '.join(told)})"

    def to_json(self) -> dict[str, Any]:
        def plain(array: Named | dict[str, Named]) -> dict[str, Any]:
            return (
                array.to_json() if isinstance(array, Named) else {name: each.to_json() for name, each in array.items()}
            )

        return {**_known(self.facts), **{name: plain(array) for name, array in self.arrays.items()}}

    def _repr_html_(self) -> str:
        facts = html_table(type(self).__name__, [], [[*each] for each in self.facts.items()], named_rows=True)
        parts = [f"<h4>{html.escape(name)}</h4>{array._repr_html_()}" for name, array in self._each()]
        return "".join([facts, *parts])

    def _each(self) -> Iterator[tuple[str, Named]]:
        for name, array in self.arrays.items():
            yield from [(name, array)] if isinstance(array, Named) else array.items()


def csv_of(arrays: Sequence[Named]) -> str:
    """Those that have the axes of the first. Where they are several, the first column names the array."""
    alike = with_axes_of_first(arrays)
    if len(alike) == 1:
        return alike[0].to_csv()
    numbered = [any(axis) for axis in zip(*(array._numbered for array in alike), strict=True)]
    with_words = any(array._words is not None for array in alike)
    rows = ([array.told, *row] for array in alike for row in array._rows(numbered, with_words))
    return _csv(["array", *_columns(alike[0].axes, numbered, with_words), "value"], rows)


def with_axes_of_first(arrays: Sequence[Named]) -> list[Named]:
    return [array for array in arrays if array.axes == arrays[0].axes]


def _columns(axes: Sequence[str], numbered: Sequence[bool], with_words: bool) -> list[str]:
    """What stands before each number of a table."""
    names = [[f"{axis} number", axis] if two else [axis] for axis, two in zip(axes, numbered, strict=True)]
    return [*itertools.chain(*names), *(["word"] if with_words else [])]


def _csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return file.getvalue()


def _several(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(each, Named) for each in value.values())


def html_table(caption: str, head: Sequence[str], rows: Sequence[Sequence[Any]], named_rows: bool = False) -> str:
    """Of HTML. `named_rows`: the first cell of each says what the others are about."""

    def cell(value: Any, tag: str) -> str:
        return f"<{tag}>{html.escape(_short(value))}</{tag}>"

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
    """`axes`: the name of each, and what stands along it."""
    array = values.detach().float().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    return Named(name, array, tuple(axis for axis, _ in axes), tuple(list(labels) for _, labels in axes), unit, notes)


def _known(value: Any) -> Any:
    """None for NaN: what there is not, such as a head that a layer does not have. JSON has no other word for it."""
    if isinstance(value, list):
        return [_known(each) for each in value]
    if isinstance(value, dict):
        return {name: _known(each) for name, each in value.items()}
    return None if isinstance(value, float | np.floating) and math.isnan(value) else value


def _short(cell: Any) -> str:
    if isinstance(cell, list | tuple):
        return ", ".join(map(_short, cell))
    if cell is None or _known(cell) is None:
        return ""
    return f"{cell:.3f}" if isinstance(cell, float | np.floating) else str(cell)
