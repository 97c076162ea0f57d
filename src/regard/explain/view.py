"""View: a run, an input, and the choice of what to explain; and the explanation of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib import import_module
from typing import Any

from pydantic import TypeAdapter, ValidationError

from regard import console
from regard.errors import UsageError, did_you_mean
from regard.explain.explanation import Explanation
from regard.explain.kinds import check_choices, find, parameters, refuse_input
from regard.inside.subject import Subject
from regard.inside.trace import Trace


@dataclass(frozen=True)
class Choice:
    """Options of a kind. Layers, heads and answers are counted from 1; None: all, or the default of the kind."""

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
        """The names of options that are not at their defaults."""
        return [option.name for option in fields(self) if getattr(self, option.name) != option.default]


def make_choice(options: Mapping[str, Any]) -> Choice:
    """The options that `run.explain` was given; a UsageError if one is unknown or of the wrong kind."""
    known = [option.name for option in fields(Choice)]
    for name in options:
        if name not in known:
            raise UsageError(
                f"Unknown option '{name}'.", f"The options are {', '.join(known)}.", did_you_mean(name, known)
            )
    try:
        return TypeAdapter(Choice).validate_python(dict(options))
    except ValidationError as error:
        [problem, *_] = error.errors()
        name = str(problem["loc"][0])
        raise UsageError(
            f"{name} = {options[name]!r} cannot be used.", f"{problem['msg']}.", f"Correct {name}, or leave it out."
        ) from None


class View:
    """A loaded run, its input and the options; traced when first needed."""

    def __init__(self, task: Any, given: tuple[Any, ...] = (), choice: Choice | None = None):
        self.task, self.given, self.choice = task, given, choice or Choice()
        self.warnings: list[str] = []  # such as that the input was cut

    @cached_property
    def trace(self) -> Trace:
        with console.collecting() as self.warnings:
            trace: Trace = self.task.trace(*self.given)
        return trace

    @property
    def subject(self) -> Subject:
        return self.trace.subject

    def answer(self) -> int:
        """The index of the chosen answer, from 0."""
        if self.choice.answer is None:
            return self.trace.first_answer
        return _index("answer", self.choice.answer, len(self.subject.answers))

    def token(self, answer: int) -> int:
        """The id of the chosen token, by default that of the answer."""
        return self.trace.token(self.choice.token or None, answer)

    def layers(self, count: int) -> range:
        """The chosen ones of `count` layers, from 0."""
        return _range("layer", self.choice.layer, count)

    def heads(self, count: int) -> range:
        return _range("head", self.choice.head, count)


def explain(task: Any, given: tuple[Any, ...] = (), what: str = "", choice: Choice | None = None) -> Explanation:
    """An explanation of a loaded run, and of an input if the kind takes one."""
    view = View(task, given, choice)
    name = what or default_kind(view)
    kind = find(name)
    check_choices(name, view.choice.changed)
    if kind.input == "none" and given:
        refuse_input(name)
    module, _, function = kind.maker.partition(":")
    make: Callable[[View], Explanation] = getattr(import_module(f"regard.explain.{module}"), function)
    explanation = replace(make(view), what=name, run=str(task.folder.path))
    if kind.input == "none" or (kind.input == "optional" and not given):
        return explanation
    trace = view.trace
    return replace(
        explanation,
        remarks=[*dict.fromkeys(view.warnings), *explanation.remarks],
        input_text=explanation.input_text or trace.subject.input_text,
        output_text=explanation.output_text or trace.output_text,
        difference=trace.difference,
    )


def default_kind(view: View) -> str:
    """The kind that fits a run best."""
    if "context" in parameters(view.task):
        return "attribution"
    return "attention" if any(part.attends for part in view.trace.parts()) else "influence"


def _range(what: str, chosen: int | None, count: int) -> range:
    if chosen is None:
        return range(count)
    index = _index(what, chosen, count)
    return range(index, index + 1)


def _index(what: str, chosen: int, count: int) -> int:
    if not 1 <= chosen <= count:
        why = f"There {'is' if count == 1 else 'are'} {count} here, counted from 1."
        fix = f"Use {what} 1 to {count}." if count > 1 else f"Leave the {what} out."
        raise UsageError(f"There is no {what} {chosen}.", why, fix)
    return chosen - 1
