"""Settings as text: complete recipes with a comment on every line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from regard.settings import Settings, TaskSettings
from regard.settings.parts import PartSection


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
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_value(key)} = {toml_value(item)}" for key, item in value.items()) + "}"
    return repr(value)
