"""What several tests of pictures need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from matplotlib.figure import Figure


@pytest.fixture
def figures_saved_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType], list[Figure]]:
    """A list to which every figure is added that a module saves from now on."""

    def keep_those_of(module: ModuleType) -> list[Figure]:
        figures: list[Figure] = []
        original = module.save

        def keep(figure: Figure, path: Path) -> None:
            figures.append(figure)
            original(figure, path)

        monkeypatch.setattr(module, "save", keep)
        return figures

    return keep_those_of
