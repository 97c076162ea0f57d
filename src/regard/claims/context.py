"""Self-attention gives a word another vector in another context; CBOW has one vector for each word.

The same word is put at the same place of two sentences that share no other word. What an encoder makes of it is
compared; without positions, so that only the company differs. A word vector of CBOW is a row of a table. It is learned
from contexts, but whoever reads it gets the same row in each of them.

An encoder whose attention adds nothing is measured as well: feed-forward layers see one position only, so the
difference must come from attention.

Shapes: B sentences · T words · D model width
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor

from regard.claims.frame.claim import About, Budget, Measured, Verdict, does_not_hold, holds
from regard.claims.frame.pictures import bars, chart, number
from regard.layers.embedding import token_embedding
from regard.models.cbow import Cbow
from regard.models.initialise import initialise
from regard.models.trunk import Trunk
from regard.settings import SequenceModel

WORDS, LENGTH, PLACE, WORD = 60, 10, 4, 0
NOTHING, SOMETHING = 1e-9, 0.05

ABOUT = About(
    text="Self-attention makes a word's vector depend on its context; word vectors of CBOW do not.",
    decks=("003", "004"),
    group="attention",
    measures="how far the vectors of one word in two sentences without any other word in common are apart, relative to "
    "their length: after an encoder of two blocks, after the same without attention, and in CBOW.",
    threshold=f"more than {SOMETHING:.0%} with attention, less than {NOTHING:g} without it and in CBOW.",
    figures={
        "attention": "distance, encoder",
        "alone": "distance, encoder without attention",
        "cbow": "distance, CBOW",
    },
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    torch.manual_seed(seed)
    others = 1 + torch.randperm(WORDS - 1)
    words_BT = torch.stack([others[:LENGTH], others[LENGTH : 2 * LENGTH]])
    words_BT[:, PLACE] = WORD
    model = encoder()
    attended = apart(model, words_BT)
    without_attention(model)
    cbow = Cbow(WORDS, 32, window=2)
    one_D, other_D = cbow.input[words_BT[:, PLACE]].detach()
    return {
        "attention": attended,
        "alone": apart(model, words_BT),
        "cbow": float((one_D - other_D).norm() / one_D.norm()),
    }


def encoder() -> Trunk:
    settings = SequenceModel(layers=2, width=32, heads=4, feedforward=64, dropout=0, positions="none")
    model = Trunk(settings, token_embedding(settings, WORDS), causal=False)
    initialise(model, settings, depth=settings.layers)
    return model.double().eval()


def without_attention(model: Trunk) -> None:
    """Attention adds nothing any more."""
    for name, weight in model.named_parameters():
        if "mixer.to_out" in name:
            torch.nn.init.zeros_(weight)


@torch.no_grad()
def apart(model: Trunk, words_BT: Tensor) -> float:
    one_D, other_D = model(words_BT)[:, PLACE]
    return float((one_D - other_D).norm() / one_D.norm())


def verdict(measured: Measured) -> Verdict:
    attention, alone, cbow = (measured.mean(name) for name in ABOUT.figures)
    told = (
        f"Two contexts put an encoder's vectors {attention:.0%} of their length apart, already before any training; "
        f"without its attention {number(alone)}, in CBOW {number(cbow)}."
    )
    return holds(told) if attention > SOMETHING and max(alone, cbow) < NOTHING else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, y="distance of one word's vectors in two contexts")
    bars(axis, ["encoder", "encoder without\nattention", "CBOW"], [measured[name] for name in ABOUT.figures])
    return figure
