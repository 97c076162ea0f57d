"""The codes that a model adds for positions, as a heat map."""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.figure import Figure

from regard.errors import RegardError
from regard.explain.figures import save
from regard.layers.positions import Positions

POSITIONS = 100  # drawn at most


@torch.inference_mode()
def draw_positions(positions: Positions, name: str, longest: int, device: torch.device, path: Path) -> int:
    """One row per position, one column per channel; returns how many positions are drawn.

    `positions` are registered as `name`, in a model for sequences up to `longest`.
    """
    count = min(POSITIONS, longest)
    codes_TD = positions.code(torch.arange(count, device=device)).float().cpu()
    if not codes_TD.any():
        rotates = type(positions).rotate is not Positions.rotate
        why = "It rotates queries and keys instead." if rotates else "It has no positions."
        raise RegardError(f'The model adds no position encoding (positions = "{name}").', why, "Choose another run.")
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axis = figure.subplots()
    largest = float(codes_TD.abs().max())
    image = axis.imshow(
        codes_TD.numpy(), aspect="auto", cmap="RdBu_r", interpolation="nearest", vmin=-largest, vmax=largest
    )
    axis.set_xlabel("channel")
    axis.set_ylabel("position")
    axis.set_title(f"Position encodings: {name}", fontsize=10)
    figure.colorbar(image, ax=axis)
    save(figure, path)
    return count
