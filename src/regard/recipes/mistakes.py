"""Mistakes in settings, in three lines: which key, why, and the nearest that would do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from regard import registry
from regard.errors import UsageError, did_you_mean
from regard.settings import PartSettings, Settings

DEFAULT_TASK = "translate"


def explained(error: ValidationError, kind: type[Settings], above: tuple[str, ...] = ()) -> UsageError:
    """The first mistake that pydantic found, in three lines."""
    first = error.errors()[0]
    context = first.get("ctx", {})
    keys = [*above, *_real_keys(kind if not above else None, first["loc"])]
    if "key" in context:  # a table that is named after no part
        keys.append(context["key"])
    key, value = ".".join(keys), context.get("value", first["input"])
    if first["type"] == "extra_forbidden":
        return _unknown_key(keys, value, kind)
    if first["type"] == "value_error":
        return misfit(key, str(context["error"]))
    description = _description(keys, kind)
    return UsageError(
        f"The setting '{key}' cannot be {value!r}.",
        first["msg"] + ".",
        f"'{keys[-1]}' is: {description}." if description else f"Run `regard init {_task_of(kind)}` for all settings.",
    )


def misfit(key: str, problem: str) -> UsageError:
    reason, _, advice = problem.partition(";")
    return UsageError(
        f"The settings{' in [' + key + ']' if key else ''} do not fit together.",
        reason + ".",
        _sentence(advice.strip() or "change one of them"),
    )


def _unknown_key(keys: list[str], value: Any, kind: type[Settings]) -> UsageError:
    task = _task_of(kind)
    # Of a section that this task does not have, the first setting.
    whole = [*keys, str(next(iter(value)))] if isinstance(value, Mapping) and value else keys
    if other := _in_another_task(whole, task):
        return UsageError(
            f"'{'.'.join(whole)}' has no effect on the task '{task}'.",
            f"It is: {other}.",
            f"Leave it out; `regard init {task}` shows what there is.",
        )
    where = f"the section [{'.'.join(keys[:-1])}]" if keys[:-1] else "a recipe"
    return UsageError(
        f"Unknown setting '{'.'.join(keys)}' (value {value!r}).",
        f"There is no such key in {where}.",
        _nearest_setting(keys, kind),
    )


def _real_keys(kind: Any, location: tuple[int | str, ...]) -> list[str]:
    """Only real keys: a union type adds the names of its branches to a location."""
    keys: list[str] = []
    for part in location:
        if kind is not None and not (isinstance(kind, type) and issubclass(kind, Settings)):
            break
        keys.append(str(part))
        kind = _annotation(kind, str(part))
    return keys


def _annotation(kind: Any, name: str) -> Any:
    field = kind.model_fields.get(name) if kind is not None else None
    return field.annotation if field else None


def _sentence(text: str) -> str:
    # A setting's name keeps its small letter.
    starts_with_name = "." in text.split(" ")[0] or "_" in text.split(" ")[0]
    return (text if starts_with_name else text[0].upper() + text[1:]) + "."


def _task_of(kind: type[Settings]) -> str:
    """The task whose settings these are."""
    for name in registry.names("tasks"):
        if registry.load("tasks", name).Settings is kind:
            return name
    return DEFAULT_TASK


def _sections_of(kind: type[Settings]) -> dict[str, type[Settings]]:
    annotations = {name: field.annotation for name, field in kind.model_fields.items()}
    return {name: a for name, a in annotations.items() if isinstance(a, type) and issubclass(a, Settings)}


def _in_another_task(keys: list[str], task: str) -> str:
    """What a setting is that this task does not have, but another has."""
    for name in registry.names("tasks"):
        if name != task and (description := _description(keys, registry.load("tasks", name).Settings)):
            return description
    return ""


def _nearest_setting(keys: list[str], kind: type[Settings]) -> str:
    """The key of the same name in another section, or else the nearest name beside it."""
    sections = _sections_of(kind)
    for section, fields in sections.items():
        if keys[-1] in fields.model_fields:
            return f"Did you mean '{section}.{keys[-1]}'?"
    inside = sections.get(keys[0]) if len(keys) > 1 else kind
    tables = [name for part in getattr(inside, "PARTS", {}).values() for name in registry.names(part)]
    own = _own_settings(keys)
    if own is not None and not own.model_fields:
        return f"'{keys[1]}' has no settings of its own: leave the table out."
    known = own.model_fields if own else inside.model_fields if inside else kind.model_fields
    return did_you_mean(keys[-1], [*known, *(tables if not own else [])])


def _own_settings(keys: list[str]) -> type[PartSettings] | None:
    """The settings of the part that a key of three words is of."""
    if len(keys) < 3:
        return None
    kinds = [kind for kind in registry.KINDS if kind != "tasks" and keys[1] in registry.names(kind)]
    return registry.load(kinds[0], keys[1]).Settings if kinds else None


def _description(keys: list[str], kind: type[Settings]) -> str:
    current: Any = kind
    for depth, key in enumerate(keys):
        if depth == 2:
            current = _own_settings(keys)
        if not (isinstance(current, type) and issubclass(current, Settings)) or key not in current.model_fields:
            if depth == 1:  # perhaps the name of a part
                continue
            return ""
        if depth == len(keys) - 1:
            return current.model_fields[key].description or ""
        current = current.model_fields[key].annotation
    return ""
