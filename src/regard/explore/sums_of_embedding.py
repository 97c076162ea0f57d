"""The arithmetic of what the first block reads: vectors of tokens and patches, and positions.

Shapes: T positions · D model width · C, H, W of an image · P pixels of a patch
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.explore.notation import root
from regard.explore.session import TracedInput
from regard.explore.stages import place_name
from regard.explore.sums import Derivation, Line, fmt, linear_line, norm_lines, sum_line
from regard.inside.parts import StackTrace
from regard.layers.embedding import Embedding
from regard.layers.patches import PatchEmbedding
from regard.layers.positions import Index, Learned, Sinusoidal, SinusoidalHalves, frequencies
from regard.models.swin import PatchMerging


def token_lines(traced: TracedInput, stack: StackTrace, row: int, column: int) -> Derivation:
    """A component of the vector of a token or a patch."""
    embed, embedding = stack.stack.embed, stack.embedding
    if isinstance(embed, Embedding):
        token = int(embedding.input[row])
        scaled = embed.scale != 1
        line = sum_line(
            "x",
            "√d_model · E[token]" if scaled else "E[token]",
            embed.table.weight[token, column][None],
            torch.tensor([embed.scale]) if scaled else None,
            named=lambda _: f"row {token:,} of the matrix",
            heads=("term", "E[token]", "√d_model", "product"),
            where=root("d_model", embed.table.weight.shape[1]) if scaled else "",
        )
        return [line], ""
    if isinstance(embed, PatchEmbedding):
        if row < embed.before:
            learned = sum_line(
                "x", "a learned vector", embedding.raw_content_TD[row, column][None], named=lambda _: "learned"
            )
            return [learned], "This position is not a patch."
        return _patch(embed.project, embedding.input, row - embed.before, column)
    if isinstance(embed, PatchMerging):
        return _merged(traced, stack, embed, row, column)
    return _patch(traced.trace.subject.model.patches, _pixels(traced), row, column)


def _patch(convolution: Any, image_CHW: Tensor, patch: int, column: int) -> Derivation:
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
    return [
        linear_line(
            "x",
            f"Σ_i pixel_i W_i{'' if bias is None else ' + b'}",
            pixels_CPP.flatten(),
            weight_CPP.flatten(),
            bias,
            None,
            named=named,
            heads=("i", "pixel_i", "W_i", "product"),
        )
    ], ""


@torch.no_grad()
def _pixels(traced: TracedInput) -> Tensor:
    """The input of a Swin's convolution: [C, H, W]."""
    inputs: list[Tensor] = []
    convolution: Any = traced.trace.subject.model.patches
    handle = convolution.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0][0]))
    try:
        traced.trace.subject.logits()
    finally:
        handle.remove()
    return inputs[0]


def _merged(traced: TracedInput, stack: StackTrace, merge: PatchMerging, row: int, column: int) -> Derivation:
    """2 × 2 neighbours of the previous stage: concatenated, normalised, and mapped to one vector."""
    four_D = merge.gather(stack.embedding.input[None])[0, row]
    normed_D = merge.norm(four_D)
    weight_D = merge.reduce.weight[column]
    largest = int((normed_D * weight_D).abs().argmax())
    lines = [] if isinstance(merge.norm, nn.Identity) else norm_lines(merge.norm, four_D, None, largest)
    lines.append(linear_line("x", "", normed_D, weight_D, None, None, letters=("x̂", "W", "b")))
    about = "x̂: four neighbours concatenated and normalised; the first lines compute its component"
    return lines, f"{about} {largest + 1:,}."


def place_lines(stack: StackTrace, row: int, column: int) -> Derivation:
    """A component of the vector of a position."""
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
        return [sum_line("p", "P[position]", entry[None], named=lambda _: f"row {position:,} of the table")], ""
    if isinstance(positions, Index):
        weight = positions.direction_D[column]
        line = sum_line(
            "p",
            "position / 100 · w",
            weight[None],
            torch.tensor([position / 100]),
            named=lambda _: f"position {position:,}",
            heads=("term", "w", "position / 100", "product"),
        )
        return [line], ""
    if getattr(embed, "positions_RSD", None) is not None:
        entry = embed.positions_RSD.flatten(0, 1)[position, column]
        name = place_name(stack, row)
        return [sum_line("p", "P[row, column]", entry[None], named=lambda _: f"the table at {name}")], ""
    return [Line("p", "encoding of this position", code)], "" if code else "Nothing is added here."


def _wave(positions: Any, position: int, column: int) -> Line:
    """sin or cos of position · frequency."""
    if isinstance(positions, Sinusoidal):
        pair, kind = column // 2, "cos" if column % 2 else "sin"
    else:
        half = positions.width // 2
        pair, kind = column % half, "cos" if column >= half else "sin"
    angle = position * frequencies(positions.width)[pair]
    value = float(angle.cos() if kind == "cos" else angle.sin())
    numbers = f"{kind}({position:,} / 10,000^({2 * pair:,}/{positions.width:,})) = {kind}({fmt(float(angle))})"
    where = f"i = {pair:,} · d_model = {positions.width:,}"
    return Line("p", f"{kind}(position / 10,000^(2i/d_model))", value, numbers=numbers, where=where)
