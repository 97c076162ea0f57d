"""The settings of a task: a name, a seed, and the sections that this task has.

Every task declares its own class, made of the sections in this package; an unknown key is an error, so a setting that
has no effect on a task cannot be set. What several sections must agree on is told by `check`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from regard.settings.base import NotNegative, Problem, Settings
from regard.settings.system import SystemSettings
from regard.settings.training import TrainingSettings

LAST = ("training", "decoding", "system")  # the sections that stand at the end of a recipe, in this order


class TaskSettings(Settings):
    """One task's settings. A subclass adds its sections and narrows `training`."""

    BATCH: ClassVar[str] = "training.tokens_per_batch"  # what is to be lowered when memory runs out
    SELECT: ClassVar[tuple[str, ...]] = ("loss",)  # the metrics that may choose the best checkpoint

    task: str = Field(description="what is trained")
    recipe: str = Field("", description="name of the recipe this came from")
    seed: NotNegative = Field(1, description="every random choice follows from it")
    training: TrainingSettings = TrainingSettings()
    system: SystemSettings = SystemSettings()

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        for problem in self.check():
            raise ValueError(str(problem))
        return self

    def check(self) -> Iterator[Problem]:
        """What the sections do not agree on. Parts are not asked here: that is `check_parts`."""
        if self.training.select not in self.SELECT:
            yield Problem(
                f'training.select = "{self.training.select}" is not measured for the task "{self.task}"',
                f"use {' or '.join(self.SELECT)}",
            )

    def check_parts(self) -> Iterator[Problem]:
        """What does not fit together with the mixer, the positions or the optimizer, whose classes bring torch."""
        yield from ()

    def completed(self) -> Self:
        """With the own settings of all parts written out."""
        return self.model_copy(update={"training": self.training.completed()})

    @property
    def width(self) -> int:
        """Size of a token's vector, by which the paper's schedule scales the learning rate."""
        raise NotImplementedError

    @property
    def worth_compiling(self) -> bool:
        """Whether batches have few shapes, and the model is made of blocks."""
        return False

    @property
    def tokens_per_step(self) -> int:
        """How many tokens an update sees: what `regard compare --tokens` counts."""
        return self.batch_size

    @property
    def batch_size(self) -> int:
        section, _, name = self.BATCH.partition(".")
        size: int = getattr(getattr(self, section), name)
        return size

    @property
    def parts(self) -> dict[str, str]:
        """The parts that these settings name, by their kind in the registry."""
        named = {"tasks": self.task}
        for section in self.sections().values():
            for setting, kind in getattr(section, "PARTS", {}).items():
                named[kind] = getattr(section, setting)
        return named

    def sections(self) -> dict[str, Settings]:
        """The sections in the order in which a recipe has them."""
        named = {name: value for name in type(self).model_fields if isinstance(value := getattr(self, name), Settings)}
        first = {name: section for name, section in named.items() if name not in LAST}
        return first | {name: named[name] for name in LAST if name in named}

    def with_section(self, section: str, **changes: Any) -> Self:
        """With these settings of a section changed. They are not checked again."""
        return self.model_copy(update={section: getattr(self, section).model_copy(update=changes)})


class NetworkSettings(TaskSettings):
    """Of a task whose model is made of blocks. A subclass has the sections `model` and `training`."""

    @property
    def row(self) -> tuple[str, int]:
        """How many positions the longest sequence has, and which setting says so."""
        raise NotImplementedError

    def check_parts(self) -> Iterator[Problem]:
        yield from self._model.check_parts()
        name, longest = self.row
        yield from self._model.part("positions").check_length(self._model, name, longest)

    def completed(self) -> Self:
        return super().completed().model_copy(update={"model": self._model.for_length(self.row[1])})

    @property
    def width(self) -> int:
        width: int = self._model.width
        return width

    @property
    def worth_compiling(self) -> bool:
        """Whether the mixer is not one call of a library already."""
        compiles: bool = self._model.part("mixer").compiles
        return compiles

    @property
    def _model(self) -> Any:
        return self.model  # type: ignore[attr-defined]
