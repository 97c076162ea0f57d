"""Positions: attention alone cannot tell first from last, so each token is told where it stands.

    sinusoidal         PE(p, 2i) = sin(p / 10000^(2i/d))     PE(p, 2i+1) = cos(p / 10000^(2i/d))
    sinusoidal-halves  the same numbers: all sines first, then all cosines
    sinusoidal-2d      of a patch of an image: its row in half of the channels, its column in the other half
    learned            a table, one row per position
    index              the number p itself, along one learned direction
    rotary             nothing is added; queries and keys are rotated by an angle that grows with p
    none               nothing

The patches of an image stand on a grid. Learned positions are then a table of the grid, which is resampled for another
resolution as one resamples an image; the others, but for sinusoidal-2d, count along the patches in reading order.

Shapes: B rows · T positions · D model width · H heads · K head width · R × S grid of patches
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.settings import ModelSettings, PartSettings, PatchModel, Problem, SequenceModel

ENDLESS = 1 << 20  # positions


class Positions(nn.Module):
    """Adds the position's code to each token's vector."""

    Settings: ClassVar[type[PartSettings]] = PartSettings  # its own table in a recipe, [model.NAME]

    def __init__(self, settings: ModelSettings):
        super().__init__()
        self.width = settings.width

    def forward(self, x_BTD: Tensor, positions_BT: Tensor) -> Tensor:
        return x_BTD + self.code(positions_BT).to(x_BTD.dtype)

    def code(self, positions: Tensor) -> Tensor:
        """The vectors themselves: [..., D]."""
        raise NotImplementedError

    def over_grid(self, patches_BTD: Tensor, grid: tuple[int, int]) -> Tensor:
        """Tell the patches of a grid, in reading order, where they are: [B, T, D]."""
        return self(patches_BTD, torch.arange(patches_BTD.shape[1], device=patches_BTD.device)[None])

    def initialise(self) -> None:
        """Set the weights that start in their own way."""

    @staticmethod
    def rotate(x_BHTK: Tensor, positions_BT: Tensor) -> Tensor:
        """What attention does to its queries and keys: [B, H, T, K]."""
        return x_BHTK

    @classmethod
    def table_over_grid(cls, settings: ModelSettings, grid: tuple[int, int]) -> nn.Parameter | None:
        """A learned code for every patch of a grid, [R, S, D], to use instead of `over_grid`."""
        return None

    @classmethod
    def most_positions(cls, settings: ModelSettings) -> int:
        """The longest sequence that it can take."""
        return ENDLESS

    @classmethod
    def check_length(cls, settings: ModelSettings, name: str, longest: int) -> Iterator[Problem]:
        """What does not fit together with sequences this long; `name` is the setting that says so."""
        yield from ()


class EvenWidth(PartSettings):
    def check(self, model: ModelSettings) -> Iterator[Problem]:
        if model.width % 2:
            yield Problem(f"width = {model.width} is odd, and sinusoidal positions need pairs", "use an even width")


class Sinusoidal(Positions):
    Settings = EvenWidth

    def code(self, positions: Tensor) -> Tensor:
        return sinusoidal(positions, self.width)


class SinusoidalHalves(Positions):
    Settings = EvenWidth

    def code(self, positions: Tensor) -> Tensor:
        angles = positions[..., None] * frequencies(self.width, positions.device)
        return torch.cat([angles.sin(), angles.cos()], dim=-1)


class GridSettings(PartSettings):
    def check(self, model: ModelSettings) -> Iterator[Problem]:
        if not isinstance(model, PatchModel):
            yield Problem('model.positions = "sinusoidal-2d" is for patches of images', 'use "sinusoidal"')
        elif model.width % 4:
            yield Problem(
                f'model.width = {model.width} cannot be divided by 4, which model.positions = "sinusoidal-2d" needs',
                "use another width",
            )


class Sinusoidal2d(Positions):
    Settings = GridSettings

    def over_grid(self, patches_BTD: Tensor, grid: tuple[int, int]) -> Tensor:
        code_RSD = sinusoidal_2d(*grid, self.width, patches_BTD.device)
        return patches_BTD + code_RSD.flatten(0, 1).to(patches_BTD.dtype)


class Learned(Positions):
    def __init__(self, settings: SequenceModel):
        super().__init__(settings)
        self.table = nn.Embedding(settings.max_positions, settings.width)

    def code(self, positions: Tensor) -> Tensor:
        return self.table(positions)

    @classmethod
    def table_over_grid(cls, settings: ModelSettings, grid: tuple[int, int]) -> nn.Parameter:
        # As large as the patches: with a hundredth of that, as in a text, attention takes long to find them.
        return nn.Parameter(torch.randn(*grid, settings.width))

    @classmethod
    def most_positions(cls, settings: ModelSettings) -> int:
        return settings.max_positions if isinstance(settings, SequenceModel) else ENDLESS

    @classmethod
    def check_length(cls, settings: ModelSettings, name: str, longest: int) -> Iterator[Problem]:
        if isinstance(settings, SequenceModel) and longest > settings.max_positions:
            yield Problem(
                f"{name} = {longest} is more than model.max_positions = {settings.max_positions}",
                "lower the first or raise the second",
            )


class Index(Positions):
    def __init__(self, settings: ModelSettings):
        super().__init__(settings)
        self.direction_D = nn.Parameter(torch.empty(settings.width))

    def initialise(self) -> None:
        nn.init.normal_(self.direction_D, std=self.width**-0.5)

    def code(self, positions: Tensor) -> Tensor:
        # Added equally to all channels it would vanish in the next layer norm, hence a direction;
        # divided by 100 so that positions are of the size of embeddings.
        return positions[..., None] / 100 * self.direction_D


class NoPositions(Positions):
    def forward(self, x_BTD: Tensor, positions_BT: Tensor) -> Tensor:
        return x_BTD

    def code(self, positions: Tensor) -> Tensor:
        return torch.zeros(*positions.shape, self.width, device=positions.device)


class EvenHead(PartSettings):
    def check(self, model: ModelSettings) -> Iterator[Problem]:
        if model.head_key_width % 2:
            yield Problem(
                f"a head of {model.head_key_width} is odd, and rotary positions need pairs",
                "choose heads of even width, or set key_width",
            )


class Rotary(NoPositions):
    Settings = EvenHead

    @staticmethod
    def rotate(x_BHTK: Tensor, positions_BT: Tensor) -> Tensor:
        """Rotate each pair (x_i, x_{i + K/2}) by position · frequency_i: q·k then depends on distance only."""
        if x_BHTK.is_cuda and x_BHTK.itemsize == 2 and not torch.compiler.is_compiling() and (fused := _fused()):
            of_pairs = kept_frequencies(x_BHTK.shape[-1], x_BHTK.device)
            return fused.Rotated.apply(x_BHTK, positions_BT, of_pairs)  # type: ignore[no-any-return]
        angles_B1TK = (positions_BT[..., None] * frequencies(x_BHTK.shape[-1], x_BHTK.device))[:, None]
        cos, sin = angles_B1TK.cos().to(x_BHTK.dtype), angles_B1TK.sin().to(x_BHTK.dtype)
        first, second = x_BHTK.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


# ---------------------------------------------------------------- sines and cosines


def sinusoidal(positions: Tensor, width: int) -> Tensor:
    """Sines and cosines interleaved, as in the paper: [..., D]."""
    angles = positions[..., None] * frequencies(width, positions.device)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def sinusoidal_2d(rows: int, columns: int, width: int, device: torch.device | None = None) -> Tensor:
    """The code of the row in the first half of the channels, that of the column in the second: [R, S, D]."""
    row_RH = sinusoidal(torch.arange(rows, device=device), width // 2)
    column_SH = sinusoidal(torch.arange(columns, device=device), width // 2)
    return torch.cat([row_RH[:, None].expand(-1, columns, -1), column_SH[None].expand(rows, -1, -1)], dim=-1)


def frequencies(width: int, device: torch.device | None = None) -> Tensor:
    """1 / 10000^(2i/d) for i = 0 … d/2 − 1."""
    return 10000.0 ** (-torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)


@cache
def kept_frequencies(width: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return frequencies(width, device)


def _fused() -> Any:
    """The kernels for a GPU; None where torch has no Triton."""
    try:
        from regard.layers.fused import rotation
    except ImportError:
        return None
    return rotation


# ---------------------------------------------------------------- tables of a grid


def resample(table_RSD: Tensor, grid: tuple[int, int]) -> Tensor:
    """A table of positions for another grid, bicubic; the same grid gives the same table."""
    if table_RSD.shape[:2] == grid:
        return table_RSD
    image_1DRS = table_RSD.permute(2, 0, 1)[None].float()
    resampled_1DRS = F.interpolate(image_1DRS, grid, mode="bicubic", align_corners=False, antialias=True)
    return resampled_1DRS[0].permute(1, 2, 0).to(table_RSD.dtype)
