"""Attention: what every head looked at.

Of a text, weights from each position (down) to those that it looks at (across); of a translator, from each token that
was written to those of its source. Of an image, maps over the picture; of a caption, a map for each word.

Shapes: L layers · H heads · T positions · S positions looked at
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import UsageError, did_you_mean
from regard.explain.heat_maps import Map, draw_maps, joined_labels, reduced
from regard.explain.sheet import label
from regard.explain.shown import Shown
from regard.explain.view import View
from regard.inside.named import Named, named
from regard.inside.parts import PartTrace
from regard.inside.trace import Trace

MOST_LAYERS, MOST_HEADS = 24, 16  # drawn
MANY = 48  # positions beyond which most weights are small, as on the page (heads.js)
MOST_NUMBERS = 1 << 22  # kept; of more, those of neighbouring positions are joined
ACROSS = "cross"  # the name of attention from one stack to another


def attention(view: View) -> Shown:
    subject, stack = view.subject, view.choice.stack
    across = any(part.cross for part in view.trace.parts())
    if subject.stacks[0].grid is not None and across and stack in ("", ACROSS):
        from regard.explain.caption_maps import caption_maps

        return caption_maps(view)
    if subject.last.grid is not None and not stack:
        from regard.explain.image_maps import image_maps

        return image_maps(view)
    return of_text(view)


def of_text(view: View) -> Shown:
    parts, crossing = looking(view.trace, view.choice.stack)
    weights, remarks = named_weights(view, parts, crossing)
    layers, heads, down, across = weights.labels
    shown_layers, shown_heads = range(len(layers))[-MOST_LAYERS:], range(len(heads))[:MOST_HEADS]
    if len(shown_layers) < len(layers) or len(shown_heads) < len(heads):
        drawn = f"layers {layers[shown_layers[0]]} to {layers[-1]} and heads {heads[0]} to {heads[shown_heads[-1]]}"
        remarks = [*remarks, f"drawn: {drawn}, of {len(layers)} layers with {len(heads)} heads"]

    def draw() -> Any:
        maps = [
            [Map(f"layer {layers[layer]} · head {heads[head]}", weights.values[layer, head]) for head in shown_heads]
            for layer in shown_layers
        ]
        names = ("output token", "source token") if crossing else ("query", "key")
        labels = [*map(label, down)], [*map(label, across)]
        spread = len(across) > MANY
        unit = "attention weight" + ("; colours by the square root" if spread else "")
        return draw_maps(maps, *labels, unit, names, root=spread)

    whose = (
        "Cross-attention: attention from each output token to the source"
        if crossing
        else (
            f"Self-attention of the {parts[0].name.partition('.')[0]}: attention from each query to each key"
            if len(view.subject.stacks) > 1
            else "Self-attention: attention from each query to each key"
        )
    )
    return Shown(whose, [weights], draw, remarks)


def looking(trace: Trace, stack: str = "") -> tuple[list[PartTrace], bool]:
    """The attentions of all layers, and whether they look from one stack to another: the default where there are any.

    Otherwise those of the stack asked for, or of the last, to itself.
    """
    crossing = [part for part in trace.parts() if part.cross]
    if crossing and stack in ("", ACROSS):
        return crossing, True
    known = [each.name for each in trace.stacks]
    if stack and stack not in known:
        raise UsageError(
            f"This model has no stack '{stack}'.", "There is no such stack.", did_you_mean(stack, [*known, ACROSS])
        )
    chosen = trace[stack] if stack else trace.last
    own = [part for layer in chosen.layers for part in layer.parts if part.attends and not part.cross]
    if not own and any(part.cross for layer in chosen.layers for part in layer.parts):
        raise UsageError(
            f"The {stack} of this model has no self-attention.",
            "Its attention is to the source.",
            f"Use --stack {ACROSS}, or leave --stack out.",
        )
    if not own:
        whose = f"The {stack} of this model" if stack else "This model"
        raise UsageError(
            f"{whose} has no attention.",
            "It mixes positions by other means.",
            "Use --what influence, which every model has.",
        )
    return own, False


def named_weights(view: View, parts: list[PartTrace], crossing: bool) -> tuple[Named, list[str]]:
    """The weights of the chosen layers and heads, [L, H, T, S]; and what has been done to them, in words."""
    chosen = [parts[number] for number in view.layers(len(parts))]
    heads = view.heads(chosen[0].attention().weights_BHTS.shape[1])
    numbers: list[NDArray[np.float32]] = []
    joined = (1, 1)
    for part in chosen:
        weights_HTS = part.attention().weights_BHTS[0, list(heads)].float().cpu().numpy()
        room = max(1, MOST_NUMBERS // (len(chosen) * len(heads)))
        most = int(room**0.5) if weights_HTS[0].size > room else max(weights_HTS.shape)
        weights_HTS, joined = reduced(weights_HTS, most)
        numbers.append(weights_HTS)
    subject = view.subject
    owner = next(stack for stack in subject.stacks if chosen[0].name.startswith(f"{stack.name}."))
    down = [answer.label for answer in subject.answers] if crossing else owner.pieces
    across = subject.stacks[0].pieces if crossing else owner.pieces
    axes = [
        ("layer", [layer_name(part) for part in chosen]),
        ("head", [str(head + 1) for head in heads]),
        ("written" if crossing else "position", joined_labels(down, joined[0])),
        ("source" if crossing else "looked at", joined_labels(across, joined[1])),
    ]
    remarks = []
    if max(joined) > 1:
        remarks.append(
            f"the largest weight of each block of {joined[0]} × {joined[1]} positions is kept; "
            "--layer and --head show more"
        )
    return named("attention", np.stack(numbers), axes, "weight"), remarks


def layer_name(part: PartTrace) -> str:
    """'decoder.0.cross' is of layer 1."""
    return str(int(part.name.split(".")[-2]) + 1)
