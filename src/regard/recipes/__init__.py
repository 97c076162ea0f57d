"""Recipes: one TOML for each experiment, ready-made or a user's own.

`resolve` turns a recipe and its overrides (`training.steps=500`) into one frozen `Config`.
`to_toml` writes a config back, complete and commented: it is what `regard init` prints.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from regard.settings import TASKS, Config, Settings, Task
from regard.errors import UsageError, did_you_mean


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


def resolve(recipe: str, overrides: Iterable[str] = ()) -> Config:
    """A recipe by name or path, with `section.key=value` overrides, as one complete config."""
    return from_toml(recipe_text(recipe), name=Path(recipe).stem, overrides=overrides)


def from_toml(text: str, name: str = "", overrides: Iterable[str] = ()) -> Config:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"The recipe '{name}' cannot be read as TOML.",
            f"{error}",
            "Mend that line; `regard init translate` shows the form.",
        ) from None
    for override in overrides:
        _apply(tree, override)
    _all_concern_the_task(tree)
    return validate({**tree, "recipe": tree.get("recipe") or name})


def _all_concern_the_task(tree: Mapping[str, Any]) -> None:
    """A setting that has no effect is a mistake: say so, before its value is looked at."""
    task = tree.get("task", Config.model_fields["task"].default)
    if task not in TASKS:
        return
    for section, settings in tree.items():
        field = Config.model_fields.get(section)
        kind = field.annotation if field else None
        if (
            field is None
            or not isinstance(settings, dict)
            or not (isinstance(kind, type) and issubclass(kind, Settings))
        ):
            continue
        for name in sorted(settings):
            inner = kind.model_fields.get(name)
            if inner is not None and not (_known(field, task) and _known(inner, task)):
                raise UsageError(
                    f"'{section}.{name}' has no effect on the task '{task}'.",
                    f"It is: {inner.description}.",
                    f"Leave it out; `regard init {task}` shows what there is.",
                )


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
            raise UsageError(
                f"'{key}' is not a setting.",
                f"'{section}' is a value, not a section.",
                "Run `regard init translate` for all keys.",
            )
    try:
        tree[leaf] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        tree[leaf] = value


def validate(tree: Mapping[str, Any]) -> Config:
    """A nested dict as a Config; the first mistake becomes an error that names key, value and nearest name."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        # A union type adds its branch names to the location; keep only real keys.
        keys = _real_keys(first["loc"])
        key = ".".join(keys)
        value = first["input"]
        if first["type"] == "extra_forbidden":
            raise UsageError(
                f"Unknown setting '{key}' (value {value!r}).",
                f"There is no such key in {'the section [' + '.'.join(keys[:-1]) + ']' if keys[:-1] else 'a recipe'}.",
                _nearest_setting(keys),
            ) from None
        if first["type"] == "value_error":
            reason = str(first["ctx"]["error"])
            raise UsageError(
                f"The settings{' in [' + key + ']' if key else ''} do not fit together.",
                reason.partition(";")[0] + ".",
                _sentence(reason.partition(";")[2].strip() or "change one of them"),
            ) from None
        raise UsageError(
            f"The setting '{key}' cannot be {value!r}.",
            first["msg"] + ".",
            f"'{keys[-1]}' is: {_description(keys)}."
            if keys and _description(keys)
            else "Run `regard init translate` for the form.",
        ) from None


def _real_keys(location: tuple[int | str, ...]) -> list[str]:
    keys: list[str] = []
    model: Any = Config
    for part in location:
        if not (isinstance(model, type) and issubclass(model, Settings)):
            break
        keys.append(str(part))
        field = model.model_fields.get(str(part))
        model = field.annotation if field else None
    return keys


def _sentence(text: str) -> str:
    # A setting's name keeps its small letter.
    starts_with_name = "." in text.split(" ")[0] or "_" in text.split(" ")[0]
    return (text if starts_with_name else text[0].upper() + text[1:]) + "."


def _nearest_setting(keys: list[str]) -> str:
    """The key of the same name in another section, or else the nearest name beside it."""
    for section, field in Config.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Settings) and keys[-1] in inner.model_fields:
            return f"Did you mean '{section}.{keys[-1]}'?"
    return did_you_mean(keys[-1], _keys_beside(keys))


def _section(keys: list[str]) -> type[Settings]:
    model: type[Settings] = Config
    for key in keys[:-1]:
        annotation = model.model_fields[key].annotation
        assert isinstance(annotation, type) and issubclass(annotation, Settings)
        model = annotation
    return model


def _keys_beside(keys: list[str]) -> list[str]:
    return list(_section(keys).model_fields)


def _description(keys: list[str]) -> str:
    return _section(keys).model_fields[keys[-1]].description or ""


STARTERS = {
    "translate": ("starter", "Edit data.train; the rest works as it is for some 10,000 to 1,000,000 pairs."),
    "language": ("shakespeare-cpu", "Edit data.text; the rest is for a megabyte or a few, on a laptop."),
    "masked": ("bert-small", "Edit data.text; the rest is for some 10 to 1,000 MB of text, on a GPU."),
    "classify-text": ("starter-classify", "Edit data.train; the rest works as it is for some 1,000 to 100,000 texts."),
    "embeddings": ("words", "Edit data.text; the rest works as it is for some 1 to 1,000 MB of text."),
    "classify-image": (
        "digits",
        "Edit data.sample or data.images, images.size and model.patch; it is for small images.",
    ),
    "pixels": ("digits-pixels", "Edit data.sample or data.images, and images.size; every pixel is a token."),
    "synthetic": ("recall", "Edit [synthetic] and model.mixer; no files are needed."),
}


def starter_recipe(task: str) -> str:
    """A complete recipe to edit, small enough to train on a laptop."""
    name, advice = STARTERS[task]
    return f"# {advice}\n" + to_toml(resolve(name).model_copy(update={"recipe": ""}))


def settings_of(config: Config) -> dict[str, Any]:
    """Every setting that the task knows, by its whole name."""
    found: dict[str, Any] = {}
    for section, field in Config.model_fields.items():
        settings = getattr(config, section)
        if not isinstance(settings, Settings):
            found[section] = settings
        elif _known(field, config.task):
            inner = type(settings).model_fields
            found |= {
                f"{section}.{name}": getattr(settings, name) for name in inner if _known(inner[name], config.task)
            }
    return found


def to_toml(config: Config) -> str:
    """A complete recipe with a comment on every line. What the task does not know is left out."""
    lines = [_line(config, name) for name in ("task", "recipe", "seed")]
    for section, field in Config.model_fields.items():
        settings = getattr(config, section)
        if not isinstance(settings, Settings) or not _known(field, config.task):
            continue
        known = [name for name, field in type(settings).model_fields.items() if _known(field, config.task)]
        lines += ["", f"[{section}]"] + [_line(settings, name) for name in known]
    return "\n".join(lines) + "\n"


def _known(field: FieldInfo, task: Task) -> bool:
    extra = field.json_schema_extra
    return not isinstance(extra, dict) or task in cast(list[str], extra["tasks"])


def _line(settings: Settings, name: str) -> str:
    assignment = f"{name} = {toml_value(getattr(settings, name))}"
    return f"{assignment:<35} # {type(settings).model_fields[name].description}"


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A JSON string is a TOML string, but for one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return repr(value)
