"""Running claims, and keeping what was measured as it comes: a command that was stopped continues.

    DIR/NAME.json              measurements of every seed so far, the verdict once all are there
    DIR/NAME.svg, NAME.png     the picture

A result is taken again if the claim's file, what claims share, the size and the version of Regard are the same.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.claims.frame.claim import Budget, Claim, Measured, Verdict
from regard.claims.frame.pictures import rendered
from regard.console import Show
from regard.errors import RegardError
from regard.files import read_small, write_atomically, writing
from regard.version import __version__


@dataclass(frozen=True)
class Result:
    claim: Claim
    size: str
    seeds: list[int]
    measured: Measured | None  # None: it was not run
    verdict: Verdict
    seconds: float
    kept: bool = False  # from an earlier command

    @property
    def told(self) -> str:
        """In a line."""
        return f"{self.claim.name}: {self.verdict} ({'kept' if self.kept else f'{self.seconds:.1f} s'})"

    @property
    def figures(self) -> list[dict[str, Any]]:
        """The numbers to tell, each with its 95 % interval over the seeds; one seed has none."""
        measured = self.measured
        if measured is None:
            return []
        return [
            {"name": name, "what": what, "mean": measured.mean(name), "half_width": measured.half_width(name)}
            for name, what in self.claim.about.figures.items()
        ]

    def to_json(self) -> dict[str, Any]:
        about = self.claim.about
        return {
            "claim": self.claim.name,
            "text": about.text,
            "decks": list(about.decks),
            "group": about.group,
            "measures": about.measures,
            "threshold": about.threshold,
            "size": self.size,
            "seeds": self.seeds,
            "figures": self.figures,
            "verdict": self.verdict.outcome,
            "depends_on": self.verdict.on or None,
            "words": self.verdict.words,
            "seconds": self.seconds,
        }


def reproduce(claim: Claim, budget: Budget, show: Show) -> Result:
    """Measure what is not measured yet, judge, and draw. `show` is told how many seeds are done."""
    path, seeds = _path(claim, budget), claim.seeds(budget.size)
    of_seeds, seconds = _kept(path, claim, budget)
    kept = all(seed in of_seeds for seed in seeds)
    for group in _groups(claim, [seed for seed in seeds if seed not in of_seeds]):
        started = time.perf_counter()
        try:
            measured = claim.measure(budget, group)
        except RegardError as error:  # data or a device that is not there
            return Result(claim, budget.size, [], None, Verdict("not run", f"{error.what} {error.why}"), seconds)
        of_seeds |= {seed: {name: measured[name][row] for name in measured} for row, seed in enumerate(group)}
        seconds += time.perf_counter() - started
        _keep(path, claim, budget, {"seconds": seconds, "measured": _plain(of_seeds)})
        show(len(of_seeds), "seeds")
    measured = Measured.stacked([of_seeds[seed] for seed in seeds])
    result = Result(claim, budget.size, seeds, measured, claim.verdict(measured), seconds, kept)
    if not kept or not _is_drawn(path):
        _draw(claim, measured, path)
        _keep(path, claim, budget, {"seconds": seconds, "measured": _plain(of_seeds), "result": result.to_json()})
    return result


def finished(claim: Claim, budget: Budget) -> bool:
    """Whether an earlier command has measured all of it."""
    of_seeds, _ = _kept(_path(claim, budget), claim, budget)
    return of_seeds.keys() >= set(claim.seeds(budget.size))


def _path(claim: Claim, budget: Budget) -> Path:
    return budget.folder / f"{claim.name}.json"


def _groups(claim: Claim, seeds: list[int]) -> list[list[int]]:
    """Seeds that are measured together."""
    return [seeds] * bool(seeds) if claim.at_once else [[seed] for seed in seeds]


def _kept(path: Path, claim: Claim, budget: Budget) -> tuple[dict[int, dict[str, Any]], float]:
    """What an earlier command measured, by seed, and its seconds; nothing if it was another claim or another size."""
    try:
        content = json.loads(read_small(path))
        if {name: content[name] for name in ("claim", "digest", "size", "version")} != _identity(claim, budget):
            return {}, 0.0
        of_seeds = {
            int(seed): {name: np.array(values, np.float64) for name, values in measured.items()}
            for seed, measured in content["measured"].items()
        }
        return of_seeds, float(content["seconds"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none, or a damaged one: it is measured again
        return {}, 0.0


def _keep(path: Path, claim: Claim, budget: Budget, content: dict[str, Any]) -> None:
    with writing(path, "Choose another folder with -o DIR."):
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(_identity(claim, budget) | content, indent=1, ensure_ascii=False, allow_nan=False)
        write_atomically(path, text.encode())


def _identity(claim: Claim, budget: Budget) -> dict[str, str]:
    return {"claim": claim.name, "digest": claim.digest, "size": budget.size, "version": __version__}


def _plain(of_seeds: dict[int, dict[str, Any]]) -> dict[str, Any]:
    return {
        str(seed): {name: _numbers(values.tolist()) for name, values in measured.items()}
        for seed, measured in sorted(of_seeds.items())
    }


def _numbers(value: Any) -> Any:
    """None for what is not a number: JSON has no other word for it."""
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    return value if math.isfinite(value) else None


def _is_drawn(path: Path) -> bool:
    """Whether both pictures are there, and whole as far as their ends tell."""
    ends = {".svg": b"</svg>\n", ".png": b"IEND\xaeB`\x82"}
    files = {path.with_suffix(suffix): end for suffix, end in ends.items()}
    return all(file.is_file() and file.read_bytes().endswith(end) for file, end in files.items())


def _draw(claim: Claim, measured: Measured, path: Path) -> None:
    figure = claim.picture(measured)
    for kind in ("svg", "png"):
        with writing(path.with_suffix(f".{kind}"), "Choose another folder with -o DIR."):
            write_atomically(path.with_suffix(f".{kind}"), rendered(figure, kind))
