"""Positions: attention alone cannot tell first from last, so each token is told where it stands.

    sinusoidal         PE(p, 2i) = sin(p / 10000^(2i/d))     PE(p, 2i+1) = cos(p / 10000^(2i/d))
    sinusoidal-halves  the same numbers: all sines first, then all cosines
    learned            a table, one row a position
    index              the number p itself, along one learned direction
    rotary             nothing is added; queries and keys are turned by an angle that grows with p
    none               nothing

Shapes: B rows · T positions · D model width · H heads · K head width
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.settings import ModelSettings


class Positions(nn.Module):
    """Adds the position's code to each token's vector."""

    def __init__(self, settings: ModelSettings):
        super().__init__()
        self.kind = settings.positions
        self.width = settings.width
        if self.kind == "learned":
            self.table = nn.Embedding(settings.max_positions, settings.width)
        elif self.kind == "index":
            self.direction_D = nn.Parameter(torch.empty(settings.width))

    def forward(self, x_BTD: Tensor, positions_BT: Tensor) -> Tensor:
        if self.kind in ("none", "rotary"):
            return x_BTD
        return x_BTD + self.code(positions_BT).to(x_BTD.dtype)

    def code(self, positions_BT: Tensor) -> Tensor:
        """The vectors themselves: [B, T, D]."""
        if self.kind == "sinusoidal":
            return sinusoidal(positions_BT, self.width)
        if self.kind == "sinusoidal-halves":
            return sinusoidal_halves(positions_BT, self.width)
        if self.kind == "learned":
            return self.table(positions_BT)
        if self.kind == "index":
            # Added equally to all channels it would vanish in the next layer norm, hence a direction;
            # divided by 100 so that positions are of the size of embeddings.
            return positions_BT[..., None] / 100 * self.direction_D
        return torch.zeros(*positions_BT.shape, self.width, device=positions_BT.device)


def sinusoidal(positions: Tensor, width: int) -> Tensor:
    """Sines and cosines interleaved, as in the paper: [..., D]."""
    angles = positions[..., None] * frequencies(width, positions.device)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def sinusoidal_halves(positions: Tensor, width: int) -> Tensor:
    """All sines, then all cosines: [..., D]."""
    angles = positions[..., None] * frequencies(width, positions.device)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def frequencies(width: int, device: torch.device | None = None) -> Tensor:
    """1 / 10000^(2i/d) for i = 0 … d/2 − 1."""
    return 10000.0 ** (-torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)


def shift_matrix(offset: int, width: int) -> Tensor:
    """M_k, with PE(p + k) = M_k PE(p) for every p: each (sin, cos) pair is turned by k·frequency."""
    angles = offset * frequencies(width)
    blocks = torch.stack(
        [torch.stack([angles.cos(), angles.sin()], -1), torch.stack([-angles.sin(), angles.cos()], -1)], -2
    )
    return torch.block_diag(*blocks)


def rotate(x_BHTK: Tensor, positions_BT: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i + K/2}) by position · frequency_i: q·k then depends on distance only."""
    angles_B1TK = (positions_BT[..., None] * frequencies(x_BHTK.shape[-1], x_BHTK.device))[:, None]
    cos, sin = angles_B1TK.cos().to(x_BHTK.dtype), angles_B1TK.sin().to(x_BHTK.dtype)
    first, second = x_BHTK.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
