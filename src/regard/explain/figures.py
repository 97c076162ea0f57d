"""Figures as PNG and SVG.

Figures are `matplotlib.figure.Figure`, not pyplot: no display is needed, and none stays open. Text in an SVG stays
text: it can be searched, and the browser chooses a font that has its characters.
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
WEIGHTS = "cividis"  # from 0 up; designed for colour blindness
# From orange, below 0, to blue, as on the page of `regard explore`; distinguishable with colour blindness.
SIGNED = "orange-blue"
STOPS = ["#7f3b08", "#b35806", "#e08214", "#fdb863", "#f7f7f7", "#92c5de", "#4393c3", "#2166ac", "#053061"]
matplotlib.colormaps.register(LinearSegmentedColormap.from_list(SIGNED, STOPS), force=True)
POSITIVE, NEGATIVE = "#2166ac", "#b35806"  # of bars
# After DejaVu, which has no East Asian scripts: those of these that are installed.
FALLBACK = ("Noto Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans Arabic", "Noto Sans Devanagari", "Unifont")
# No dates and no URLs: the same picture is the same file.
NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


@contextmanager
def drawing() -> Iterator[None]:
    """Inside, text is drawn literally, with dollar signs that are not formulas, and with fallback fonts."""
    style: Any = {
        "text.parse_math": False,
        "font.family": _fonts(),
        "svg.fonttype": "none",
        "svg.hashsalt": "regard",
        "axes.unicode_minus": True,
    }
    with matplotlib.rc_context(style), warnings.catch_warnings(), _quiet("matplotlib.font_manager"):
        # Characters that no font has are drawn as boxes; a warning would not help.
        warnings.filterwarnings("ignore", message=".*Glyph .* missing from")
        yield


def rendered(figure: Figure, extension: str = ".png", whole: bool = False) -> bytes:
    """The figure as PNG or SVG. `whole`: with text beyond its edges."""
    content = io.BytesIO()
    options: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.12} if whole else {}
    options |= {"metadata": NO_METADATA} if extension == ".svg" else {}
    with drawing():
        figure.savefig(content, format=extension.removeprefix("."), dpi=DOTS_PER_INCH, **options)
    return content.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write a PNG atomically."""
    write(rendered(figure), path)


def write(content: bytes, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)


def shortened(name: str, longest: int) -> str:
    """Long names lose their middle, since names differ at the start and at the end."""
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
