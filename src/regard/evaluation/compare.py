"""Comparing variants: the mean of a figure over seeds, how sure it is, and which differences are more than noise.

interval    mean ± t(.975, n − 1) · s / √n
difference  Welch's t = (x̄ − ȳ) / √(s²ₓ / n + s²ᵧ / m), with the degrees of freedom of Welch and Satterthwaite
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scipy import special  # type: ignore[import-untyped]

from regard.training.folder import RunFolder

LIKELY = 0.05  # a difference that noise alone would give less often than this is called real

# The figures shown for a task; the first decides. Any other task: the loss.
FIGURES: dict[str, tuple[str, ...]] = {
    "translate": ("bleu", "chrf"),
    "language": ("bits_per_byte", "loss"),
    "masked": ("loss",),
    "classify-text": ("accuracy", "macro_f1"),
    "classify-image": ("accuracy", "loss"),
    "pixels": ("bits_per_pixel", "loss"),
    "synthetic": ("accuracy", "loss"),
}
HIGHER_IS_BETTER = {"bleu", "bleu_lowercase", "chrf", "accuracy", "macro_f1"}


@dataclass(frozen=True)
class Outcome:
    """One finished training, as its run folder tells it."""

    run: Path
    seed: int
    metrics: dict[str, float]
    parameters: int
    steps: int
    seconds: float
    memory: int | None
    speed: float | None = None
    unit: str = "tokens"
    validations: list[dict[str, float]] = field(default_factory=list)

    @classmethod
    def of(cls, run: Path) -> Outcome:
        folder = RunFolder.open(run)
        summary, records = folder.read_json("summary.json"), folder.read_metrics()
        speed, unit = _speed(records)
        return cls(
            run=run.resolve(),
            seed=summary["seed"],
            metrics=summary["metrics"],
            parameters=summary["parameters"],
            steps=summary["steps"],
            seconds=summary["seconds"],
            memory=summary.get("peak_memory_bytes"),
            speed=speed,
            unit=unit,
            validations=[record for record in records if any(key.startswith("valid_") for key in record)],
        )


@dataclass(frozen=True)
class Trained:
    """A variant with its trainings: those that ended well, and by seed what stopped the others."""

    name: str
    overrides: list[str]
    outcomes: list[Outcome]
    failed: dict[int, str] = field(default_factory=dict)

    def values(self, figure: str) -> list[float]:
        return [outcome.metrics[figure] for outcome in self.outcomes if figure in outcome.metrics]


def _speed(records: Sequence[dict[str, Any]]) -> tuple[float | None, str]:
    """The median of the log's lines, and of what; without the first tenth, in which much is made ready."""
    found = [(value, key) for record in records for key, value in record.items() if key.endswith("_per_second")]
    if not found:
        return None, "tokens"
    steady = found[max(1, len(found) // 10) :] or found
    return statistics.median(value for value, _ in steady), found[0][1].removesuffix("_per_second")


# ---------------------------------------------------------------- statistics


def half_width(values: Sequence[float]) -> float | None:
    """Half of the 95 % confidence interval of the mean; one value alone has none."""
    if len(values) < 2:
        return None
    quantile = float(special.stdtrit(len(values) - 1, 0.975))
    return quantile * statistics.stdev(values) / math.sqrt(len(values))


def welch(first: Sequence[float], second: Sequence[float]) -> float | None:
    """How often noise alone would set the two means this far apart; one value on a side cannot tell."""
    if min(len(first), len(second)) < 2:
        return None
    apart = statistics.fmean(first) - statistics.fmean(second)
    a, b = statistics.variance(first) / len(first), statistics.variance(second) / len(second)
    if a + b == 0:  # no noise at all: any difference is real
        return 0.0 if apart else 1.0
    freedom = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    return float(2 * special.stdtr(freedom, -abs(apart) / math.sqrt(a + b)))


# ---------------------------------------------------------------- the comparison


def compare(task: str, variants: Sequence[Trained]) -> dict[str, Any]:
    """Every figure of every variant, the best first, and what can be said of each pair."""
    figures = figures_of(task, variants)
    main = figures[0]
    up = main in HIGHER_IS_BETTER

    def rank(variant: Trained) -> float:
        values = variant.values(main)
        if not values:
            return math.inf  # nothing but failures: last
        return -statistics.fmean(values) if up else statistics.fmean(values)

    ranked = sorted(variants, key=rank)
    differences = [
        {
            "better": better.name,
            "worse": worse.name,
            "by": abs(statistics.fmean(better.values(main)) - statistics.fmean(worse.values(main))),
            "p": (p := welch(better.values(main), worse.values(main))),
            "beyond_noise": None if p is None else p < LIKELY,
        }
        for better, worse in itertools.combinations([variant for variant in ranked if variant.values(main)], 2)
    ]
    found = {
        "task": task,
        "figure": main,
        "higher_is_better": up,
        "variants": [_described(variant, figures) for variant in ranked],
        "differences": differences,
    }
    return found | {"notes": notes(found)}


def figures_of(task: str, variants: Sequence[Trained]) -> list[str]:
    """The figures to show: those of the task that were measured."""
    wanted = FIGURES.get(task, ("loss",))
    return [name for name in wanted if any(variant.values(name) for variant in variants)] or [wanted[0]]


def _described(variant: Trained, figures: Sequence[str]) -> dict[str, Any]:
    outcomes = variant.outcomes
    speeds = [outcome.speed for outcome in outcomes if outcome.speed is not None]
    measured = {name: variant.values(name) for name in figures if variant.values(name)}
    return {
        "name": variant.name,
        "overrides": variant.overrides,
        "seeds": [outcome.seed for outcome in outcomes],
        "figures": {
            name: {"mean": statistics.fmean(values), "half_width": half_width(values), "values": values}
            for name, values in measured.items()
        },
        "parameters": outcomes[0].parameters if outcomes else None,
        "per_second": statistics.median(speeds) if speeds else None,
        "unit": outcomes[0].unit if outcomes else "tokens",
        "peak_memory_bytes": max((outcome.memory for outcome in outcomes if outcome.memory), default=None),
        "seconds": statistics.fmean(outcome.seconds for outcome in outcomes) if outcomes else None,
        "steps": round(statistics.fmean(outcome.steps for outcome in outcomes)) if outcomes else None,
        "failed": {str(seed): error for seed, error in variant.failed.items()},
        "runs": [str(outcome.run) for outcome in outcomes],
    }


def notes(found: dict[str, Any]) -> list[str]:
    """In words: which differences are larger than the noise."""
    lines, figure = [], found["figure"].replace("_", " ")
    pairs = found["differences"]
    if any(pair["p"] is None for pair in pairs):
        lines.append("One seed of a variant cannot tell a difference from noise; train three or more.")
    for name in dict.fromkeys(pair["better"] for pair in pairs):
        own = [pair for pair in pairs if pair["better"] == name and pair["p"] is not None]
        told = [f"{pair['worse']} by {_short(pair['by'])} ({_chance(pair['p'])})" for pair in own if pair["p"] < LIKELY]
        alike = [f"{pair['worse']} ({_chance(pair['p'])})" for pair in own if pair["p"] >= LIKELY]
        said = [f"better {figure} than {', '.join(told)}"] if told else []
        said += [f"not to be told from {', '.join(alike)}"] if alike else []
        if said:
            lines.append(f"{name}: {'; '.join(said)}.")
    if sum(pair["p"] is not None for pair in pairs) > 3:
        lines.append(f"{len(pairs)} pairs were looked at; noise alone makes one pair in twenty look different.")
    return lines


def _short(value: float) -> str:
    return f"{value:.2f}" if value >= 1 else f"{value:.2g}"


def _chance(p: float) -> str:
    return "p < .001" if p < 0.001 else f"p = {p:.3f}".replace("0.", ".", 1)


# ---------------------------------------------------------------- the table


def rows(found: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The head and the cells of the table, as text."""
    variants = found["variants"]
    figures = list(dict.fromkeys(name for variant in variants for name in variant["figures"])) or [found["figure"]]
    units = sorted({variant["unit"] for variant in variants if variant["per_second"] is not None}) or ["tokens"]
    head = ["variant", *(name.replace("_", " ") for name in figures), "parameters", f"{'/'.join(units)} per s"]
    head += ["memory", "seconds", "steps", "seeds"]
    means = {name: [v["figures"][name]["mean"] for v in variants if name in v["figures"]] for name in figures}
    # The same number of digits all the way down a column.
    digits = {name: 2 if max(map(abs, means[name]), default=0) >= 10 else 4 for name in figures}
    failures = any(variant["failed"] for variant in variants)
    cells = []
    for variant in variants:
        row = [variant["name"]]
        row += [_figure(variant["figures"].get(name), digits[name]) for name in figures]
        row += [_count(variant["parameters"]), _count(variant["per_second"]), _memory(variant["peak_memory_bytes"])]
        row += ["–" if variant["seconds"] is None else f"{variant['seconds']:,.1f}", _count(variant["steps"])]
        row += [str(len(variant["seeds"]))]
        if failures:
            row.append("; ".join(f"seed {seed}: {error}" for seed, error in variant["failed"].items()))
        cells.append(row)
    return head + ["failed"] * failures, cells


def plain_table(found: dict[str, Any]) -> str:
    """For a terminal: columns, aligned; numbers to the right."""
    head, cells = rows(found)
    wide = _widths(head, cells)
    return "\n".join("  ".join(_aligned(row, head, wide)).rstrip() for row in [head, *cells])


def markdown_table(found: dict[str, Any]) -> str:
    head, cells = rows(found)
    cells = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    wide = _widths(head, cells)
    rule = ["-" * (width - 1) + ("-" if _to_the_left(name) else ":") for name, width in zip(head, wide, strict=True)]
    lines = [_aligned(head, head, wide), rule, *(_aligned(row, head, wide) for row in cells)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _widths(head: list[str], cells: list[list[str]]) -> list[int]:
    return [max(len(cell) for cell in column) for column in zip(head, *cells, strict=True)]


def _aligned(row: list[str], head: list[str], widths: list[int]) -> list[str]:
    return [
        cell.ljust(width) if _to_the_left(name) else cell.rjust(width)
        for cell, name, width in zip(row, head, widths, strict=True)
    ]


def _to_the_left(column: str) -> bool:
    return column in ("variant", "failed")


def _figure(figure: dict[str, Any] | None, digits: int) -> str:
    if figure is None:
        return "–"
    interval = "" if figure["half_width"] is None else f" ± {figure['half_width']:.{digits}f}"
    return f"{figure['mean']:.{digits}f}{interval}"


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _memory(value: int | None) -> str:
    if value is None:
        return "–"
    return f"{value / 2**20:,.0f} MiB" if value < 10 * 2**30 else f"{value / 2**30:,.1f} GiB"
