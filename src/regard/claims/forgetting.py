"""How long recurrent models remember: about 100 tokens, as a lecture says, or as long as they had to?

    memory     the longest aside after which a model still knows the name in more than half of the texts

The models of `long-recall` are asked after asides up to eight times as long as any they were trained on. If about 100
tokens were a property of recurrence, the same number should come out whether training has asked for 100 words or for a
quarter of it. So there are two trainings of each. How far a model gets also depends on the learning rate: see
`frame/aside.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.aside import longest_aside, share_known, who_was_it
from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import GREY, chart, line

MIXERS = ("lstm", "gru")
TRAINED = {"short": 4, "long": 1}  # the longest aside of training is divided by this
HALF = 0.5
LEAST, MOST = 100 / 3, 100 * 3

ABOUT = About(
    text="Recurrent models forget what they have read after about 100 tokens.",
    decks=("003",),
    group="recurrence",
    measures="the longest aside, of up to 800 words, after which an LSTM and a GRU still know a name in more than "
    "half of the texts, if they were trained on asides of up to 25 words, and of up to 100.",
    threshold=f"between {LEAST:.0f} and {MOST:.0f} tokens in both models, after both trainings.",
    figures={
        "gru_long": "tokens that a GRU remembers, trained on up to 100",
        "gru_short": "the same, trained on up to 25",
        "lstm_long": "tokens that an LSTM remembers, trained on up to 100",
        "lstm_short": "the same, trained on up to 25",
    },
    seeds=Seeds(tiny=1, normal=3, full=5),
)


def experiment(budget: Budget, seed: int, mixers: Sequence[str] = MIXERS) -> Mapping[str, ArrayLike]:
    """`mixers`: what stands for LSTM and GRU; a test has another."""
    longest = longest_aside(budget)
    asides = sorted({round(longest * 8 / 2**half) for half in (0, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6)})
    known = {}
    for mixer, used in zip(MIXERS, mixers, strict=True):
        for name, part in TRAINED.items():
            model = who_was_it(budget, used, seed, longest // part)
            known[f"{mixer}_{name}"] = [share_known(model, aside) for aside in asides]
    return {
        **{name: memory(asides, shares) for name, shares in known.items()},
        "known": list(known.values()),
        "asides": asides,
    }


def memory(asides: Sequence[int], shares: Sequence[float]) -> float:
    """The longest aside before the first one after which half are forgotten."""
    remembered = 0
    for aside, share in zip(asides, shares, strict=True):
        if share < HALF:
            break
        remembered = aside
    return float(remembered)


def verdict(measured: Measured) -> Verdict:
    remembered = {f"{mixer}_{name}": measured.mean(f"{mixer}_{name}") for mixer in MIXERS for name in TRAINED}
    told = (
        f"A GRU remembers {remembered['gru_short']:.0f} or {remembered['gru_long']:.0f} tokens, trained on asides of a "
        f"quarter of the length or of the whole; an LSTM {remembered['lstm_short']:.0f} or "
        f"{remembered['lstm_long']:.0f}. The longest that was asked is {measured.curve('asides')[-1]:.0f}."
    )
    as_claimed = [LEAST <= tokens <= MOST for tokens in remembered.values()]
    if all(as_claimed):
        return holds(told)
    return depends("what training has asked for", told) if any(as_claimed) else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "words between the name and the question", "share of names known")
    names = [f"{mixer}, {name} asides in training" for mixer in MIXERS for name in TRAINED]
    for place, name in enumerate(names):
        line(axis, measured.curve("asides"), measured["known"][:, place], name, place)
    axis.axvline(100, color=GREY, linestyle=":", label="100 tokens")
    axis.set_xscale("log", base=2)
    axis.set_ylim(0, 1.05)
    axis.legend(fontsize=8)
    return figure
