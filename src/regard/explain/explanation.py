"""Explanation: the result of `run.explain`: named arrays, a drawing of them, and checks of how exact they are."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.explain.figures import drawing, rendered
from regard.explain.tokens import visible
from regard.inside.named import Named

NARROWEST = 6.0  # inches available to a title, however narrow the picture is
LETTERS = (0.085, 0.068, 0.06)  # inches per letter: of the title, of the lines below it, and of the checks
LINE = 0.175
MOST_LETTERS = 320  # of the input and the output


@dataclass(frozen=True)
class Explanation:
    title: str
    arrays: list[Named]  # the main one first
    draw: Callable[[], Figure]
    remarks: list[str] = field(default_factory=list)  # what was chosen, left out or reduced
    facts: dict[str, Any] = field(default_factory=dict)  # further content of the JSON
    faithfulness: str = ""  # in one line, if it can be measured
    what: str = ""
    run: str = ""
    input_text: str = ""
    output_text: str = ""
    difference: float | None = None  # between the model's own logits and those recomputed from the formulas

    def __repr__(self) -> str:
        """A few lines, without the numbers."""
        return "\n".join(
            [
                f"Explanation({self.title})",
                *(f"  {line}" for line in [*self.about, *self.checks, *map(repr, self.arrays)]),
            ]
        )

    @property
    def about(self) -> list[str]:
        """Input and output on one line, then the remarks."""
        input_and_output = " → ".join(_short(text) for text in (self.input_text, self.output_text) if text)
        return [line for line in (input_and_output, *self.remarks) if line]

    @property
    def checks(self) -> list[str]:
        """How faithful the scores are, and how exact the recomputed numbers."""
        lines = [self.faithfulness] if self.faithfulness else []
        if self.difference is not None:
            lines.append(f"recomputed from the formulas: logits differ by at most {self.difference:.1e}")
        return lines

    def figure(self) -> Figure:
        """The drawing with the title above and the checks below. Text may extend beyond its edges."""
        with drawing():
            figure = self.draw()
            width, height = figure.get_size_inches()
            title, about, checks = (
                [line for text in texts for line in textwrap.wrap(text, int(max(NARROWEST, width) / letter))]
                for texts, letter in zip(([self.title], self.about, self.checks), LETTERS, strict=True)
            )
            top = 1 + (0.08 + LINE * len(about)) / height
            figure.text(0.0, top, "\n".join(title), fontsize=9, weight="bold", va="bottom", linespacing=1.2)
            figure.text(0.0, 1 + 0.08 / height, "\n".join(about), fontsize=8, va="bottom", linespacing=1.3)
            figure.text(0.0, -0.06 / height, "\n".join(checks), fontsize=7, color="0.35", va="top", linespacing=1.3)
        return figure

    def rendered(self, extension: str) -> bytes:
        return rendered(self.figure(), extension, whole=True)

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "what": self.what,
            "title": self.title,
            "input": self.input_text,
            "output": self.output_text,
            "difference": self.difference,
            "remarks": [*self.remarks, *([self.faithfulness] if self.faithfulness else [])],
            **self.facts,
            "arrays": {array.name: array.to_json() for array in self.arrays},
        }

    def save(self, path: Path | str) -> None:
        """The extension sets the format: .png, .svg, .html, .json or .csv."""
        from regard.explain.writing import write

        write(self, Path(path))

    def _repr_svg_(self) -> str:
        """For notebooks."""
        return self.rendered(".svg").decode()


def _short(text: str) -> str:
    printable = " ".join(map(visible, text.split(" "))) if text.strip(" ") else visible(text)
    return printable if len(printable) <= MOST_LETTERS else f"{printable[: MOST_LETTERS - 1]}…"
