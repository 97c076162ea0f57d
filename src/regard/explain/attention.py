"""Attention weights of every head.

For a text, from queries (down) to keys (across); for a translator, from output tokens to source tokens. For an image,
maps over the picture; for a caption, a map for each word.

Shapes: L layers · H heads · T queries · S keys
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import UsageError, did_you_mean
from regard.explain.explanation import Explanation
from regard.explain.heat_maps import Map, block_labels, draw_maps, reduced
from regard.explain.sheet import label
from regard.explain.view import View
from regard.inside.named import Named, named
from regard.inside.parts import PartTrace
from regard.inside.trace import Trace

MOST_LAYERS, MOST_HEADS = 24, 16  # drawn
MANY = 48  # keys; beyond, most weights are small (as on the page, heads.js)
MOST_NUMBERS = 1 << 22  # in the arrays; of more, blocks of neighbouring positions are reduced to their maximum
CROSS = "cross"  # --stack for cross-attention


def attention(view: View) -> Explanation:
    subject, stack = view.subject, view.choice.stack
    has_cross = any(part.cross for part in view.trace.parts())
    if subject.stacks[0].grid is not None and has_cross and stack in ("", CROSS):
        from regard.explain.caption_maps import caption_maps

        return caption_maps(view)
    if subject.last.grid is not None and not stack:
        from regard.explain.image_maps import image_maps

        return image_maps(view)
    return of_text(view)


def of_text(view: View) -> Explanation:
    parts, cross = chosen_attention(view.trace, view.choice.stack)
    weights, remarks = named_weights(view, parts, cross)
    layers, heads, down, across = weights.labels
    drawn_layers, drawn_heads = range(len(layers))[-MOST_LAYERS:], range(len(heads))[:MOST_HEADS]
    if len(drawn_layers) < len(layers) or len(drawn_heads) < len(heads):
        drawn = f"layers {layers[drawn_layers[0]]} to {layers[-1]} and heads {heads[0]} to {heads[drawn_heads[-1]]}"
        remarks = [*remarks, f"drawn: {drawn}, of {len(layers)} layers with {len(heads)} heads"]

    def draw() -> Any:
        maps = [
            [Map(f"layer {layers[layer]} · head {heads[head]}", weights.values[layer, head]) for head in drawn_heads]
            for layer in drawn_layers
        ]
        axes = ("output token", "source token") if cross else ("query", "key")
        many = len(across) > MANY
        unit = "attention weight" + (" (colours: square root)" if many else "")
        # Of few keys always 0 to 1, so that pictures can be compared.
        most = None if many else 1.0
        return draw_maps(maps, [*map(label, down)], [*map(label, across)], unit, axes, largest=most, root=many)

    block = reduced(weights.values)[1]
    if max(block) > 1:
        remarks = [*remarks, f"drawn: the largest weight of each block of {block[0]} × {block[1]} positions"]
    if cross:
        title = "Cross-attention: attention from each output token to the source"
    else:
        owner = f" of the {parts[0].name.partition('.')[0]}" if len(view.subject.stacks) > 1 else ""
        title = f"Self-attention{owner}: attention from each query to each key"
    return Explanation(title, [weights], draw, remarks)


def chosen_attention(trace: Trace, stack: str = "") -> tuple[list[PartTrace], bool]:
    """The attention of all layers, and whether it is cross-attention, which is the default if there is any.

    Otherwise it is the self-attention of the given stack, or of the last one.
    """
    cross = [part for part in trace.parts() if part.cross]
    if cross and stack in ("", CROSS):
        return cross, True
    known = [each.name for each in trace.stacks]
    if stack == CROSS:
        raise UsageError("This model has no cross-attention.", "It reads a single input.", "Leave --stack out.")
    if stack and stack not in known:
        raise UsageError(
            f"This model has no stack '{stack}'.",
            f"Its stacks are {', '.join(known)}.",
            did_you_mean(stack, [*known, *([CROSS] if cross else [])]),
        )
    parts = [part for layer in (trace[stack] if stack else trace.last).layers for part in layer.parts]
    own = [part for part in parts if part.attends and not part.cross]
    if not own and any(part.cross for part in parts):
        raise UsageError(
            f"The {stack} of this model has no self-attention.",
            "It only attends to the source.",
            f"Use --stack {CROSS}, or leave --stack out.",
        )
    if not own:
        owner = f"The {stack} of this model" if stack else "This model"
        raise UsageError(
            f"{owner} has no attention.",
            "It mixes positions by other means.",
            "Use --what influence, which every model has.",
        )
    return own, False


def named_weights(view: View, parts: list[PartTrace], cross: bool) -> tuple[Named, list[str]]:
    """The weights of the chosen layers and heads, [L, H, T, S]; and remarks on how they were reduced."""
    chosen = [parts[number] for number in view.layers(len(parts))]
    heads = view.heads(chosen[0].attention().weights_BHTS.shape[1])
    weights: list[NDArray[np.float32]] = []
    block = (1, 1)
    for part in chosen:
        weights_HTS = part.attention().weights_BHTS[0, list(heads)].float().cpu().numpy()
        most_per_head = max(1, MOST_NUMBERS // (len(chosen) * len(heads)))
        most = int(most_per_head**0.5) if weights_HTS[0].size > most_per_head else max(weights_HTS.shape)
        weights_HTS, block = reduced(weights_HTS, most)
        weights.append(weights_HTS)
    subject = view.subject
    owner = next(stack for stack in subject.stacks if chosen[0].name.startswith(f"{stack.name}."))
    down = [answer.label for answer in subject.answers] if cross else owner.pieces
    across = subject.stacks[0].pieces if cross else owner.pieces
    axes = [
        ("layer", [layer_name(part) for part in chosen]),
        ("head", [str(head + 1) for head in heads]),
        ("written" if cross else "position", block_labels(down, block[0])),
        ("source" if cross else "looked at", block_labels(across, block[1])),
    ]
    remarks = []
    if max(block) > 1:
        remarks.append(
            f"reduced to the largest weight of each block of {block[0]} × {block[1]} positions; "
            "--layer and --head show more detail"
        )
    return named("attention", np.stack(weights), axes, "weight"), remarks


def layer_name(part: PartTrace) -> str:
    """'decoder.0.cross' is in layer 1."""
    return str(int(part.name.split(".")[-2]) + 1)
