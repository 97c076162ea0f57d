"""What is shown: named numbers, a drawing of them, and how exact they are."""

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

NARROWEST = 6.0  # inches that a title may take, however narrow the picture is
LETTERS = (0.085, 0.068, 0.06)  # widths of a letter: of the title, of what stands below it, and of what was checked
LINE = 0.175
MOST_LETTERS = 320  # of an input or an output in a title


@dataclass(frozen=True)
class Shown:
    title: str
    arrays: list[Named]  # the main one first
    draw: Callable[[], Figure]
    remarks: list[str] = field(default_factory=list)  # what was chosen, left out or reduced
    facts: dict[str, Any] = field(default_factory=dict)  # what else is told in JSON
    faithful: str = ""  # how far one may believe it, where that can be measured
    what: str = ""
    run: str = ""
    input_text: str = ""
    output_text: str = ""
    difference: float | None = None  # between the model's own logits and those recomputed from the formulas

    def __repr__(self) -> str:
        """In a few lines; the numbers are `arrays`."""
        return "\n".join(
            [f"Shown({self.title})", *(f"  {line}" for line in [*self.about, *self.checks, *map(repr, self.arrays)])]
        )

    @property
    def about(self) -> list[str]:
        """The input and what the model made of it, on one line; then remarks."""
        both = " → ".join(_short(text) for text in (self.input_text, self.output_text) if text)
        return [line for line in (both, *self.remarks) if line]

    @property
    def checks(self) -> list[str]:
        """What was measured to show that this is what the model computed."""
        lines = [self.faithful] if self.faithful else []
        if self.difference is not None:
            lines.append(f"recomputed from the formulas: logits differ by at most {self.difference:.1e}")
        return lines

    def figure(self) -> Figure:
        """The drawing, its title above it, and what was checked below. Text may stand beyond the edges."""
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

    def rendered(self, ending: str) -> bytes:
        return rendered(self.figure(), ending, whole=True)

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "what": self.what,
            "title": self.title,
            "input": self.input_text,
            "output": self.output_text,
            "difference": self.difference,
            "remarks": [*self.remarks, *([self.faithful] if self.faithful else [])],
            **self.facts,
            "arrays": {array.name: array.to_json() for array in self.arrays},
        }

    def save(self, path: Path | str) -> None:
        """As the ending says: .png, .svg, .html, .json or .csv."""
        from regard.explain.writing import write

        write(self, Path(path))

    def _repr_svg_(self) -> str:
        """As notebooks show it."""
        return self.rendered(".svg").decode()


def _short(text: str) -> str:
    shown = " ".join(map(visible, text.split(" "))) if text.strip(" ") else visible(text)
    return shown if len(shown) <= MOST_LETTERS else f"{shown[: MOST_LETTERS - 1]}…"
