"""Recipes: one TOML for each experiment, ready-made or a user's own.

`resolve` turns a recipe and its overrides (`training.steps=500`) into the frozen settings of its task.
`starter_recipe` is what `regard init` prints: complete, with a comment on every line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from regard import console, registry
from regard.errors import UsageError, did_you_mean
from regard.files import read_small
from regard.recipes.mistakes import DEFAULT_TASK, explained, misfit
from regard.recipes.upgrade import upgrade
from regard.recipes.writing import to_toml
from regard.settings import Settings, TaskSettings

LARGEST = 2**20  # bytes of a recipe
DEEPEST = 16  # tables and lists in one another; settings have four
# A key of more parts than that, each bare or in quotes.
DOTTED = re.compile(rf"""(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{DEEPEST},}}""")

AnySettings = TypeVar("AnySettings", bound=Settings)


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
            return read_small(path, LARGEST).decode("utf-8")
        except (OSError, ValueError) as error:
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
        if DOTTED.search(text):  # tomllib takes memory with the square of their number
            raise RecursionError(f"A key has more than {DEEPEST} parts")
        tree = tomllib.loads(text)
        _check_depth(tree)
    except (ValueError, RecursionError) as error:  # ValueError: no TOML, or a number of thousands of digits
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
    _check_tables(settings)
    for problem in settings.check_parts():
        raise misfit("", str(problem))
    return settings.completed()


def _check_tables(settings: TaskSettings) -> None:
    """The own settings of all parts that have a table, also of those that are not used."""
    for name, section in settings.sections().items():
        for table, values in (getattr(section, "model_extra", None) or {}).items():
            kind = next(kind for kind in section.PARTS.values() if table in registry.names(kind))  # type: ignore
            try:
                registry.load(kind, table).Settings.model_validate(values)
            except ValidationError as error:
                raise explained(error, type(settings), (name, table)) from None


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
        raise explained(error, kind) from None


def changed(settings: AnySettings, **changes: Any) -> AnySettings:
    """A section with some of its settings changed and checked again."""
    try:
        return type(settings).model_validate(settings.model_dump() | changes)
    except ValidationError as error:
        raise explained(error, type(settings)) from None


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
    if len(sections) > DEEPEST:
        raise _not_a_section(f"{key[:80]} …", sections[0])
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise _not_a_section(key, section)
    try:
        tree[leaf] = value if DOTTED.search(value) else tomllib.loads(f"value = {value}")["value"]
        _check_depth(tree[leaf])
    except (ValueError, RecursionError):
        tree[leaf] = value


def _check_depth(tree: Any) -> None:
    """What is nested deeper than any settings would end in functions that call themselves once too often."""
    level = [tree]
    for _ in range(DEEPEST):
        nested = [each for each in level if isinstance(each, dict | list)]
        level = [inner for each in nested for inner in (each.values() if isinstance(each, dict) else each)]
    if level:
        raise RecursionError(f"Tables or lists are nested more than {DEEPEST} deep")


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


def starter_recipe(task: str) -> str:
    """A complete recipe to edit, small enough to train on a laptop."""
    about = registry.load("tasks", task).about
    if not about.starter:
        return to_toml(validate({"task": task}))
    settings = from_toml(recipe_text(about.starter), name=about.starter)
    return f"# {about.advice}\n" + to_toml(settings.model_copy(update={"recipe": ""}))
