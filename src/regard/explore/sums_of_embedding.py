"""The arithmetic of what the first block reads: vectors of tokens and patches, and positions.

Shapes: T positions · D model width · C, H, W of an image · P pixels of a patch
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.explore.session import Looked
from regard.explore.sums import Line, normalised, product, short, summed
from regard.inside.parts import StackTrace
from regard.layers.embedding import Embedding
from regard.layers.patches import PatchEmbedding
from regard.layers.positions import Index, Learned, Sinusoidal, SinusoidalHalves, frequencies
from regard.models.swin import PatchMerging

Written = tuple[list[Line], str]


def token_lines(looked: Looked, stack: StackTrace, row: int, column: int) -> Written:
    """A number of the vector that stands for a token or a patch."""
    embed, made = stack.stack.embed, stack.embedding
    if isinstance(embed, Embedding):
        token = int(made.input[row])
        entry = embed.table.weight[token, column]
        named = lambda _: f"row {token} of the matrix"  # noqa: E731
        if embed.scale == 1:
            return [summed("x", "E[token]_d", entry[None], named=named)], ""
        line = summed("x", "√D · E[token]_d", entry[None], torch.tensor([embed.scale]), named=named)
        return [line], ""
    if isinstance(embed, PatchEmbedding):
        if row < embed.before:
            itself = summed("x", "a learned vector", made.raw_content_TD[row, column][None], named=lambda _: "learned")
            return [itself], "This position is not a patch."
        return _patch(embed.project, made.input, row - embed.before, column)
    if isinstance(embed, PatchMerging):
        return _merged(looked, stack, embed, row, column)
    return _patch(looked.trace.subject.model.patches, _pixels(looked), row, column)


def _patch(convolution: Any, image_CHW: Tensor, patch: int, column: int) -> Written:
    """Σ over the pixels of a patch."""
    high, wide = convolution.kernel_size
    down, right = divmod(patch, image_CHW.shape[2] // wide)
    pixels_CPP = image_CHW[:, down * high : (down + 1) * high, right * wide : (right + 1) * wide]
    weight_CPP = convolution.weight[column]

    def named(index: int) -> str:
        channel, pixel = divmod(index, high * wide)
        of_channel = f", {('red', 'green', 'blue')[channel]}" if len(pixels_CPP) > 1 else ""
        return f"pixel {pixel // wide + 1}, {pixel % wide + 1}{of_channel}"

    bias = None if convolution.bias is None else convolution.bias[column]
    return [product("x", "Σ pixel · W + b", pixels_CPP.flatten(), weight_CPP.flatten(), bias, None, named=named)], ""


@torch.no_grad()
def _pixels(looked: Looked) -> Tensor:
    """What the convolution of a Swin was given: [C, H, W]."""
    seen: list[Tensor] = []
    convolution: Any = looked.trace.subject.model.patches
    handle = convolution.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][0]))
    try:
        looked.trace.subject.logits()
    finally:
        handle.remove()
    return seen[0]


def _merged(looked: Looked, stack: StackTrace, merge: PatchMerging, row: int, column: int) -> Written:
    """2 × 2 neighbours of the stage before: side by side, normalised, and mapped to one vector."""
    four_D = merge.gather(stack.embedding.input[None])[0, row]
    normed_D = merge.norm(four_D)
    weight_D = merge.reduce.weight[column]
    largest = int((normed_D * weight_D).abs().argmax())
    lines = [] if isinstance(merge.norm, nn.Identity) else normalised(merge.norm, four_D, None, largest)
    lines.append(product("x", "Σ_d y_d W_d", normed_D, weight_D, None, None))
    return lines, f"y: four neighbours concatenated and normalised; the first lines compute number {largest + 1} of it."


def place_lines(stack: StackTrace, row: int, column: int) -> Written:
    """A number of the vector that says where a token stands."""
    embed: Any = stack.stack.embed
    code = float(stack.embedding.raw_position_TD[row, column])
    if isinstance(embed, PatchEmbedding) and row < embed.before:
        return [Line("p", "0", code)], "This position is not a patch, so it has no positional encoding."
    positions = embed.positions if isinstance(embed, Embedding) else getattr(embed, "along", None)
    position = row - (embed.before if isinstance(embed, PatchEmbedding) else 0)
    if isinstance(positions, Sinusoidal | SinusoidalHalves):
        return [_wave(positions, position, column)], ""
    if isinstance(positions, Learned):
        entry = positions.table.weight[position, column]
        return [summed("p", "P[position]_d", entry[None], named=lambda _: f"row {position} of the table")], ""
    if isinstance(positions, Index):
        weight = positions.direction_D[column]
        line = summed("p", "position / 100 · w_d", weight[None], torch.tensor([position / 100]), named=lambda _: "w_d")
        return [line], ""
    if getattr(embed, "positions_RSD", None) is not None:
        entry = embed.positions_RSD.flatten(0, 1)[position, column]
        name = stack.stack.pieces[row]
        return [summed("p", "P[row, column]_d", entry[None], named=lambda _: f"the table at {name}")], ""
    return [Line("p", "encoding of this position", code)], "" if code else "Nothing is added."


def _wave(positions: Any, position: int, column: int) -> Line:
    """sin or cos of position · frequency."""
    if isinstance(positions, Sinusoidal):
        pair, kind = column // 2, "cos" if column % 2 else "sin"
    else:
        half = positions.width // 2
        pair, kind = column % half, "cos" if column >= half else "sin"
    angle = position * frequencies(positions.width)[pair]
    value = float(angle.cos() if kind == "cos" else angle.sin())
    numbers = f"{kind}({position} / 10000^({2 * pair}/{positions.width})) = {kind}({short(float(angle))})"
    return Line("p", f"{kind}(position / 10000^(2i/D))", value, numbers=numbers)
