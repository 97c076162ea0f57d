"""What is asked for: which run, which input, and which part of what is inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib import import_module
from typing import Any

from regard.errors import UsageError
from regard.explain.kinds import find, must_have_effect, parameters, refuse_input
from regard.explain.shown import Shown
from regard.inside.subject import Subject
from regard.inside.trace import Trace


@dataclass(frozen=True)
class Choice:
    """Which part. Layers, heads and answers are counted from 1; None: all, or what the kind takes by itself."""

    stack: str = ""
    layer: int | None = None
    head: int | None = None
    answer: int | None = None
    token: str = ""
    method: str = ""
    reading: str = ""  # of an alignment
    count: int = 10  # candidates
    temperature: float = 1.0

    @property
    def changed(self) -> list[str]:
        """What was chosen."""
        return [each.name for each in fields(self) if getattr(self, each.name) != each.default]


class View:
    """A loaded run and one input of it, which is looked into when that is needed."""

    def __init__(self, task: Any, given: tuple[Any, ...] = (), choice: Choice | None = None):
        self.task, self.given, self.choice = task, given, choice or Choice()

    @cached_property
    def trace(self) -> Trace:
        trace: Trace = self.task.trace(*self.given)
        return trace

    @property
    def subject(self) -> Subject:
        return self.trace.subject

    def answer(self) -> int:
        """Which of the things that the model said, counted from 0."""
        if self.choice.answer is None:
            return self.trace.first_answer
        return _numbered("answer", self.choice.answer, len(self.subject.answers))

    def token(self, answer: int) -> int:
        """The word or class asked for, or what the model said there."""
        return self.trace.token(self.choice.token or None, answer)

    def layers(self, count: int) -> range:
        """Which of so many layers, counted from 0."""
        return _range("layer", self.choice.layer, count)

    def heads(self, count: int) -> range:
        return _range("head", self.choice.head, count)


def explained(task: Any, given: tuple[Any, ...] = (), what: str = "", choice: Choice | None = None) -> Shown:
    """What is shown of a loaded run, and of an input where the kind is of one."""
    view = View(task, given, choice)
    name = what or fitting(view)
    kind = find(name)
    must_have_effect(name, view.choice.changed)
    if kind.input == "none" and given:
        refuse_input(name)
    module, _, function = kind.maker.partition(":")
    make: Callable[[View], Shown] = getattr(import_module(f"regard.explain.{module}"), function)
    shown = replace(make(view), what=name, run=str(task.folder.path))
    if kind.input == "none" or (kind.input == "optional" and not given):
        return shown
    trace = view.trace
    return replace(
        shown,
        input_text=shown.input_text or trace.subject.input_text,
        output_text=shown.output_text or trace.output_text,
        difference=trace.difference,
    )


def fitting(view: View) -> str:
    """The kind that fits a run best, where none is asked for."""
    if "context" in parameters(view.task):
        return "attribution"
    return "attention" if any(part.attends for part in view.trace.parts()) else "influence"


def _range(what: str, chosen: int | None, count: int) -> range:
    if chosen is None:
        return range(count)
    number = _numbered(what, chosen, count)
    return range(number, number + 1)


def _numbered(what: str, chosen: int, count: int) -> int:
    if not 1 <= chosen <= count:
        there = f"There {'is' if count == 1 else 'are'} {count} here."
        raise UsageError(f"There is no {what} {chosen}.", there, f"Use --{what} {count} or less.")
    return chosen - 1
