"""Tables as text: for a terminal, laid out by rich, and in Markdown.

`align` has one sign for each column: < for text, > for numbers. Without it, the first column is text. A table may have
no head.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

GAP = 2  # spaces between two columns
NARROWEST = 16  # cells of a column of text, before the table is wider than the terminal
ENDLESS = 10**9  # cells: a file or a pipe has no width

Row = Sequence[str]


def text_table(head: Row, rows: Sequence[Row], align: str = "") -> str:
    """Columns without lines; on a terminal text is wrapped to fit, anywhere else nothing is."""
    align = align or _default(head)
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=bool(head))
    head = head or [""] * len(align)
    for name, side in zip(head, align, strict=True):
        table.add_column(Text(name), justify="left" if side == "<" else "right", no_wrap=side == ">", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    needed = [NARROWEST if side == "<" else width for side, width in zip(align, _widths(head, rows), strict=True)]
    console.width = max(console.width, sum(needed) + GAP * len(head)) if console.is_terminal else ENDLESS
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def markdown_table(head: Row, rows: Sequence[Row], align: str = "") -> str:
    """A table in Markdown, whose columns are aligned in the source too."""
    align = align or _default(head)
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = _widths(head, rows)

    def line(row: Row) -> str:
        cells = [
            cell + gap if side == "<" else gap + cell
            for cell, side, width in zip(row, align, widths, strict=True)
            for gap in [" " * (width - cell_len(cell))]
        ]
        return f"| {' | '.join(cells)} |"

    rule = ["-" * (width - 1) + ("-" if side == "<" else ":") for side, width in zip(align, widths, strict=True)]
    return "\n".join([line(head), f"| {' | '.join(rule)} |", *map(line, rows)])


def _default(head: Row) -> str:
    return "<" + ">" * (len(head) - 1)


def _widths(head: Row, rows: Sequence[Row]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(head, *rows, strict=True)]
