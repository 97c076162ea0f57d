"""What each mixer costs as the text gets longer.

    attention     n² · d          every position is compared with every other
    Hyena         n log n · d     a convolution as long as the text, by Fourier transforms
    local         n · w · d       w: the window
    recurrence    n · d²          but in n steps that wait for each other

The slope of a line in log-log tells the power: cost ≈ a · nᵉ. The slope of n log n is e = 1 + 1 / ln n, about 1.1 for
thousands. Every mixer also has a part that is linear in n (its projections, n · d²), so lengths must be well above the
width to see the rest. Measured as `regard bench mixers` does: seconds of forward and backward, and memory. Beside them,
arithmetic is counted, and the longest chain of operations that wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.operations import longest_chain, operations
from regard.claims.frame.pictures import chart, line
from regard.evaluation.cost import PassCost, Setup, Spread, forward_backward, growth
from regard.hardware import Hardware
from regard.settings import SystemSettings

MIXERS = ("attention", "hyena", "local", "gru")
WINDOW = 16
SQUARE, NEARLY_LINEAR = 1.7, 1.35

ABOUT = About(
    text="With the length n, attention costs n², Hyena n log n, local attention n, recurrence n steps in a row.",
    decks=("000", "001", "002", "004"),
    group="cost",
    measures="the power of n by which a layer's forward and backward pass grow, fitted in log-log over the longer "
    "half of the lengths: seconds on this machine, arithmetic counted, and operations that wait for each other.",
    threshold=f"in seconds and in arithmetic, attention's power is above {SQUARE:g}, those of Hyena, local attention "
    f"and GRU are below {NEARLY_LINEAR:g}; the chain of waiting operations grows as n in the GRU only.",
    figures={
        "attention": "power of n, seconds, attention",
        "hyena": "power of n, seconds, Hyena",
        "local": "power of n, seconds, local attention",
        "gru": "power of n, seconds, GRU",
        "counted_attention": "power of n, arithmetic, attention",
        "counted_hyena": "power of n, arithmetic, Hyena",
        "counted_local": "power of n, arithmetic, local attention",
        "counted_gru": "power of n, arithmetic, GRU",
        "chain_gru": "power of n, longest chain, GRU",
        "memory_attention": "power of n, memory, attention by a fused kernel",
        "memory_unfused": "power of n, memory, attention as it is written",
    },
    seeds=Seeds(tiny=1, normal=3, full=3),
    timed=True,
)

Measure = Callable[[str, int, Setup], PassCost]


def experiment(budget: Budget, seed: int, clock: Measure | None = None) -> Mapping[str, ArrayLike]:
    """`clock`: what a pass takes. `seed` changes nothing that is counted; seconds are measured once more."""
    lengths = budget.choose(
        tiny=(64, 128, 256), normal=(256, 512, 1024, 2048, 4096), full=(1024, 2048, 4096, 8192, 16_384, 32_768)
    )
    counted_at = budget.choose(tiny=lengths, normal=(256, 512, 1024))
    hardware = Hardware.choose(SystemSettings(device=budget.device))
    setup = Setup(hardware, budget.choose(tiny=8, normal=32), heads=1, rounds=3, own={"local": {"window": WINDOW}})
    on_cpu = Setup(Hardware.choose(SystemSettings(device="cpu")), setup.width, heads=1, own=setup.own)
    clock = clock or budget.choose(tiny=arithmetic, normal=forward_backward)
    passes = {name: [clock(name, length, setup) for length in lengths] for name in (*MIXERS, "unfused")}
    counted = {mixer: [arithmetic(mixer, length, on_cpu) for length in counted_at] for mixer in MIXERS}
    chains = {mixer: [chain(mixer, length, on_cpu) for length in counted_at] for mixer in MIXERS}
    return {
        **{mixer: power(lengths, least(passes[mixer])) for mixer in MIXERS},
        **{f"counted_{mixer}": power(counted_at, least(counted[mixer])) for mixer in MIXERS},
        **{f"chain_{mixer}": power(counted_at, chains[mixer]) for mixer in MIXERS},
        **{
            f"memory_{name}": power(lengths, [each.memory for each in passes[name]])
            for name in ("attention", "unfused")
        },
        "taken": [least(passes[mixer]) for mixer in MIXERS],
        "lengths": lengths,
    }


def arithmetic(mixer: str, length: int, setup: Setup) -> PassCost:
    """The same pass, counted: operations in the place of seconds."""
    layer, x_BTD, context = setup.layer(mixer, length), setup.vectors(length).requires_grad_(), setup.context(length)
    count = operations(lambda: layer(x_BTD, context).sum().backward())
    return PassCost(length, Spread(count, count, count, 1), memory=0, compiled=False, captured=False)


def chain(mixer: str, length: int, setup: Setup) -> float:
    layer, x_BTD, context = setup.layer(mixer, length), setup.vectors(length).requires_grad_(), setup.context(length)
    return float(longest_chain(lambda: layer(x_BTD, context).sum()))


def least(passes: list[PassCost]) -> list[float]:
    """Of several rounds: what others on the machine disturb least."""
    return [each.time.least for each in passes]


def power(lengths: tuple[int, ...], costs: list[float]) -> float:
    """Of n, over the longer half; 0 where nothing was measured."""
    grown = growth(list(zip(lengths, costs, strict=True)))
    return grown.exponent if grown else 0.0


def verdict(measured: Measured) -> Verdict:
    taken, counted, chains = (
        {mixer: measured.mean(f"{what}{mixer}") for mixer in MIXERS} for what in ("", "counted_", "chain_")
    )
    told = ", ".join(f"{mixer} {taken[mixer]:.2f} ({counted[mixer]:.2f})" for mixer in MIXERS)
    told = (
        f"Powers of n in seconds (in arithmetic): {told}. The chain of waiting operations grows as "
        f"n^{chains['gru']:.2f} in a GRU, as n^{max(chains[mixer] for mixer in MIXERS[:-1]):.2f} elsewhere."
    )
    if memory := measured.mean("memory_unfused"):
        told += f" Memory: n^{memory:.2f} as written, n^{measured.mean('memory_attention'):.2f} by a fused kernel."
    waits = chains["gru"] > 0.9 and max(chains[mixer] for mixer in MIXERS[:-1]) < 0.1
    if not (waits and as_claimed(counted)):
        return does_not_hold(told)
    return holds(told) if as_claimed(taken) else depends("the machine and the lengths", told)


def as_claimed(powers: Mapping[str, float]) -> bool:
    return powers["attention"] > SQUARE and max(powers[mixer] for mixer in MIXERS[1:]) < NEARLY_LINEAR


def picture(measured: Measured) -> Figure:
    # The tiny size counts operations instead: its picture is of nothing but the test.
    figure, axis = chart(ABOUT.text, "length n", "seconds of a forward and backward pass")
    for place, mixer in enumerate(MIXERS):
        label = f"{mixer}: n^{measured.mean(mixer):.2f}"
        line(axis, measured.curve("lengths"), measured["taken"][:, place], label, place, log=True)
    axis.set_xscale("log", base=2)
    axis.legend()
    return figure
