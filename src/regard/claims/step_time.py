"""Whether the words of a text can be learned side by side: the time of a training step, the words of it fixed.

    attention     y_t = Σ_s α_ts v_s          every t at once
    recurrence    h_t = f(x_t, h_{t−1})       h_t has to wait for h_{t−1}

A training step gets the same number of words as ever fewer and longer rows. A recurrent layer then does the very same
arithmetic, however the words are laid out; what grows is only how much of it must wait for something else. If that did
not matter, its time would stay the same. Attention even does more arithmetic on longer rows (each word looks at more
others), but nothing in it waits.

Two clocks: seconds, and, the same on every machine, the longest chain of operations that wait for each other. Seconds
are those of the machine at hand: of a GPU, or of a few cores, which have little to do side by side anyway. That chains
grow by a third of what rows do was a half at first: a dozen operations never wait, and in the tiny size they count.

Shapes: B rows · T positions, B · T the same throughout
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.operations import longest_chain
from regard.claims.frame.pictures import chart, line
from regard.models.causal import Causal
from regard.settings import CausalModel
from regard.training.loss import cross_entropy

MIXERS = ("rnn", "lstm", "gru", "attention")
VOCABULARY = 50
SLOWER, BETWEEN = 3.0, 2.0

ABOUT = About(
    text="Recurrence cannot be parallelised over time, so long texts are slow to train on; attention can.",
    decks=("000", "001", "002", "004"),
    group="recurrence",
    measures="how many times longer a training step of a language model of one block takes when its 1,024 words are "
    "one row instead of 64 rows of 16; and how many times longer the longest chain of operations becomes that wait "
    "for each other.",
    threshold=f"RNN, LSTM and GRU each take at least {SLOWER:g} times as long in one row, and at least {BETWEEN:g} "
    "times what attention grows by; their chains grow by at least a third of what rows grow by, attention's by less.",
    figures={
        "gru": "GRU: time in one row / time in short rows",
        "lstm": "LSTM: the same",
        "rnn": "RNN: the same",
        "attention": "attention: the same",
        "chain_gru": "GRU: longest chain in one row / in short rows",
        "chain_attention": "attention: the same",
    },
    seeds=Seeds(tiny=1, normal=3, full=5),
    timed=True,
)

Step = Callable[[], Tensor]  # the forward pass, which gives the loss


def experiment(budget: Budget, seed: int, clock: Callable[[Step], float] | None = None) -> Mapping[str, ArrayLike]:
    """`clock`: what a step takes; the tiny size, which is a test, has none but the chain."""
    words, lengths = budget.choose(
        tiny=(128, (8, 128)), normal=(1024, (16, 64, 256, 1024)), full=(4096, (16, 64, 256, 1024, 4096))
    )
    clock = clock or (longest_chain if budget.size == "tiny" else seconds)
    taken, chains = {}, {}
    for mixer in MIXERS:
        model = make(mixer, budget.choose(tiny=8, normal=64), seed)
        steps = [forward(model, words // length, length) for length in lengths]
        taken[mixer] = [clock(step) for step in steps]
        chains[mixer] = [longest_chain(step) for step in steps] if clock is not longest_chain else taken[mixer]
    return {
        **{mixer: taken[mixer][-1] / taken[mixer][0] for mixer in MIXERS},
        **{f"chain_{mixer}": chains[mixer][-1] / chains[mixer][0] for mixer in MIXERS},
        "by_length": [[each / taken[mixer][0] for each in taken[mixer]] for mixer in MIXERS],
        "lengths": lengths,
    }


def make(mixer: str, width: int, seed: int) -> Causal:
    torch.manual_seed(seed)
    settings = CausalModel(layers=1, width=width, heads=2, feedforward=2 * width, dropout=0, mixer=mixer)
    return Causal(settings, VOCABULARY)


def forward(model: Causal, rows: int, length: int) -> Step:
    words_BT = torch.randint(VOCABULARY, (rows, length))
    return lambda: cross_entropy(model(words_BT), words_BT)


def seconds(step: Step, rounds: int = 10) -> float:
    """Of forward and backward: the least of some rounds, which others disturb least. The first warms up."""
    taken = []
    for _ in range(rounds + 1):
        begun = time.perf_counter()
        step().backward()
        taken.append(time.perf_counter() - begun)
    return min(taken[1:])


def verdict(measured: Measured) -> Verdict:
    grown = {mixer: measured.mean(mixer) for mixer in MIXERS}
    chain = {mixer: measured.mean(f"chain_{mixer}") for mixer in MIXERS}
    lengths = measured.curve("lengths")
    longer = lengths[-1] / lengths[0]
    told = ", ".join(f"{mixer} {grown[mixer]:.1f} ({chain[mixer]:.0f})" for mixer in MIXERS)
    told = f"In rows {longer:.0f} times as long, the same words take so many times as long (longest chain): {told}."
    waits = {mixer: chain[mixer] > longer / 3 for mixer in MIXERS}
    if waits["attention"] or not all(waits[mixer] for mixer in MIXERS[:-1]):
        return does_not_hold(told)
    slow = [grown[mixer] >= max(SLOWER, BETWEEN * grown["attention"]) for mixer in MIXERS[:-1]]
    if all(slow):
        return holds(told)
    return depends(
        "the machine",
        told
        + " What must wait is as claimed. What it costs is not: a core that does one thing at a time loses nothing "
        "by waiting but the calls of a library, and an LSTM that is one call shows no loss.",
    )


def picture(measured: Measured) -> Figure:
    words = "words in a row; the words of all rows together stay the same"
    figure, axis = chart(ABOUT.text, words, "time of a training step, relative")
    for place, mixer in enumerate(MIXERS):
        line(axis, measured.curve("lengths"), measured["by_length"][:, place], mixer, place, log=True)
    axis.set_xscale("log", base=2)
    axis.legend()
    return figure
