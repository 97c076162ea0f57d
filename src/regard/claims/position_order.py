"""Sines and cosines interleaved, or all sines first: two ways to write the same positions.

    interleaved    PE(p, 2i) = sin(p / 10000^(2i/d))          PE(p, 2i + 1) = cos(p / 10000^(2i/d))
    concatenated   PE(p, i)  = sin(p / 10000^(i/m))           PE(p, m + i)  = cos(p / 10000^(i/m)),   m = d/2

One is a permutation of the other's channels. The first layer multiplies by a matrix, so if its columns and those of
the embedding are permuted alike, every number that follows is the same: for each model of one kind there is one of the
other. That is tried with an embedding and an attention layer; the second formula, as deck 001 has it, is written out.
(A first trial was in float32, with a threshold of 1e-6 that its rounding exceeded; now the layers are in float64.)

Shapes: P positions · D width · B rows · T words
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor

from regard.claims.frame.claim import About, Budget, Measured, Verdict, does_not_hold, holds
from regard.claims.frame.pictures import number, set_title
from regard.layers.attention import Attention
from regard.layers.context import Context
from regard.layers.embedding import token_embedding
from regard.layers.positions import SinusoidalHalves
from regard.settings import SequenceModel

WIDTH, POSITIONS, WORDS = 32, 100, 40
SAME, ROUNDING, DIFFERENT = 1e-9, 1e-4, 1e-2
# Channel c of the concatenated form is channel ORDER[c] of the interleaved one.
ORDER = [*range(0, WIDTH, 2), *range(1, WIDTH, 2)]

ABOUT = About(
    text="Interleaved and concatenated sines and cosines are equivalent position codes.",
    decks=("001", "002", "004"),
    group="positions",
    measures="the largest difference between the codes after their channels are permuted; between the concatenated "
    "code and the deck's formula; and between the outputs of attention layers whose weights are permuted alike.",
    threshold=f"codes and outputs differ by less than {SAME:g}, the formula by less than {ROUNDING:g} (float32 at "
    f"position 100); with weights that are not permuted, outputs differ by more than {DIFFERENT}.",
    figures={
        "output": "largest difference of the outputs, weights permuted alike",
        "codes": "largest difference of the permuted codes",
        "formula": "largest difference from the formula of deck 001",
        "not_permuted": "largest difference of the outputs, weights not permuted",
    },
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    torch.manual_seed(seed)
    words_BT = torch.randint(WORDS, (4, 20))
    positions_P = torch.arange(POSITIONS)
    interleaved, concatenated = (_settings(kind) for kind in ("sinusoidal", "sinusoidal-halves"))
    embed, attention = token_embedding(interleaved, WORDS).double(), Attention(interleaved).double()
    embed_other, attention_other = token_embedding(concatenated, WORDS).double(), Attention(concatenated).double()
    attention_other.load_state_dict(attention.state_dict())
    embed_other.table.load_state_dict(embed.table.state_dict())
    with torch.no_grad():
        output_BTD = _output(embed, attention, words_BT)
        not_permuted = _output(embed_other, attention_other, words_BT) - output_BTD
        embed_other.table.weight.copy_(embed.table.weight[:, ORDER])
        attention_other.to_qkv.weight.copy_(attention.to_qkv.weight[:, ORDER])
        permuted = _output(embed_other, attention_other, words_BT) - output_BTD
        codes_PD = embed.positions.code(positions_P)[:, ORDER]
        codes = embed_other.positions.code(positions_P) - codes_PD
        formula = concatenated_formula(positions_P) - SinusoidalHalves(concatenated).code(positions_P)
    return {
        "output": float(permuted.abs().max()),
        "codes": float(codes.abs().max()),
        "formula": float(formula.abs().max()),
        "not_permuted": float(not_permuted.abs().max()),
        "of_channels": torch.stack([embed.positions.code(positions_P[:50]), codes_PD[:50]]),
    }


def concatenated_formula(positions_P: Tensor) -> Tensor:
    """As deck 001 writes it, with d_m half of the width: [P, D]."""
    half = WIDTH // 2
    angles_PI = positions_P[:, None] / 10000 ** (torch.arange(half) / half)
    return torch.cat([angles_PI.sin(), angles_PI.cos()], dim=1)


def _settings(kind: str) -> SequenceModel:
    return SequenceModel(width=WIDTH, heads=4, dropout=0, positions=kind)


def _output(embed: torch.nn.Module, attention: Attention, words_BT: Tensor) -> Tensor:
    places_1T = torch.arange(words_BT.shape[1])[None]
    return attention(embed(words_BT, places_1T), Context.build(None, places_1T, causal=False))


def verdict(measured: Measured) -> Verdict:
    same = max(measured[name].max() for name in ("output", "codes"))
    formula, different = measured["formula"].max(), measured.mean("not_permuted")
    told = (
        f"Permuted alike, outputs and codes differ by {number(same)} at most, the deck's formula by {number(formula)}; "
        f"weights must be permuted for it ({number(different)} without)."
    )
    return holds(told) if same < SAME and formula < ROUNDING and different > DIFFERENT else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure = Figure(figsize=(8, 4), layout="constrained")
    set_title(figure, ABOUT.text)
    for axis, codes_PD, name in zip(
        figure.subplots(1, 2, sharey=True), measured["of_channels"][0], ("interleaved", "concatenated"), strict=True
    ):
        axis.imshow(codes_PD, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("channel")
        axis.set_ylabel("position")
    return figure
