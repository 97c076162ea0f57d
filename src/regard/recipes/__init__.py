"""Recipes: one TOML for each experiment, ready-made or a user's own.

`resolve` turns a recipe and its overrides (`training.steps=500`) into the frozen settings of its task.
`to_toml` writes settings back, complete and commented: it is what `regard init` prints.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from regard import console, registry
from regard.errors import UsageError, did_you_mean
from regard.recipes.upgrade import upgrade
from regard.settings import PartSettings, Settings, TaskSettings
from regard.settings.parts import PartSection

DEFAULT_TASK = "translate"
SHOW_ALL = "Run `regard init {task}` for all settings."

AnySettings = TypeVar("AnySettings", bound=Settings)


# ---------------------------------------------------------------- reading


def recipe_names() -> list[str]:
    """The ready-made recipes that come with Regard."""
    return sorted(
        Path(entry.name).stem for entry in resources.files("regard.recipes").iterdir() if entry.name.endswith(".toml")
    )


def recipe_text(recipe: str) -> str:
    """The TOML text of a recipe, given by name or as a file."""
    path = Path(recipe)
    if path.suffix == ".toml" or path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"Cannot read the recipe '{recipe}'.",
                f"{error}",
                "Check the path, or run `regard recipes` for the ready-made ones.",
            ) from None
    if recipe not in recipe_names():
        raise UsageError(
            f"There is no recipe '{recipe}'.",
            "It is neither a ready-made recipe nor a .toml file here.",
            did_you_mean(recipe, recipe_names()) + " Run `regard recipes`.",
        )
    return (resources.files("regard.recipes") / f"{recipe}.toml").read_text(encoding="utf-8")


def recipe_summary(recipe: str) -> str:
    """The first line of a ready-made recipe: what it is."""
    return recipe_text(recipe).splitlines()[0].removeprefix("#").strip()


def resolve(recipe: str, overrides: Iterable[str] = ()) -> Any:
    """A recipe by name or path, with `section.key=value` overrides, as the complete settings of its task."""
    return complete(from_toml(recipe_text(recipe), name=Path(recipe).stem, overrides=overrides))


def from_toml(text: str, name: str = "", overrides: Iterable[str] = (), of_run: bool = False) -> Any:
    """The settings that a text and overrides give, checked as far as that needs no part's class.

    `of_run`: the text is a run's config.toml, in which settings of an earlier version are nothing to report.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"The recipe '{name}' cannot be read as TOML.",
            f"{error}",
            "Correct that line; `regard init translate` shows the form.",
        ) from None
    changes: dict[str, Any] = {}
    for override in overrides:
        _apply(changes, override)
    whole = _merge(deepcopy(tree), changes)
    upgrade(tree, whole, report=None if of_run else console.say)
    upgrade(changes, whole, report=console.say)
    tree = _merge(tree, changes)
    settings = validate({**tree, "recipe": tree.get("recipe") or name})
    _warn_of_idle_tables(settings, changes)
    return settings


def complete(settings: TaskSettings) -> Any:
    """Ask the parts that the settings name: what they object to is an error, and their own settings are filled in."""
    try:
        for problem in settings.check_parts():
            raise _misfit("", str(problem))
        return settings.completed()
    except ValidationError as error:
        kind = type(settings)
        section, part = _part_with(settings, error)
        raise _explained(error, kind, (section, part)) from None


def _part_with(settings: TaskSettings, error: ValidationError) -> tuple[str, str]:
    """The section and the part whose own settings are wrong."""
    for name, section in settings.sections().items():
        for setting in getattr(section, "PARTS", {}):
            if section.part(setting).Settings.__name__ == error.title:  # type: ignore[attr-defined]
                return name, getattr(section, setting)
    raise error


def validate(tree: Mapping[str, Any]) -> Any:
    """A nested dict as settings of its task; the first mistake becomes an error that names key, value and nearest."""
    task = tree.get("task", DEFAULT_TASK)
    if task not in registry.names("tasks"):
        known = did_you_mean(str(task), registry.names("tasks"))
        raise UsageError(f"The setting 'task' cannot be {task!r}.", "There is no such task.", known)
    kind = registry.load("tasks", task).Settings
    try:
        return kind.model_validate({**tree, "task": task})
    except ValidationError as error:
        raise _explained(error, kind) from None


def changed(settings: AnySettings, **changes: Any) -> AnySettings:
    """A section with some of its settings changed and checked again."""
    try:
        return type(settings).model_validate(settings.model_dump() | changes)
    except ValidationError as error:
        raise _explained(error, type(settings)) from None


def _apply(tree: dict[str, Any], override: str) -> None:
    """Set `a.b=value` in a nested dict; the value is read as TOML, or else as a plain string."""
    key, equals, value = override.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            f"'{override}' is not a setting.",
            "An override has the form section.key=value.",
            "For example: training.steps=500",
        )
    *sections, leaf = key.strip().split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise _not_a_section(key, section)
    try:
        tree[leaf] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        tree[leaf] = value


def _merge(tree: dict[str, Any], changes: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The tree with changes put in, section by section."""
    for key, value in changes.items():
        if isinstance(value, Mapping) and key in tree:
            if not isinstance(tree[key], dict):
                raise _not_a_section(f"{above}{key}.{next(iter(value), '')}", key)
            _merge(tree[key], value, f"{above}{key}.")
        else:
            tree[key] = value
    return tree


def _not_a_section(key: str, section: str) -> UsageError:
    return UsageError(
        f"'{key}' is not a setting.",
        f"'{section}' is a value, not a section.",
        "Run `regard init translate` for all keys.",
    )


def _warn_of_idle_tables(settings: TaskSettings, changes: Mapping[str, Any]) -> None:
    """The own settings of a part that is not used may be in a recipe; given in a command, they are a mistake."""
    for name, section in settings.sections().items():
        asked = changes.get(name)
        for setting in getattr(section, "PARTS", {}) if isinstance(asked, Mapping) else ():
            chosen = getattr(section, setting)
            for table in asked.keys() & set(registry.names(section.PARTS[setting])) - {chosen}:  # type: ignore
                console.warn(f'{name}.{table} has no effect: {name}.{setting} is "{chosen}".')


# ---------------------------------------------------------------- mistakes


def _explained(error: ValidationError, kind: type[Settings], above: tuple[str, ...] = ()) -> UsageError:
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
        return _misfit(key, str(context["error"]))
    description = _description(keys, kind)
    return UsageError(
        f"The setting '{key}' cannot be {value!r}.",
        first["msg"] + ".",
        f"'{keys[-1]}' is: {description}." if description else SHOW_ALL.format(task=_task_of(kind)),
    )


def _misfit(key: str, problem: str) -> UsageError:
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


# ---------------------------------------------------------------- writing


def starter_recipe(task: str) -> str:
    """A complete recipe to edit, small enough to train on a laptop."""
    about = registry.load("tasks", task).about
    if not about.starter:
        return to_toml(validate({"task": task}))
    settings = from_toml(recipe_text(about.starter), name=about.starter)
    return f"# {about.advice}\n" + to_toml(settings.model_copy(update={"recipe": ""}))


def flat(settings: TaskSettings) -> dict[str, Any]:
    """Every setting by its whole name: {"model.width": 128, "model.hyena.order": 2, …}."""

    def listed(tree: Mapping[str, Any], above: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in tree.items():
            values |= listed(value, f"{above}{name}.") if isinstance(value, dict) else {above + name: value}
        return values

    return listed(settings.model_dump(), "")


def to_toml(settings: TaskSettings) -> str:
    """A complete recipe with a comment on every line."""
    lines = [_line(settings, name) for name in ("task", "recipe", "seed")]
    for name, section in settings.sections().items():
        lines += ["", f"[{name}]", *(_line(section, key) for key in type(section).model_fields)]
        if isinstance(section, PartSection):
            for table, values in (section.model_extra or {}).items():
                lines += ["", f"[{name}.{table}]", *_table(section, table, values)]
    return "\n".join(lines) + "\n"


def _table(section: PartSection, table: str, values: Mapping[str, Any]) -> list[str]:
    """The own settings of a part, with comments where its class is known already."""
    setting = next((key for key in section.PARTS if getattr(section, key) == table), None)
    fields = section.part(setting).Settings.model_fields if setting else {}
    comments = {key: fields[key].description for key in values if key in fields}
    return [_commented(key, value, comments.get(key)) for key, value in values.items()]


def _line(settings: Settings, name: str) -> str:
    return _commented(name, getattr(settings, name), type(settings).model_fields[name].description)


def _commented(name: str, value: Any, comment: str | None) -> str:
    assignment = f"{name} = {toml_value(value)}"
    return f"{assignment:<35} # {comment}" if comment else assignment


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A JSON string is a TOML string, but for one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return repr(value)
