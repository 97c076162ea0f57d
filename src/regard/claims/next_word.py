"""Predicting the next word is supervised learning, with inputs A and labels B cut from the text itself.

    A: My favorite food is a              B: bagel
    A: My favorite food is a bagel        B: with            …

A causal model learns all these pairs of a text in one pass. To test that it is the same thing, its loss and gradient
over whole rows are compared with those of a classifier that is shown every pair on its own: the beginning as input,
the next word as class. They are equal because of the causal mask; a model that sees the whole row is the control. The
threshold was 1e-9 at first, which the loss missed by its rounding: it is computed in float32.

Shapes: B rows · T words · W words in the vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, does_not_hold, holds
from regard.claims.frame.pictures import chart, number
from regard.data.text_batches import next_tokens
from regard.models.causal import Causal
from regard.settings import CausalModel
from regard.training.loss import cross_entropy

SENTENCE = "My favorite food is a bagel with cream cheese and lox."
PAIRS = [  # the table of the deck
    ("My favorite food is a", "bagel"),
    ("My favorite food is a bagel", "with"),
    ("My favorite food is a bagel with", "cream"),
]
SAME, DIFFERENT = 1e-6, 1e-3  # losses are in float32

ABOUT = About(
    text="Generative models are made by supervised learning (A → B): to predict the next word again and again.",
    decks=("004",),
    group="text",
    measures="the difference between loss and gradient of a causal model over a row and of the same model as a "
    "classifier of the next word, shown every beginning on its own; relative. And the deck's "
    "table of pairs from its sentence.",
    threshold=f"loss and gradient differ by less than {SAME:g}; in a model without causal mask by more than "
    f"{DIFFERENT:g}; all pairs of the deck are in the batch.",
    figures={
        "gradient": "relative difference of the gradients",
        "loss": "relative difference of the losses",
        "unmasked": "relative difference of the gradients without a causal mask",
        "pairs": "pairs of the deck that are in the batch, of 3",
    },
    seeds=Seeds(tiny=1, normal=5, full=5),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    words = SENTENCE.removesuffix(".").split()
    ids = np.arange(3, 3 + len(words))  # 0, 1 and 2 stand for no word
    batch = next_tokens(ids, np.array([0]), len(ids) - 1)
    made = [
        (" ".join(words[: place + 1]), words[int(label) - 3]) for place, label in enumerate(batch.labels[0].tolist())
    ]
    torch.manual_seed(seed)
    settings = CausalModel(layers=2, width=32, heads=4, feedforward=64, dropout=0)
    model = Causal(settings, 3 + len(words)).double()
    difference, loss_difference = compared(model, batch.tokens_BT, batch.labels)
    model.trunk.causal = False
    unmasked, _ = compared(model, batch.tokens_BT, batch.labels)
    return {
        "gradient": difference,
        "loss": loss_difference,
        "unmasked": unmasked,
        "pairs": sum(pair in made for pair in PAIRS),
    }


def compared(model: Causal, tokens_BT: Tensor, labels_BT: Tensor) -> tuple[float, float]:
    """How far gradient and loss over whole rows are from those over single pairs; relative."""
    loss = cross_entropy(model(tokens_BT), labels_BT)
    at_once = _gradient(model, loss)
    single = sum(
        cross_entropy(model(tokens_BT[:, : place + 1])[:, -1], labels_BT[:, place])
        for place in range(tokens_BT.shape[1])
    )
    assert isinstance(single, Tensor)
    one_by_one = _gradient(model, single)
    by_loss = (loss - single).abs() / single
    return float((at_once - one_by_one).norm() / one_by_one.norm()), by_loss.item()


def _gradient(model: Causal, loss: Tensor) -> Tensor:
    return torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(model.parameters()))])


def verdict(measured: Measured) -> Verdict:
    same = max(measured["gradient"].max(), measured["loss"].max())
    unmasked, pairs = measured.mean("unmasked"), measured["pairs"].min()
    told = (
        f"The deck's {int(pairs)} pairs are in the batch, and learning them one by one gives the same loss and "
        f"gradient ({number(same)} at most). Without the causal mask it would not ({unmasked:.0%} off): labels could "
        "be read in the input. No person labels anything: the text does."
    )
    return holds(told) if same < SAME and unmasked > DIFFERENT and pairs == len(PAIRS) else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    words = SENTENCE.removesuffix(".").split()
    figure, axis = chart(ABOUT.text, size=(8, 4.4))
    axis.axis("off")
    rows = [[" ".join(words[:length]), words[length]] for length in range(1, len(words))]
    drawn = axis.table(rows, colLabels=["input A", "label B"], colWidths=[0.8, 0.2], cellLoc="left", loc="center")
    drawn.scale(1, 1.3)
    return figure
