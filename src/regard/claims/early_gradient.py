"""How much of the gradient reaches early inputs: vanishing in an RNN, less so in LSTM and GRU, not in attention.

    RNN         ∂h_T/∂h_1 is a product of T − 1 matrices: it shrinks, or grows, exponentially
    LSTM, GRU   gates decide how much of the state is kept, so they can keep all of it, if they have learned to
    attention   one step from any position to any other

Measured on a language model of one block: the derivative of the last position's logits by the first input, relative to
that by an average input. Twice: before training, and after a short one in which the first word must be told at the end,
so that there is a reason to keep it.

Shapes: B rows · T positions · D model width · W words · M mixers
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import chart, line, number
from regard.layers.context import Context
from regard.models.causal import Causal
from regard.settings import CausalModel
from regard.training.loss import cross_entropy
from regard.training.optimizer import UncompiledAdam

MIXERS = ("rnn", "lstm", "gru", "attention")
WORDS, ROWS = 11, 32
VANISHED, ALIVE, LESS = 1e-3, 0.1, 10.0

ABOUT = About(
    text="The gradient to early inputs vanishes in an RNN, less so in LSTM and GRU, and not in attention.",
    decks=("002", "003"),
    group="recurrence",
    measures="the derivative of the last position's output by the first of 60 inputs, relative to the mean over all "
    "inputs: before training, and after a short training to tell the first word at the end.",
    threshold=f"in an RNN below {VANISHED:g}, in attention above {ALIVE}, in LSTM and GRU at least {LESS:.0f} times "
    "that of the RNN; before and after training.",
    figures={
        "rnn": "RNN, before training",
        "lstm": "LSTM, before training",
        "gru": "GRU, before training",
        "attention": "attention, before training",
        "rnn_trained": "RNN, after training",
        "lstm_trained": "LSTM, after training",
        "gru_trained": "GRU, after training",
        "attention_trained": "attention, after training",
    },
    seeds=Seeds(tiny=2, normal=3, full=10),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    length, steps = budget.choose(tiny=40, normal=60), budget.choose(tiny=3, normal=300, full=2000)
    before, after = {}, {}
    for mixer in MIXERS:
        model = make(mixer, seed)
        before[mixer] = by_position(model, length)
        learn_first_word(model, length, steps)
        after[mixer] = by_position(model, length)
    return {
        **{mixer: float(before[mixer][0]) for mixer in MIXERS},
        **{f"{mixer}_trained": float(after[mixer][0]) for mixer in MIXERS},
        "before": torch.stack([before[mixer] for mixer in MIXERS]),
        "after": torch.stack([after[mixer] for mixer in MIXERS]),
    }


def make(mixer: str, seed: int) -> Causal:
    torch.manual_seed(seed)
    return Causal(CausalModel(layers=1, width=32, heads=4, feedforward=64, dropout=0, norm="pre", mixer=mixer), WORDS)


def by_position(model: Causal, length: int) -> Tensor:
    """The size of the derivative of the last logits by each input, divided by the mean over inputs: [T]."""
    positions_1T = torch.arange(length)[None]
    words_BT = torch.randint(3, WORDS, (ROWS, length))
    x_BTD = model.trunk.embedding(words_BT, positions_1T).detach().requires_grad_()
    context = Context.build(None, positions_1T, causal=True)
    logits_BW = model.to_logits(model.trunk.read(x_BTD, context)[:, -1])
    (gradient_BTD,) = torch.autograd.grad((logits_BW * torch.randn_like(logits_BW)).sum(), x_BTD)
    # The last input reaches the output past the mixer, too: the mean is over the others.
    size_T = gradient_BTD.double().norm(dim=-1).mean(0)
    return size_T / size_T[:-1].mean()


def learn_first_word(model: Causal, length: int, steps: int) -> None:
    """A short training to tell the first word at the end; short texts first, then longer ones."""
    optimizer = UncompiledAdam(model.parameters(), lr=3e-3)
    for step in range(steps):
        growing = max(2, min(length, round(1.5 * length * (step + 1) / steps)))
        words_BT = torch.randint(3, WORDS, (ROWS, growing))
        loss = cross_entropy(model(words_BT)[:, -1], words_BT[:, 0]) / ROWS
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def verdict(measured: Measured) -> Verdict:
    before = {mixer: measured.mean(mixer) for mixer in MIXERS}
    after = {mixer: measured.mean(f"{mixer}_trained") for mixer in MIXERS}
    told = ", ".join(f"{mixer} {number(before[mixer])} and {number(after[mixer])}" for mixer in MIXERS)
    told = (
        f"What reaches the first input, before and after training: {told}. Before training gates are half open, and "
        "lose it as well, only later; to keep it is something that they learn."
    )
    if before["attention"] < ALIVE or before["rnn"] > VANISHED:
        return does_not_hold(told)
    if _as_claimed(before) and _as_claimed(after):
        return holds(told)
    return depends("training", told) if _as_claimed(after) else does_not_hold(told)


def _as_claimed(of: Mapping[str, float]) -> bool:
    gated = min(of["lstm"], of["gru"])
    return of["rnn"] < VANISHED and of["attention"] > ALIVE and gated > LESS * of["rnn"]


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "position of the input", "derivative of the last output, relative to the mean")
    positions = range(1, measured["before"].shape[-1])
    for place, mixer in enumerate(MIXERS):
        line(axis, positions, measured["after"][:, place, :-1], f"{mixer}, trained", place, log=True)
        axis.plot(positions, measured["before"].mean(0)[place, :-1], color=axis.lines[-1].get_color(), linestyle=":")
    axis.set_ylim(1e-12, 100)
    axis.plot([], [], color="#666666", linestyle=":", label="before training")
    axis.legend(loc="lower right")
    return figure
