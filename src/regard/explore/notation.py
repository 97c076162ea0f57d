"""The letters of the formulas: the same in every step, and in the arithmetic of every number.

x  the residual stream · x̂  after the norm of a part · m  the output of the encoder · p  the vector of a position
q, k, v  query, key, value · s  scores (additive: e) · a  weights · z  the output of a head
o  the output of a part that mixes positions · h  the inner vector of a feed-forward · f  its output
ℓ  logits · p_j  probabilities · γ, β  gain and bias of a norm · λ  layer scale
in Hyena: v, g_n  streams and gates · u  the result so far · y  the last one; in recurrence: h (Bahdanau: s)  the state
"""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from regard.inside.parts import LayerTrace, PartTrace
from regard.layers.recurrent import Recurrent

NORMED = "x̂"


def read_letter(layer: LayerTrace) -> str:
    """Of what the parts of a layer read: with pre-norm, the normalised vector."""
    return NORMED if layer.block.pre_norm else "x"


def written_letter(part: PartTrace) -> str:
    return "f" if hasattr(part.module, "activate") else "o"


def joined_letters(part: PartTrace) -> str:
    """The concatenated outputs of the heads."""
    names = [f"z_{head + 1}" for head in range(part.heads)]
    if len(names) > 3:
        names[1:-1] = ["…"]
    return f"[{'; '.join(names)}]" if len(names) > 1 else "z"


def mixed_letter(part: PartTrace) -> str:
    """What W_O multiplies in mixers other than plain attention."""
    return "h" if isinstance(part.module, Recurrent) else "y"


def activation(module: Any) -> str:
    """The name of the activation of a feed-forward in a formula: "relu²"."""
    return str(module.activation_name).replace("relu2", "relu²").replace("-", "_")


def with_bias(layer: nn.Linear, name: str) -> str:
    """What the bias adds to a formula, if there is one."""
    return "" if layer.bias is None else f" + {name}"


def learned(layer: nn.Linear, w: str, b: str) -> str:
    """The legend of a linear layer."""
    return legend(f"{w}: a learned matrix", "" if layer.bias is None else f"{b}: a learned bias")


def scaled(part: PartTrace, formula: str) -> str:
    """With layer scale, if there is one."""
    return formula if part.scale_D is None else f"({formula}) ⊙ λ"


def output_formula(part: PartTrace, letter: str) -> str:
    """Of the output of a part that mixes positions. `letter`: of what W_O multiplies."""
    return f"o = {scaled(part, f'{letter} W_O' + with_bias(part.module.to_out, 'b_O'))}"


def about_scale(part: PartTrace) -> str:
    return "" if part.scale_D is None else "λ: layer scale, a learned factor of each component"


def root(letter: str, width: int) -> str:
    """ "√d_k = √32 = 5.657" """
    return f"√{letter} = √{width:,} = {math.sqrt(width):.4g}"


def legend(*parts: str) -> str:
    return " · ".join(part for part in parts if part)
