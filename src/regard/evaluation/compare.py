"""Comparing variants: the mean of a metric over seeds, its confidence interval, and which differences exceed noise.

interval    mean ± t(.975, n − 1) · s / √n
difference  Welch's t = (x̄ − ȳ) / √(s²ₓ / n + s²ᵧ / m), with the degrees of freedom of Welch and Satterthwaite

scipy is imported inside the functions that need it: it takes a second.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.metrics import lower_is_better

SIGNIFICANCE = 0.05  # a difference that noise alone would give less often than this is called real


@dataclass(frozen=True)
class Outcome:
    """One finished training, as its run folder describes it."""

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
    def from_run(cls, run: Path, summary: dict[str, Any], records: Sequence[dict[str, Any]]) -> Outcome:
        """From a run folder's summary.json and the lines of its metrics.jsonl."""
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
class TrainedVariant:
    """A variant with the trainings that ended well, and by seed what stopped the others."""

    name: str
    overrides: list[str]
    outcomes: list[Outcome]
    failed: dict[int, str] = field(default_factory=dict)

    def values(self, metric: str) -> list[float]:
        return [outcome.metrics[metric] for outcome in self.outcomes if metric in outcome.metrics]


def _speed(records: Sequence[dict[str, Any]]) -> tuple[float | None, str]:
    """The median speed and its unit; without the first tenth of the records, in which much is still prepared."""
    speeds = [(value, key) for record in records for key, value in record.items() if key.endswith("_per_second")]
    if not speeds:
        return None, "tokens"
    steady = speeds[max(1, len(speeds) // 10) :] or speeds
    return statistics.median(value for value, _ in steady), speeds[0][1].removesuffix("_per_second")


# ---------------------------------------------------------------- statistics


def half_width(values: Sequence[float]) -> float | None:
    """Half of the 95 % confidence interval of the mean; one value alone has none."""
    if len(values) < 2:
        return None
    from scipy import stats

    return float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))


def welch(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The p-value of the difference of two means; None where a side has only one value."""
    if min(len(first), len(second)) < 2:
        return None
    if len(set(first)) == len(set(second)) == 1:  # no noise at all: any difference is real
        return 0.0 if first[0] != second[0] else 1.0
    from scipy import stats

    # From mean and deviation: `ttest_ind` itself warns about a side without any noise.
    described = [(statistics.fmean(side), statistics.stdev(side), len(side)) for side in (first, second)]
    return float(stats.ttest_ind_from_stats(*described[0], *described[1], equal_var=False).pvalue)


# ---------------------------------------------------------------- the comparison


def compare(task: str, variants: Sequence[TrainedVariant], metrics: Sequence[str]) -> dict[str, Any]:
    """Every metric of every variant, the best first, and what can be said about each pair.

    The first of the metrics that was measured decides.
    """
    measured = [name for name in metrics if any(variant.values(name) for variant in variants)] or [metrics[0]]
    main = measured[0]
    lower = lower_is_better(main)

    def rank(variant: TrainedVariant) -> float:
        values = variant.values(main)
        if not values:
            return math.inf  # nothing but failures: last
        return statistics.fmean(values) if lower else -statistics.fmean(values)

    ranked = sorted(variants, key=rank)
    differences = [
        {
            "better": better.name,
            "worse": worse.name,
            "by": abs(statistics.fmean(better.values(main)) - statistics.fmean(worse.values(main))),
            "p": (p := welch(better.values(main), worse.values(main))),
            "beyond_noise": None if p is None else p < SIGNIFICANCE,
        }
        for better, worse in itertools.combinations([variant for variant in ranked if variant.values(main)], 2)
    ]
    return {
        "task": task,
        "metric": main,
        "higher_is_better": not lower,
        "variants": [_described(variant, measured) for variant in ranked],
        "differences": differences,
        "notes": _notes(main, differences),
    }


def _described(variant: TrainedVariant, metrics: Sequence[str]) -> dict[str, Any]:
    outcomes = variant.outcomes
    speeds = [outcome.speed for outcome in outcomes if outcome.speed is not None]
    return {
        "name": variant.name,
        "overrides": variant.overrides,
        "seeds": [outcome.seed for outcome in outcomes],
        "metrics": {
            name: {"mean": statistics.fmean(values), "half_width": half_width(values), "values": values}
            for name in metrics
            if (values := variant.values(name))
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


def _notes(metric: str, differences: Sequence[dict[str, Any]]) -> list[str]:
    """In words: which differences are larger than the noise."""
    notes = []
    tested = [pair for pair in differences if pair["p"] is not None]
    if len(tested) < len(differences):
        notes.append("One seed of a variant cannot tell a difference from noise; train three or more.")
    for name in dict.fromkeys(pair["better"] for pair in tested):
        own = [pair for pair in tested if pair["better"] == name]
        real = [
            f"{pair['worse']} by {_short(pair['by'])} ({_chance(pair['p'])})" for pair in own if pair["beyond_noise"]
        ]
        alike = [f"{pair['worse']} ({_chance(pair['p'])})" for pair in own if not pair["beyond_noise"]]
        remarks = [f"better {metric.replace('_', ' ')} than {', '.join(real)}"] if real else []
        remarks += [f"no clear difference from {', '.join(alike)}"] if alike else []
        notes.append(f"{name}: {'; '.join(remarks)}.")
    if len(tested) > 3:
        notes.append(f"{len(differences)} pairs were compared; noise alone makes one pair in twenty look different.")
    return notes


def _short(value: float) -> str:
    return f"{value:.2f}" if value >= 1 else f"{value:.2g}"


def _chance(p: float) -> str:
    return "p < .001" if p < 0.001 else f"p = {p:.3f}".replace("0.", ".", 1)


# ---------------------------------------------------------------- the table


def comparison_table(comparison: dict[str, Any]) -> tuple[list[str], list[list[str]], str]:
    """Head, rows and alignment of the columns, for `regard.tables`."""
    variants = comparison["variants"]
    metrics = list(dict.fromkeys(name for each in variants for name in each["metrics"])) or [comparison["metric"]]
    units = sorted({each["unit"] for each in variants if each["per_second"] is not None}) or ["tokens"]
    head = ["variant", *(name.replace("_", " ") for name in metrics), "parameters", f"{'/'.join(units)} per s"]
    head += ["memory", "seconds", "steps", "seeds"]
    align = "<" + ">" * (len(head) - 1)
    means = {name: [each["metrics"][name]["mean"] for each in variants if name in each["metrics"]] for name in metrics}
    # The same number of digits all the way down a column.
    digits = {name: 2 if max(map(abs, means[name]), default=0) >= 10 else 4 for name in metrics}
    rows = [
        [
            each["name"],
            *(_interval(each["metrics"].get(name), digits[name]) for name in metrics),
            _number(each["parameters"]),
            _number(each["per_second"]),
            _memory(each["peak_memory_bytes"]),
            _number(each["seconds"], digits=1),
            _number(each["steps"]),
            str(len(each["seeds"])),
        ]
        for each in variants
    ]
    if any(each["failed"] for each in variants):
        head, align = [*head, "failed"], align + "<"
        for row, each in zip(rows, variants, strict=True):
            row.append("; ".join(f"seed {seed}: {error}" for seed, error in each["failed"].items()))
    return head, rows, align


def _interval(metric: dict[str, Any] | None, digits: int) -> str:
    if metric is None:
        return "–"
    interval = "" if metric["half_width"] is None else f" ± {metric['half_width']:.{digits}f}"
    return f"{metric['mean']:.{digits}f}{interval}"


def _number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _memory(value: int | None) -> str:
    if value is None:
        return "–"
    return f"{value / 2**20:,.0f} MiB" if value < 10 * 2**30 else f"{value / 2**30:,.1f} GiB"
