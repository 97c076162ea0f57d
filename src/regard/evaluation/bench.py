"""`regard bench mixers`: what every mixer costs against the length of the sequence, on this machine.

    runs/bench-mixers/
      bench.json  bench.md      every figure; the tables
      mixers.png                time, memory and decoding, logarithmic

A mixer is measured at one length after the other, until the next would take longer than allowed or more memory than
there is. On a CPU this is told beforehand, from the shorter ones; so lengths that lie far apart are approached by
doubling. What is measured when the command is stopped is written.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard import console, registry
from regard.errors import RegardError, UsageError
from regard.evaluation.cost import (
    UNFUSED,
    Growth,
    PassCost,
    Setup,
    StepCost,
    decoding,
    forward_backward,
    growth,
    mixer_class,
    predicted,
)
from regard.files import write_atomically, writing
from regard.hardware import Hardware, environment, out_of_memory
from regard.layers.mixer import Decoding
from regard.process_memory import available_memory
from regard.settings import SystemSettings
from regard.tables import markdown_table, text_table

SHORTEST = 16  # where the approach to the first length begins
ROOM = 0.7  # of the memory that is free, what a pass may take by prediction

Points = Sequence[tuple[int, float]]
# The curves of each panel by name, the powers to name beside them, the file, and a title.
Draw = Callable[[Mapping[str, Mapping[str, Points]], Mapping[str, Mapping[str, str]], Path, str], None]


def known_mixers() -> list[str]:
    """What can be measured: every registered mixer, and attention a second time without its fused kernel."""
    first, *rest = registry.names("mixers")
    return [first, UNFUSED, *rest]


@dataclass(frozen=True)
class Request:
    mixers: Sequence[str]
    lengths: Sequence[int]
    out: Path
    width: int | None = None  # None: 768 on a GPU, 128 on a CPU
    heads: int | None = None  # None: of 64 channels each, or of more where that does not divide the width
    batch: int = 1
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the mixers' own settings, by their names
    rounds: int = 5
    seconds: float = 2.0
    decode: bool = True
    compile: bool = True
    device: str = "auto"

    def setup(self) -> Setup:
        """Checked against each other, and with what depends on the device."""
        hardware = Hardware.choose(SystemSettings(device=self.device))
        on_cuda = hardware.device.type == "cuda"
        width = self.width or (768 if on_cuda else 128)
        if width % 2:
            raise UsageError(f"A width of {width} is odd.", "Convolutions take channels in pairs.", "Use an even one.")
        heads = self.heads or next(count for count in range(max(1, width // 64), 0, -1) if width % count == 0)
        if width % heads:
            raise UsageError(
                f"{heads} heads do not divide a width of {width}.", "Each gets as many channels.", "Use --heads 2, say."
            )
        if hardware.device.index is not None:
            torch.cuda.set_device(hardware.device)  # memory is asked for of the one in use
        hardware = dataclasses.replace(hardware, compile=on_cuda and self.compile)
        return Setup(hardware, width, heads, self.batch, self.rounds, self.seconds, self.own)


@dataclass
class Costs:
    """What has been measured so far."""

    passes: dict[str, list[PassCost]] = field(default_factory=dict)
    steps: dict[str, list[StepCost]] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)  # why a mixer has no further lengths

    @property
    def time(self) -> dict[str, Points]:
        """Milliseconds of forward + backward."""
        return {name: [(at.length, at.time.median * 1e3) for at in points] for name, points in self.passes.items()}

    @property
    def memory(self) -> dict[str, Points]:
        """Megabytes of forward + backward."""
        return {name: [(at.length, at.memory / 1e6) for at in points] for name, points in self.passes.items()}

    @property
    def token(self) -> dict[str, Points]:
        """Microseconds per token decoded."""
        return {name: [(at.length, at.time.median * 1e6) for at in points] for name, points in self.steps.items()}

    @property
    def state(self) -> dict[str, Points]:
        """Megabytes that are remembered while decoding."""
        return {name: [(at.length, at.state / 1e6) for at in points] for name, points in self.steps.items()}


def run(request: Request, draw: Draw) -> tuple[dict[str, Any], str]:
    """Measure, and write the costs, also when stopped; the figures, and the tables to print."""
    setup = request.setup()
    if (request.out / "bench.json").exists():
        raise RegardError(
            f"'{request.out}' holds a measurement already.",
            "It would be overwritten.",
            "Choose another folder with --out DIR, or delete it.",
        )
    with writing(request.out, "Choose another folder with --out."):
        request.out.mkdir(parents=True, exist_ok=True)
    console.say(f"Measuring on {setup.hardware.describe()}; width {setup.width}, {setup.heads} heads.")
    costs, whole = Costs(), False
    try:
        for name in request.mixers:
            _measure(name, request, setup, costs)
        whole = True
    finally:
        result = _write(request, draw, setup, costs, whole)
        if not whole:
            console.say(f"What was measured so far is in {request.out.resolve()}.")
    if not any(costs.passes.values()):
        why = "; ".join(f"{name} stops: {reason}" for name, reason in costs.stopped.items())
        raise RegardError(
            "Nothing could be measured.", f"{why}.", "Ask for shorter --lengths, a smaller --width, or more --seconds."
        )
    return result


def _measure(name: str, request: Request, setup: Setup, costs: Costs) -> None:
    """One mixer, from the shortest length on, as far as it can go."""
    on_cuda = setup.hardware.device.type == "cuda"
    passes = costs.passes.setdefault(name, [])
    known: list[PassCost] = []
    if not on_cuda:
        forward_backward(name, SHORTEST, dataclasses.replace(setup, rounds=1))  # loads what it needs for the first time
    # On a GPU, too much memory is an error to be caught, and every length costs a compilation: no approach.
    for length in request.lengths if on_cuda else approach(request.lengths):
        seconds = predicted([(at.length, at.time.median) for at in known], length)
        memory = predicted([(at.length, at.memory) for at in known], length)
        if seconds > setup.seconds:
            costs.stopped[name] = f"at {length:,}, it would take some {seconds:,.1f} s (--seconds {setup.seconds:g})"
        elif not on_cuda and memory > ROOM * available_memory():
            costs.stopped[name] = f"at {length:,}, it would need some {memory / 1e9:,.1f} GB of memory"
        if name in costs.stopped:
            break
        asked = length in request.lengths
        try:
            cost = forward_backward(name, length, setup if asked else dataclasses.replace(setup, rounds=1))
            known.append(cost)
            if not asked:
                continue
            passes.append(cost)
            # A step of unfused attention is one of attention.
            steps = decoding(name, length, setup) if request.decode and name != UNFUSED else {}
        except Exception as error:
            if not out_of_memory(error):
                raise
            costs.stopped[name] = f"at {length:,}, there is not enough memory"
            break
        for way, step in steps.items():
            costs.steps.setdefault(way, []).append(step)
        _tell(name, cost, steps.get(name))
    if name in costs.stopped:
        console.say(f"{name} stops: {costs.stopped[name]}.")


def approach(lengths: Sequence[int]) -> Iterator[int]:
    """The lengths, and before each as many more as it takes for none to be over twice the one before."""
    further = SHORTEST
    for length in lengths:
        while further < length:
            yield further
            further *= 2
        yield length
        further = 2 * length


def _tell(name: str, cost: PassCost, step: StepCost | None) -> None:
    milliseconds, megabytes = _figure(cost.time.median * 1e3), _figure(cost.memory / 1e6)
    token = f"{_figure(step.time.median * 1e6):>8} µs per token" if step else ""
    console.say(f"  {name:<10}{cost.length:>8,}{milliseconds:>9} ms{megabytes:>9} MB{token}")


# ---------------------------------------------------------------- the result


def _write(request: Request, draw: Draw, setup: Setup, costs: Costs, whole: bool) -> tuple[dict[str, Any], str]:
    grown = {
        what: {name: rate for name, points in getattr(costs, what).items() if (rate := growth(points)) is not None}
        for what in ("time", "memory", "token", "state")
    }
    picture = request.out / "mixers.png"
    head = f"one mixer layer, causal, width {setup.width}, batch {setup.batch} · {setup.hardware.describe()}"
    panels = {
        "forward + backward, ms": (costs.time, "time"),
        "memory of forward + backward, MB": (costs.memory, "memory"),
        "decoding, µs per token": (costs.token, "token"),
    }
    draw(
        {title: curves for title, (curves, _) in panels.items()},
        {title: {name: str(rate) for name, rate in grown[what].items()} for title, (_, what) in panels.items()},
        picture,
        head,
    )
    content: dict[str, Any] = {
        "what": "mixers",
        "complete": whole,
        "device": setup.hardware.describe(),
        "settings": {
            "width": setup.width,
            "heads": setup.heads,
            "batch": setup.batch,
            "own": {name: dict(table) for name, table in setup.own.items()},
            "rounds": setup.rounds,
            "seconds": setup.seconds,
            "lengths": list(request.lengths),
            "mixers": list(request.mixers),
        },
        "forward_backward": {name: [_pass_record(at) for at in at_all] for name, at_all in costs.passes.items()},
        "decoding": {name: [_step_record(at) for at in at_all] for name, at_all in costs.steps.items()},
        "stopped": costs.stopped,
        "exponents": {
            what: {name: dataclasses.asdict(rate) for name, rate in rates.items()} for what, rates in grown.items()
        },
        **{f"{other}_over_{name}": _ratios(costs, name, other) for name, other in _comparisons(costs)},
        "environment": environment(),
        "folder": str(request.out.resolve()),
        "picture": str(picture.resolve()) if picture.is_file() else None,
    }
    text = "\n\n".join([f"# What mixers cost\n\n{_sentence(head)}", *_sections(costs, grown, as_markdown=True)])
    write_atomically(request.out / "bench.json", (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
    write_atomically(request.out / "bench.md", (text + "\n\n![](mixers.png)\n").encode())
    shown = [_sentence(head), *_sections(costs, grown, as_markdown=False), content["folder"]]
    return content, "\n\n".join(shown)


def _pass_record(cost: PassCost) -> dict[str, Any]:
    time = {key: value * 1e3 for key, value in dataclasses.asdict(cost.time).items() if key != "rounds"}
    return {
        "length": cost.length,
        "milliseconds": time,
        "rounds": cost.time.rounds,
        "megabytes": cost.memory / 1e6,
        "compiled": cost.compiled,
        "captured": cost.captured,
    }


def _step_record(cost: StepCost) -> dict[str, Any]:
    time = {key: value * 1e6 for key, value in dataclasses.asdict(cost.time).items() if key != "rounds"}
    return {
        "length": cost.length,
        "from": cost.first,
        "microseconds": time,
        "rounds": cost.time.rounds,
        "state_megabytes": cost.state / 1e6,
    }


def _comparisons(costs: Costs) -> list[tuple[str, str]]:
    """The mixers that are compared to another, and to which."""
    pairs = [(name, mixer_class(name).compared_to) for name in costs.passes]
    return [(name, other) for name, other in pairs if other in costs.passes]


def _ratios(costs: Costs, name: str, other: str) -> list[dict[str, float]]:
    """The costs of the other over those of a mixer, at every length that both have: above 1, the mixer costs less."""
    rows: dict[int, dict[str, float]] = {}
    for what in ("time", "memory", "token", "state"):
        theirs, own = (dict(getattr(costs, what).get(mixer, ())) for mixer in (other, name))
        for length in sorted(theirs.keys() & own.keys()):
            if own[length] > 0:
                rows.setdefault(length, {"length": length})[what] = theirs[length] / own[length]
    return list(rows.values())


# ---------------------------------------------------------------- tables


def _sections(costs: Costs, grown: Mapping[str, Mapping[str, Growth]], as_markdown: bool) -> list[str]:
    """Each table under its title, and what must be said about it."""
    titles = {
        "time": "Forward + backward, milliseconds",
        "memory": "Memory of forward + backward, megabytes",
        "token": "Decoding, microseconds per token",
        "state": "Remembered while decoding, megabytes",
    }
    sections = []

    def add(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        align = ">" * (1 + len(head))
        table = markdown_table if as_markdown else text_table
        sections.append((f"## {title}\n\n" if as_markdown else f"{title}\n") + table(["length", *head], rows, align))

    for what, title in titles.items():
        curves: dict[str, Points] = getattr(costs, what)
        if any(curves.values()):
            exponents = ["grows as", *(str(grown[what].get(name, "–")) for name in curves)]
            add(title, list(curves), [*_by_length(curves), exponents])
    for name, other in _comparisons(costs):
        ratios = _ratios(costs, name, other)
        measured = [what for what in titles if any(what in row for row in ratios)]
        rows = [[f"{row['length']:,}", *(_figure(row.get(what)) for what in measured)] for row in ratios]
        add(f"{other.capitalize()} over {name}: above 1, {name} costs less", measured, rows)
    begin = "- " if as_markdown else ""
    return [*sections, "\n".join(begin + remark for remark in _remarks(costs, grown))]


def _by_length(curves: Mapping[str, Points]) -> list[list[str]]:
    costs = {name: dict(points) for name, points in curves.items()}
    lengths = sorted({length for points in costs.values() for length in points})
    return [[f"{length:,}", *(_figure(costs[name].get(length)) for name in curves)] for length in lengths]


def _remarks(costs: Costs, grown: Mapping[str, Mapping[str, Growth]]) -> list[str]:
    ranges = {(rate.first, rate.last) for rates in grown.values() for rate in rates.values()}
    remarks = [f"{name} stops: {why}." for name, why in costs.stopped.items()]
    if ranges:
        shown = ", ".join(f"{first:,} to {last:,}" for first, last in sorted(ranges))
        remarks += [f"Exponents: least squares in log-log over the upper half of a column, at least three ({shown})."]
    if costs.steps:
        last = f"Decoding: the last {Decoding.tokens} tokens of a text this long, or all."
        remarks += [f"{last} What comes before them is read at once."]
        remarks += [
            remark for name in costs.passes if name in costs.steps and (remark := mixer_class(name).decoding_remark)
        ]
    if any(at.captured for passes in costs.passes.values() for at in passes):
        remarks += ["On the GPU: " + " · ".join(_ways_of_running(costs)) + "."]
    return remarks


def _ways_of_running(costs: Costs) -> Iterator[str]:
    """Which mixers are compiled, and captured in a CUDA graph."""
    together: dict[str, list[str]] = {}
    for name, passes in costs.passes.items():
        ways = {
            f"{'' if at.compiled else 'not '}compiled, {'' if at.captured else 'not '}captured in a graph"
            for at in passes
        }
        if ways:
            together.setdefault(" or ".join(sorted(ways)), []).append(name)
    for ways_shown, names in together.items():
        yield f"{', '.join(names)}: {ways_shown}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _figure(value: float | None) -> str:
    """Three digits, or all before the point."""
    if value is None:
        return "–"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f}"
