"""An explanation as a self-contained HTML page: no network, no script, no font."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from regard.explain.explanation import Explanation
from regard.explain.tokens import visible
from regard.inside.named import Named

MOST_NUMBERS = 20_000  # in tables; the rest is in a .json or .csv
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem }
body { color: #1b1b1b; background: #fff }
figure { margin: 1rem 0; overflow-x: auto }
svg { max-width: 100%; height: auto }
.numbers { overflow-x: auto }
table { border-collapse: collapse; font-size: .8rem; margin: .5rem 0 1.5rem }
caption { text-align: left; font-weight: 600; padding: .3rem 0 }
th, td { border: 1px solid #c9c9c9; padding: .15rem .45rem; text-align: right; font-variant-numeric: tabular-nums }
th { background: #f2f2f2; font-weight: 500; white-space: nowrap }
dt { font-weight: 600 } dd { margin: 0 0 .4rem }
@media (prefers-color-scheme: dark) {
  body { color: #eee; background: #161616 } th { background: #2a2a2a } th, td { border-color: #555 }
  figure { background: #fff; padding: .5rem }
}
"""


def page(explanation: Explanation) -> str:
    facts = {
        "Run": explanation.run,
        "Input": explanation.input_text,
        "Output": explanation.output_text,
        "Checks": "; ".join(explanation.checks),
    }
    about = "".join(f"<dt>{name}</dt><dd>{_escaped(text)}</dd>" for name, text in facts.items() if text)
    remarks = "".join(f"<p>{_escaped(remark)}</p>" for remark in explanation.remarks)
    left = MOST_NUMBERS
    tables = []
    for array in explanation.arrays:
        tables.append(_tables(array, left))
        left = max(0, left - array.values.size)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escaped(explanation.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{_escaped(explanation.title)}</h1>\n<dl>{about}</dl>\n{remarks}\n"
        f"<figure>\n{_inline(explanation)}\n</figure>\n<h2>Numbers</h2>\n{''.join(tables)}</main>\n</body>\n</html>\n"
    )


def _inline(explanation: Explanation) -> str:
    """The picture as inline SVG, with a label for screen readers."""
    svg = explanation.rendered(".svg").decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg)  # implied in HTML
    label = f"{_escaped(explanation.title)}. The numbers are below."
    return svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def _tables(array: Named, most: int) -> str:
    """A list, or a matrix for each index of the axes before the last two."""
    name = array.name_with_unit
    if array.values.size > most:
        count = f"{array.values.size:,} numbers"
        return f"<p>{_escaped(name)}: {count}, too many for a page. Use .json or .csv.</p>"
    if array.values.ndim < 2:
        head = _row([*array.axes, name], header=True)
        rows = "".join(_row([label, value]) for label, value in zip(array.labels[0], array.values, strict=True))
        return _table(name, head, rows)
    tables = []
    for index, labels in _matrices(array):
        where = ", ".join(f"{axis} {label}" for axis, label in zip(array.axes, labels, strict=False))
        words = _words(array, index)
        head = _row([f"{array.axes[-2]} \\ {array.axes[-1]}", *array.labels[-1]], header=True)
        rows = "".join(
            _row([label, *_cells(row, words and words[number])])
            for number, (label, row) in enumerate(zip(array.labels[-2], array.values[index], strict=True))
        )
        tables.append(_table(f"{name}, {where}" if where else name, head, rows))
    return "".join(tables)


def _matrices(array: Named) -> Iterator[tuple[tuple[int, ...], tuple[str, ...]]]:
    before = array.values.shape[:-2]
    yield from zip(np.ndindex(before), itertools.product(*array.labels[: len(before)]), strict=True)


def _words(array: Named, index: tuple[int, ...]) -> Any:
    """The words whose probabilities a matrix has, if its notes have them."""
    words = array.notes.get("words")
    return words if words and not index else None


def _cells(row: Sequence[Any], words: Sequence[str] | None) -> list[str]:
    numbers = [_number(value) for value in row]
    return [f"{visible(word)} {number}" for word, number in zip(words, numbers, strict=True)] if words else numbers


def _table(caption: str, head: str, rows: str) -> str:
    return (
        f'<div class="numbers" tabindex="0" role="region" aria-label="{_escaped(caption)}"><table>'
        f"<caption>{_escaped(caption)}</caption><thead>{head}</thead><tbody>{rows}</tbody></table></div>\n"
    )


def _row(cells: Sequence[Any], header: bool = False) -> str:
    first, *others = cells
    if header:
        return "<tr>" + "".join(f'<th scope="col">{_escaped(str(cell))}</th>' for cell in cells) + "</tr>"
    values = "".join(f"<td>{_escaped(_number(cell))}</td>" for cell in others)
    return f'<tr><th scope="row">{_escaped(str(first))}</th>{values}</tr>'


def _number(value: Any) -> str:
    if isinstance(value, str):
        return value
    value = float(value)
    return "–" if np.isnan(value) else f"{value:.4g}"


def _escaped(text: str) -> str:
    return html.escape("".join(sign if sign.isprintable() else visible(sign) for sign in text))
