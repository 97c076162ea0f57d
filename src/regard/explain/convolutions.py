"""Convolutions as the matrices that they are: what each position takes from each other one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn

from regard.errors import RegardError
from regard.explain.figures import save

POSITIONS = 48
LAYERS, CHANNELS = 4, 5  # drawn at most


@torch.inference_mode()
def draw_convolutions(model: nn.Module, width: int, path: Path) -> dict[str, Any]:
    """The first convolution of each layer whose mixer has `toeplitz`; returns what is drawn."""
    mixers: dict[str, Any] = {name: module for name, module in model.named_modules() if hasattr(module, "toeplitz")}
    if not mixers:
        raise RegardError(
            "There are no convolutions to draw.",
            "No layer of this model mixes positions by a convolution.",
            'Choose a run with a mixer that does, such as model.mixer = "hyena".',
        )
    mixers = dict(list(mixers.items())[:LAYERS])
    # From the channel that forgets most slowly to the one that forgets fastest.
    channels = sorted({round(n * (width - 1) / (CHANNELS - 1)) for n in range(CHANNELS)})
    figure = Figure(figsize=(2.1 * len(channels), 2.1 * len(mixers) + 0.6), layout="constrained")
    axes = figure.subplots(len(mixers), len(channels), squeeze=False)
    for row, (name, mixer) in zip(axes, mixers.items(), strict=True):
        for axis, channel in zip(row, channels, strict=True):
            matrix_TT = mixer.toeplitz(POSITIONS, channel).float().cpu()
            largest = float(matrix_TT.abs().max()) or 1.0
            axis.imshow(matrix_TT.numpy(), cmap="RdBu_r", vmin=-largest, vmax=largest, interpolation="nearest")
            axis.set_title(f"{_layer_name(name)} · channel {channel + 1}", fontsize=7)
            axis.tick_params(labelsize=6)
    title = "The first convolution of each layer, as a matrix: what a position (down) takes from another (across)"
    figure.suptitle(title, fontsize=9)
    save(figure, path)
    return {"layers": len(mixers), "channels": channels, "positions": POSITIONS}


def _layer_name(name: str) -> str:
    """'encoder.0.mixer' as 'encoder 1', 'trunk.blocks.2.mixer' as 'layer 3'."""
    *_, stack, number, _ = name.split(".")
    return f"{'layer' if stack == 'blocks' else stack} {int(number) + 1}"
