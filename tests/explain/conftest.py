"""Fixtures for tests of figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure

from regard.explain.explanation import Explanation
from regard.explain.view import Choice, explain
from regard.inside.subject import Subject
from regard.inside.trace import Trace, trace
from small_models import make_subject


@pytest.fixture
def saved_figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """A list that collects every figure that is saved from now on."""
    figures: list[Figure] = []
    original = Figure.savefig

    def keep(figure: Figure, *arguments: Any, **options: Any) -> None:
        figures.append(figure)
        original(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


@dataclass
class Run:
    """As much of a loaded run as explanations need, with one fixed input."""

    looked_at: Subject
    folder: Any = field(default_factory=lambda: SimpleNamespace(path=Path("runs/small")))
    about: Any = field(default_factory=lambda: SimpleNamespace(noun="a small model", verb="evaluate"))

    def __post_init__(self) -> None:
        self.model, self.traced = self.looked_at.model, trace(self.looked_at)

    def subject(self, text: str) -> Subject:
        return self.looked_at

    def trace(self, text: str) -> Trace:
        return self.traced

    def explain(self, what: str = "", **choice: Any) -> Explanation:
        return explain(self, ("given",), what, Choice(**choice))


@pytest.fixture(scope="session")
def run() -> Callable[..., Run]:
    """A function that returns a run with random weights, by its kind: run("translator")."""
    runs: dict[str, Run] = {}

    def get(name: str, **options: Any) -> Run:
        key = f"{name} {sorted(options.items())}"
        if key not in runs:
            runs[key] = Run(make_subject(name, **options))
        return runs[key]

    return get
