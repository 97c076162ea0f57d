"""Writing figures as PNG files.

Figures are made as `matplotlib.figure.Figure`, not with pyplot: no display is looked for, and none stays open.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

from matplotlib.figure import Figure

from regard.files import write_atomically

DOTS_PER_INCH = 150


def save(figure: Figure, path: Path) -> None:
    """Write a PNG, whole or not at all."""
    content = io.BytesIO()
    with warnings.catch_warnings():
        # A script that the font lacks is drawn as boxes; the user can do nothing about it here.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(content, format="png", dpi=DOTS_PER_INCH)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())


def shortened(name: str, longest: int) -> str:
    """A name that is too long loses its middle: names differ at the start and at the end."""
    if len(name) <= longest:
        return name
    end = longest // 2
    return f"{name[: longest - end - 1]}…{name[-end:]}"
