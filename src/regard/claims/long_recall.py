"""A name, a long aside, and then the name is needed: attention looks it up, recurrence must carry it all the way.

    attention     one step from the question to the name, however long the aside is
    recurrence    the name is in h, and every word of the aside changes h

The sentence of the lecture, as small as can be: a name, an aside of words that have nothing to do with it, a blank. All
models are trained alike, on asides of all lengths, and asked after each length. One learning rate is used for all, and
a smaller one would have come out otherwise: see `frame/aside.py`. Thresholds were set after that trial.
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.aside import NAMES, longest_aside, share_known, who_was_it
from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import GREY, chart, line

MIXERS = ("rnn", "lstm", "gru", "attention")
KNOWN, LOST = 0.9, 0.5

ABOUT = About(
    text="After a long aside, recurrent models have lost the name that the sentence is about; attention has not.",
    decks=("000", "001", "002", "003"),
    group="recurrence",
    measures="the share of names (one of 8) that a model of one block still knows after an aside of 100 other words, "
    "and after shorter ones; all are trained alike, for 300 steps.",
    threshold=f"after the longest aside attention knows at least {KNOWN:.0%} of the names, and RNN, LSTM and GRU each "
    f"less than {LOST:.0%}.",
    figures={
        "attention": "share of names known after the longest aside, attention",
        "rnn": "RNN",
        "lstm": "LSTM",
        "gru": "GRU",
    },
    seeds=Seeds(tiny=1, normal=3, full=5),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    longest = longest_aside(budget)
    asides = [longest * part // 10 for part in (0, 1, 2, 4, 6, 8, 10)]
    known = {}
    for mixer in MIXERS:
        model = who_was_it(budget, mixer, seed)
        known[mixer] = [share_known(model, aside) for aside in asides]
    return {
        **{mixer: known[mixer][-1] for mixer in MIXERS},
        "known": [known[mixer] for mixer in MIXERS],
        "asides": asides,
    }


def verdict(measured: Measured) -> Verdict:
    known = {mixer: measured.mean(mixer) for mixer in MIXERS}
    nearest = {mixer: float(measured.curve("known")[place, 0]) for place, mixer in enumerate(MIXERS)}
    told = ", ".join(f"{mixer} {known[mixer]:.0%} (right after it: {nearest[mixer]:.0%})" for mixer in MIXERS)
    told = f"Names known after {measured.curve('asides')[-1]:.0f} words: {told}."
    if never := [mixer for mixer in MIXERS if nearest[mixer] < LOST]:
        told += f" Not lost but never learned, even without an aside: {', '.join(never)}."
    if known["attention"] < KNOWN:
        return does_not_hold(told)
    keep = [mixer for mixer in MIXERS[:-1] if known[mixer] >= LOST]
    if not keep:
        return holds(told)
    if len(keep) == len(MIXERS) - 1:
        return does_not_hold(told)
    return depends("the gates", told + " A gate that has learned to stay shut keeps a name through any aside.")


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "words between the name and the blank", "share of names known")
    for place, mixer in enumerate(MIXERS):
        line(axis, measured.curve("asides"), measured["known"][:, place], mixer, place)
    axis.axhline(1 / len(NAMES), color=GREY, linestyle=":", label="chance")
    axis.set_ylim(0, 1.05)
    axis.legend(loc="center right")
    return figure
