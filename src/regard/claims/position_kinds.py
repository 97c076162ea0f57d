"""What tells a Transformer order: codes of position of several kinds, on a task that is about nothing else.

    sinusoidal   sines and cosines of p at many frequencies          index    the number p along one direction
    learned      a table, one vector for each p                      rotary   queries and keys turned by p
    none         nothing; but a causal mask, which tells order, too

The task: symbols are written backwards. What they are does not matter, only where they stand. All models are trained
with the same updates, and rotary and none are told beside what the decks name.

Thresholds were set after a trial with one seed, in which sines and a table had 100 %, the number 39 %, none 33 %.

Shapes: K kinds
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import GREY, bars, chart
from regard.claims.frame.synthetic import sequences
from regard.claims.frame.trainings import metrics, trained

NAMED = ("sinusoidal", "learned", "index")  # by the decks
KINDS = (*NAMED, "rotary", "none")
NO_POSITIONS = "none"
LEARNED, LOST = 0.9, 0.5

ABOUT = About(
    text="To learn order a Transformer needs a code of positions, and any will do: sines, a learned table, the number.",
    decks=("001", "002", "003", "004"),
    group="positions",
    measures="the share of symbols that are written backwards rightly, after the same short training with each kind of "
    "positions.",
    threshold=f"more than {LEARNED:.0%} with sines, with a table and with the number itself, less than {LOST:.0%} "
    "without any.",
    figures={
        "sinusoidal": "right, sines",
        "learned": "right, learned table",
        "index": "right, the number itself",
        "rotary": "right, rotary",
        "none": "right, no positions",
    },
    seeds=Seeds(tiny=1, normal=3, full=10),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    settings = budget.choose(
        tiny=[*sequences(10, 32, 70, 0.01), "model.layers=1"],
        normal=sequences(18, 32, 200),
        full=sequences(26, 64, 1000),
    )
    kinds = {kind: kind for kind in KINDS} | {"none": NO_POSITIONS}
    return {
        name: metrics(trained(budget, "reverse", *settings, f'model.positions="{kind}"', seed=seed))["accuracy"] / 100
        for name, kind in kinds.items()
    }


def verdict(measured: Measured) -> Verdict:
    right = {kind: measured.mean(kind) for kind in KINDS}
    good, bad = ([kind for kind in NAMED if (right[kind] > LEARNED) == well] for well in (True, False))
    told = ", ".join(f"{kind} {share:.0%}" for kind, share in right.items())
    told = f"Symbols written backwards rightly: {told}."
    if right["none"] >= LOST or not good:
        return does_not_hold(told)
    if not bad:
        return holds(told)
    return depends("the kind of code", f"{told} Enough in this training: {', '.join(good)}; not: {', '.join(bad)}.")


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "kind of positions", "share of symbols written rightly")
    names = ["sines", "learned", "number", "rotary", "none"]
    bars(axis, names, [measured[kind] for kind in KINDS])
    axis.set_ylim(0, 1.05)
    axis.axhline(0.1, color=GREY, linestyle=":", linewidth=1)
    axis.annotate("chance", (0.5, 0.1), va="bottom", ha="center", fontsize=8, color=GREY)
    return figure
