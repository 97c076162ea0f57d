"""Figures as PNG and SVG.

Figures are made as `matplotlib.figure.Figure`, not with pyplot: no display is looked for, and none stays open. In an
SVG text stays text, which can be searched, and which a browser draws with any font that it has.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import font_manager
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from regard.files import write_atomically

DOTS_PER_INCH = 150
WEIGHTS = "cividis"  # from 0 up; made for colour-blind people
# From orange, below 0, to blue, as on the page of `regard explore`; told apart by colour-blind people.
SIGNED = "orange-blue"
STOPS = ["#7f3b08", "#b35806", "#e08214", "#fdb863", "#f7f7f7", "#92c5de", "#4393c3", "#2166ac", "#053061"]
matplotlib.colormaps.register(LinearSegmentedColormap.from_list(SIGNED, STOPS), force=True)
POSITIVE, NEGATIVE = "#2166ac", "#b35806"  # of bars
# After DejaVu, which has no East Asian scripts: what of these is installed.
FALLBACK = ("Noto Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans Arabic", "Noto Sans Devanagari", "Unifont")
# No dates and no addresses: the same picture is the same file, and names nothing outside it.
NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


@contextmanager
def drawing() -> Iterator[None]:
    """Inside, text is what it is, with dollar signs that are not mathematics, and in all fonts that are there."""
    style: Any = {
        "text.parse_math": False,
        "font.family": _fonts(),
        "svg.fonttype": "none",
        "svg.hashsalt": "regard",
        "axes.unicode_minus": True,
    }
    with matplotlib.rc_context(style), warnings.catch_warnings(), _quiet("matplotlib.font_manager"):
        # A script that no font has is drawn as boxes; the user can do nothing about it here.
        warnings.filterwarnings("ignore", message=".*Glyph .* missing from")
        yield


def rendered(figure: Figure, ending: str = ".png", whole: bool = False) -> bytes:
    """The figure as a PNG or an SVG. `whole`: with what stands beyond its edges."""
    content = io.BytesIO()
    options: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.12} if whole else {}
    options |= {"metadata": NO_METADATA} if ending == ".svg" else {}
    with drawing():
        figure.savefig(content, format=ending.removeprefix("."), dpi=DOTS_PER_INCH, **options)
    return content.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write a PNG, whole or not at all."""
    write(rendered(figure), path)


def write(content: bytes, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)


def shortened(name: str, longest: int) -> str:
    """A name that is too long loses its middle: names differ at the start and at the end."""
    if len(name) <= longest:
        return name
    end = longest // 2
    return f"{name[: longest - end - 1]}…{name[-end:]}"


@cache
def _fonts() -> list[str]:
    installed = set(font_manager.get_font_names())
    return ["DejaVu Sans", *(name for name in FALLBACK if name in installed), "sans-serif"]


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
