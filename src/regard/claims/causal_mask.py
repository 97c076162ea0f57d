"""Without the causal mask a language model reads its labels in its input.

    masked      position t sees 1 … t        p(next | all so far)
    unmasked    position t sees all          the next letter is in the input: it need only be copied

So the loss of training falls far below what the text allows, and looks like success. To write is another matter: the
letter after the last is in no input. Two models of the same weights at the start, one of them without the mask, learn
the same rows of letters; then both go on with beginnings, one letter at a time. Labels are the letters of the row
itself, shifted by one: the letter after the row is the one label that is not in the input, and none of them.

Writing was first to be judged by whole words, half as many without the mask. A trial showed that a small model writes
few of them even with it, and that "a a a" are words. So the threshold is for the letter after a beginning; runs of
four letters are told beside it.

Shapes: B rows · T letters · W letters in the alphabet
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import bars, line, set_title
from regard.data.samples.english_german import corpus
from regard.models.causal import Causal
from regard.settings import CausalModel
from regard.training.loss import cross_entropy
from regard.training.optimizer import UncompiledAdam

PROMPT, WRITTEN, RUN = 24, 24, 4

COLLAPSED, FAILED = 0.1, 0.5

ABOUT = About(
    text="Without the causal mask a decoder cheats: it copies its labels from the input, and then cannot write.",
    decks=("000", "003", "004"),
    group="attention",
    measures="a model of letters, trained on English sentences with the mask and without it: the loss at the end of "
    "training, in nats a letter; how often it guesses the letter after a beginning; and of what it then writes, how "
    "many runs of four letters occur in the text.",
    threshold=f"without the mask the loss is less than {COLLAPSED:.0%} of that with it, and less than {FAILED:.0%} as "
    "many letters after a beginning are guessed.",
    figures={
        "guessed_masked": "share of letters after a beginning that are guessed, with the mask",
        "guessed_unmasked": "share of letters after a beginning that are guessed, without the mask",
        "written_masked": "share of written runs of four letters that occur in the text, with the mask",
        "written_unmasked": "share of written runs of four letters that occur in the text, without the mask",
        "loss_masked": "loss at the end of training, with the mask",
        "loss_unmasked": "loss at the end of training, without the mask",
    },
    seeds=Seeds(tiny=1, normal=3, full=10),
)


class Unmasked(Causal):
    """Every position sees all others."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.trunk.causal = False


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    steps, width, size = budget.choose(tiny=(60, 32, (16, 32)), normal=(150, 64, (32, 48)), full=(3000, 128, (64, 128)))
    text = "\n".join(english for english, _ in corpus(1, budget.choose(tiny=200, normal=4000), 1, 1).train)
    found: dict[str, ArrayLike] = {}
    curves = []
    for name, kind in {"masked": Causal, "unmasked": Unmasked}.items():
        torch.manual_seed(seed)
        settings = CausalModel(
            layers=2, width=width, heads=2, feedforward=2 * width, dropout=0, norm="pre", positions="rotary"
        )
        letters = ["", *sorted(set(text))]  # 0 is no letter: as a label it is passed over
        model = kind(settings, len(letters))
        ids_N = torch.tensor([letters.index(letter) for letter in text])
        losses = learn(model, ids_N, steps, size)
        written_BT = write(model, rows_of(ids_N, 32, PROMPT))
        texts = ["".join(letters[letter] for letter in row) for row in written_BT.tolist()]
        found[f"guessed_{name}"] = guessed(model, rows_of(ids_N, 500, PROMPT + 1))
        found[f"loss_{name}"] = sum(losses[-10:]) / 10
        found[f"written_{name}"] = share_known(texts, text)
        curves.append(losses)
    return {**found, "curves": torch.tensor(curves)}


def rows_of(ids_N: Tensor, rows: int, length: int) -> Tensor:
    """Rows cut from the text at random: [B, T]."""
    starts_B1 = torch.randint(len(ids_N) - length, (rows, 1))
    return ids_N[starts_B1 + torch.arange(length)]


def learn(model: Causal, ids_N: Tensor, steps: int, size: tuple[int, int]) -> list[float]:
    """The loss of every step, in nats a letter."""
    optimizer = UncompiledAdam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        read_BT = rows_of(ids_N, *size)
        loss = cross_entropy(model(read_BT)[:, :-1], read_BT[:, 1:]) / read_BT[:, 1:].numel()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def guessed(model: Causal, letters_BT: Tensor) -> float:
    """How often the last letter of these rows is the likeliest after the others."""
    return float((model(letters_BT[:, :-1])[:, -1].argmax(-1) == letters_BT[:, -1]).double().mean())


@torch.no_grad()
def write(model: Causal, letters_BT: Tensor) -> Tensor:
    """These beginnings, continued: each letter is drawn by the probabilities that the model gives."""
    for _ in range(WRITTEN):
        next_BW = model(letters_BT)[:, -1].softmax(-1)
        letters_BT = torch.cat([letters_BT, torch.multinomial(next_BW, 1)], 1)
    return letters_BT


def share_known(written: list[str], text: str) -> float:
    """Of all runs of four letters in what was written after the beginnings, those that occur in the text."""
    known = {text[start : start + RUN] for start in range(len(text) - RUN + 1)}
    runs = [row[start : start + RUN] for row in written for start in range(PROMPT, len(row) - RUN + 1)]
    return sum(run in known for run in runs) / len(runs)


def verdict(measured: Measured) -> Verdict:
    (loss, cheating), (right, wrong), (known, fewer) = (
        (measured.mean(f"{figure}_masked"), measured.mean(f"{figure}_unmasked"))
        for figure in ("loss", "guessed", "written")
    )
    told = (
        f"Loss {loss:.2f} nats a letter with the mask, {cheating:.3f} without it. Of the letters after a beginning, "
        f"{right:.0%} are guessed with it and {wrong:.0%} without; of the runs of four letters written then, "
        f"{known:.0%} and {fewer:.0%} occur in the text."
    )
    if cheating >= COLLAPSED * loss:
        return does_not_hold(told)
    return holds(told) if wrong < FAILED * right else depends("what is asked", f"The loss collapses only. {told}")


def picture(measured: Measured) -> Figure:
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    set_title(figure, ABOUT.text)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    names = ("with the mask", "without it")
    for place, name in enumerate(names):
        line(left, range(1, measured["curves"].shape[-1] + 1), measured["curves"][:, place], name, place, log=True)
    left.set_xlabel("step of training")
    left.set_ylabel("loss, nats a letter")
    left.legend()
    bars(right, names, [measured["guessed_masked"], measured["guessed_unmasked"]])
    right.set_ylabel("share of next letters that are guessed")
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    return figure
