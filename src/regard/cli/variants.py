"""What a comparison is of: the variants, the seeds, and how long each is trained."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import console
from regard.errors import UsageError
from regard.run import read_recipe
from regard.settings import Auto, TaskSettings
from regard.tasks.starting import inherit_settings, starts_from

VALIDATIONS = 8  # in a training whose length is not the recipe's
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Request:
    """What the command asks for."""

    recipe: str
    overrides: list[str]
    vary: list[str]
    variants: list[str]
    seeds: str = "3"
    budget: tuple[str, int] | None = None  # ("steps", 500), ("tokens", …) or ("seconds", …)
    out: Path | None = None
    data: Path | None = None
    parallel: int = 1

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / f"compare-{Path(self.recipe).stem}"

    @property
    def budget_kind(self) -> str:
        return self.budget[0] if self.budget else "recipe"

    def to_json(self) -> dict[str, Any]:
        """What may not change from one call to the next; there may be more variants and seeds."""
        a_file = self.recipe.endswith(".toml")
        return {
            "recipe": str(Path(self.recipe).resolve()) if a_file else self.recipe,
            "settings": sorted(self.overrides),
            "data": str(self.data.resolve()) if self.data else "",
            "budget": list(self.budget) if self.budget else [],
        }


@dataclass(frozen=True)
class Variant:
    name: str
    overrides: list[str]

    @property
    def folder(self) -> str:
        """Its name as a folder."""
        return re.sub(r"[^\w.=+-]+", "_", self.name).strip("._")[:100]


def variants_of(request: Request) -> list[Variant]:
    """The variants that --vary or --variant ask for."""
    if bool(request.vary) == bool(request.variants):
        raise UsageError(
            "--vary and --variant cannot be given together." if request.vary else "There is nothing to compare.",
            "--vary makes every combination of its values, --variant one variant at a time.",
            "For example: --vary model.width=64,128, or --variant 'narrow: model.width=64 model.layers=2'",
        )
    variants = _combinations(request.vary) if request.vary else [_named(text) for text in request.variants]
    folders = [variant.folder for variant in variants]
    for variant in variants:
        if not variant.folder or folders.count(variant.folder) > 1:
            raise UsageError(
                f"The variant '{variant.name}' needs a name of its own.",
                "Each has a folder that is named after it, in letters and digits.",
                "Give each variant once, or name it with --variant 'name: settings'.",
            )
    return variants


def _combinations(vary: Sequence[str]) -> list[Variant]:
    """One variant for each combination of values, named by the settings that make it."""
    axes = [_values(text) for text in vary]
    keys = [axis[0].partition("=")[0] for axis in axes]
    for key in keys:
        if keys.count(key) > 1:
            raise UsageError(
                f"--vary {key} is there twice.", "A setting has one value.", f"Give all at once: --vary {key}=1,2"
            )
    short = [key.rpartition(".")[2] for key in keys]
    shown = short if len(set(short)) == len(short) else keys
    return [
        Variant(" ".join(f"{n}={o.partition('=')[2]}" for n, o in zip(shown, point, strict=True)), list(point))
        for point in itertools.product(*axes)
    ]


def _named(text: str) -> Variant:
    name, colon, overrides = text.partition(":")
    if not colon or not name.strip() or "=" in name:
        raise UsageError(
            f"'{text}' is not a variant.",
            "A variant has a name, a colon, and its settings.",
            "For example: --variant 'narrow: model.width=64 model.layers=2'",
        )
    return Variant(" ".join(name.split()), overrides.split())


def _values(text: str) -> list[str]:
    """'a.b=1,2' as the overrides 'a.b=1' and 'a.b=2'; a comma in brackets or quotes divides nothing."""
    key, equals, values = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            f"'{text}' says nothing to vary.",
            "It has the form section.key=value,value.",
            "For example: --vary model.width=64,128",
        )
    parts = re.findall(r"""(?:\[[^\]]*\]|"[^"]*"|'[^']*'|[^,])+""", values)
    return [f"{key.strip()}={part.strip()}" for part in parts] or [f"{key.strip()}="]


def seeds_of(text: str) -> list[int]:
    """'3' is the seeds 1, 2 and 3; '4,5,6' these three."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1 and not parts[-1]:
        parts.pop()  # '7,' is the seed 7 alone
    numbers = [int(part) for part in parts if re.fullmatch(r"\d{1,9}", part)]
    how_many = numbers[0] if numbers and "," not in text else len(numbers)
    if len(numbers) < len(parts) or len(set(numbers)) < len(numbers) or not 1 <= how_many <= MOST_SEEDS:
        raise UsageError(
            f"--seeds {text} is not understood.",
            "It is how many seeds, or which, each once.",
            "For example: --seeds 3, or --seeds 4,5,6",
        )
    return numbers if "," in text else list(range(1, how_many + 1))


def nothing_twice(request: Request, variants: Sequence[Variant]) -> None:
    """The seed and the budget are said in one place only."""
    keys = _keys([*request.overrides, *(override for variant in variants for override in variant.overrides)])
    if "seed" in keys:
        raise UsageError("The seed is not a setting here.", "Every variant is trained with each.", "Use --seeds 4,5,6.")
    if request.budget and "training.steps" in keys:
        raise UsageError(
            f"training.steps and --{request.budget[0]} both say how long to train.",
            "Only one of them can hold.",
            "Leave one out.",
        )


def _keys(overrides: Iterable[str]) -> set[str]:
    return {override.partition("=")[0].strip() for override in overrides}


def settings_of(request: Request, variant: Variant, more: Iterable[str] = ()) -> Any:
    """The complete settings of a variant, with further overrides."""
    changes = [*request.overrides, *variant.overrides, *more]
    settings = read_recipe(request.recipe, changes, request.data)
    return inherit_settings(settings, changes) if starts_from(settings) else settings


def rows_of_their_own(request: Request, variants: Sequence[Variant], settings: Sequence[Any]) -> list[str]:
    """Where one mixer needs a row for each sequence, all get it: an update is then of the same sentences for all."""
    chosen = _keys([*request.overrides, *(override for variant in variants for override in variant.overrides)])
    if "packing" not in type(settings[0].training).model_fields or "training.packing" in chosen:
        return []
    shares_rows = {each.model.mixer: each.model.part("mixer").shares_rows for each in settings}
    alone = sorted(mixer for mixer, shares in shares_rows.items() if not shares)
    if len(shares_rows) < 2 or not alone:
        return []
    console.say(
        f"One sequence per row for all variants (training.packing=no), because {', '.join(alone)} cannot share rows."
    )
    return ["training.packing=no"]


# ---------------------------------------------------------------- how long


def steps_of(request: Request, settings: TaskSettings) -> int:
    """The steps that the budget allows a variant."""
    if not request.budget:
        return settings.training.steps
    kind, amount = request.budget
    if kind != "steps" and isinstance(settings.batch_size, Auto):
        raise UsageError(
            f"--{kind} cannot be counted in steps.",
            f'{settings.BATCH} = "auto" is found only when a training starts.',
            f"Set {settings.BATCH} to a number, or give --steps.",
        )
    return amount if kind == "steps" else max(1, round(amount / settings.tokens_per_step))


def length_of(request: Request, variant: Variant, settings: TaskSettings, before: int, steps: int) -> list[str]:
    """The overrides for a training of this many steps; none where they are the recipe's own, `before`.

    Eight validations; a warm-up of at most a tenth; what is averaged stays the same share of the training. What
    the command sets itself stays as it is.
    """
    chosen, training = _keys([*request.overrides, *variant.overrides]), settings.training
    if steps == before:
        return []
    changes = {"training.steps": steps, "training.warmup": min(training.warmup, steps // 10)}
    changes["training.log_every"] = min(training.log_every, max(1, steps // 20))
    if not chosen & {"training.validate_every", "training.save_every"}:
        every = math.ceil(steps / VALIDATIONS)
        save = 0
        if training.average_checkpoints:
            save = max(1, round(training.checkpoint_every * steps / before))
            every = save * math.ceil(every / save)
        changes |= {"training.validate_every": every, "training.save_every": save}
    listed = [f"{key}={value}" for key, value in changes.items() if key not in chosen]
    if training.ema and "training.ema" not in chosen:
        listed.append(f"training.ema={max(0.0, round(1 - (1 - training.ema) * before / steps, 6))}")
    return listed
