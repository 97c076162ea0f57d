"""What several tests of figures need."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure


@pytest.fixture
def saved_figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """A list to which every figure is added that is saved from now on."""
    figures: list[Figure] = []
    original = Figure.savefig

    def keep(figure: Figure, *arguments: Any, **options: Any) -> None:
        figures.append(figure)
        original(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures
