"""Sections in which a setting names a part: a mixer, a position encoding, an optimizer.

What a part is called is checked against the registry. Its own settings are in a table of its name, such as
`[model.hyena]`, and are the part's own business: they are kept as they are read until `completed` asks the part's
class. So a mistake anywhere else is reported before torch is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import AfterValidator, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from regard import registry
from regard.settings.base import Problem, Settings

if TYPE_CHECKING:
    from regard.settings.model import ModelSettings

Own = TypeVar("Own", bound="PartSettings")


class PartSettings(Settings):
    """The settings that a part has for itself; none unless its class says otherwise."""

    def for_length(self, length: int) -> Self:
        """With what follows from the length of the longest sequence filled in."""
        return self

    def check(self, model: ModelSettings) -> Iterator[Problem]:
        """What does not fit together with the rest of the model."""
        yield from ()


def registered(kind: str) -> AfterValidator:
    """A name of this kind in the registry."""

    def check(name: str) -> str:
        if name not in registry.names(kind):
            known = ", ".join(registry.names(kind))
            raise PydanticCustomError("unknown_part", "Known {kind} are: {known}", {"kind": kind, "known": known})
        return name

    return AfterValidator(check)


class PartSection(Settings):
    """A section whose settings name parts; any other table in it must be named after a part."""

    model_config = ConfigDict(extra="allow")

    PARTS: ClassVar[dict[str, str]]  # the setting that names a part → its kind in the registry

    @model_validator(mode="after")
    def _tables_belong_to_parts(self) -> Self:
        for setting in self.PARTS:
            if (chosen := getattr(self, setting)) in type(self).model_fields:
                raise ValueError(f'{setting} = "{chosen}" has the name of a setting; give the part another name')
        names = {name for kind in self.PARTS.values() for name in registry.names(kind)}
        for name, table in (self.model_extra or {}).items():
            if name not in names:
                raise PydanticCustomError("extra_forbidden", "unknown", {"key": name, "value": table})
            if not isinstance(table, dict):
                raise PydanticCustomError("not_a_table", "It is a table of settings", {"key": name, "value": table})
        return self

    def part(self, setting: str) -> Any:
        """The class that a setting names."""
        return registry.load(self.PARTS[setting], getattr(self, setting))

    def own(self, setting: str, kind: type[Own]) -> Own:
        """The own settings of the part that a setting names."""
        return kind.model_validate((self.model_extra or {}).get(getattr(self, setting), {}))

    def with_own(self, setting: str, own: PartSettings) -> Self:
        """With the own settings of the part that a setting names written out in full."""
        table = own.model_dump()
        return self.model_copy(update={getattr(self, setting): table}) if table else self
