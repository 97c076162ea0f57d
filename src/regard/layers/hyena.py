"""Hyena: long convolutions and gates in the place of attention (Poli et al., 2023).

    v, x¹ … xᴺ = short(X W_in)                    short: every channel convolved over three neighbouring positions

    paper     z¹ = v           zⁿ⁺¹ = xⁿ ⊙ (hⁿ ∗ zⁿ)                         y = zᴺ⁺¹
    public    z¹ = v           zⁿ⁺¹ = hⁿ ∗ (xⁿ ⊙ zⁿ) + Dⁿ ⊙ (xⁿ ⊙ zⁿ)          y = xᴺ ⊙ zᴺ,  n = 1 … N − 1

    Y = y W_out

The filters h are as long as the sequence, but no table: a small network makes them from the position,

    h_t = window_t ⊙ FFN(features of t)       window_t = exp(−t |δ|), δ another for each channel

so a longer sequence only asks it for more positions. In both directions there is a second filter for what lies
ahead. Rows hold one sequence each; a second one would be convolved with the first.

Shapes: B rows · T positions · D model width · C = (N + 1) · D channels of all streams · K taps of a filter
        M = D · number of convolutions
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.settings import ModelSettings
from regard.layers.context import Context, Memory
from regard.layers.convolution import long_convolution
from regard.layers.streaming import ModalConvolution, Modes, TiledConvolution

SHORT = 3  # positions that the short convolution sees


class Hyena(nn.Module):
    def __init__(self, settings: ModelSettings, causal: bool):
        super().__init__()
        self.width, self.order = settings.width, settings.hyena_order
        paper = settings.hyena_recurrence == "paper"
        convolutions = self.order if paper else self.order - 1
        streams = (self.order + 1) * self.width
        self.to_streams = nn.Linear(self.width, streams, bias=settings.bias)
        self.short = ShortConvolution(streams, causal)
        channels = convolutions * self.width
        self.filter = ImplicitFilter(channels, self.width, settings)
        self.filter_ahead = None if causal else ImplicitFilter(channels, self.width, settings)
        self.skips = None if paper else nn.ParameterList(torch.randn(self.width) for _ in range(convolutions))
        self.to_out = nn.Linear(self.width, self.width, bias=settings.bias)
        self.distilled: list[Modes] = []  # if there are any, decoding uses them in place of the filters

    def forward(self, x_BTD: Tensor, context: Context) -> Tensor:
        filters = self.filters(x_BTD.shape[1])
        v_BDT, *gates = self._streams(x_BTD, context)
        y_BDT = self._gated(v_BDT, gates, lambda n, z_BDT: long_convolution(z_BDT, *filters[n]))
        return self.to_out(y_BDT.transpose(1, 2))

    def step(self, x_ND: Tensor, state: HyenaState) -> Tensor:
        """One position further: [N, D]. Same numbers as `forward` on the whole prefix."""
        c_NC1 = self.short.step(self.to_streams(x_ND), state)[..., None]
        v_ND1, *gates = c_NC1.chunk(self.order + 1, dim=1)
        y_ND1 = self._gated(v_ND1, gates, lambda n, z_ND1: state.convolutions[n].step(z_ND1[..., 0])[..., None])
        return self.to_out(y_ND1[..., 0])

    def start(self, rows: int, max_length: int, like: Tensor, memory: Memory | None = None) -> HyenaState:
        """The state before the first position."""
        nothing_NC = like.new_zeros(rows, len(self.short.bias_C))
        convolutions: Sequence[TiledConvolution | ModalConvolution]
        if self.distilled:
            convolutions = [ModalConvolution(modes, rows) for modes in self.distilled]
        else:
            convolutions = [TiledConvolution(h_DK, rows) for h_DK, _ in self.filters(max_length)]
        return HyenaState([nothing_NC] * (SHORT - 1), convolutions)

    def prefill(self, x_BTD: Tensor, context: Context, state: HyenaState) -> Tensor:
        """`forward`, and what it convolved kept for the steps to come."""
        c_BCT = self.to_streams(x_BTD).transpose(1, 2)
        state.recent = list(F.pad(c_BCT, (SHORT - 1, 0))[..., 1 - SHORT :].clone().unbind(-1))
        v_BDT, *gates = self.short(c_BCT).chunk(self.order + 1, dim=1)
        y_BDT = self._gated(v_BDT, gates, lambda n, z_BDT: state.convolutions[n].prefill(z_BDT))
        return self.to_out(y_BDT.transpose(1, 2))

    def distil(self, modes: int, length: int) -> float:
        """From now on decode with sums of so many exponentials; how far they are from the filters, relatively."""
        self.distilled = [Modes.fit(h_DK, modes) for h_DK, _ in self.filters(length)]
        return max(fitted.error for fitted in self.distilled)

    def filters(self, length: int) -> list[tuple[Tensor, Tensor | None]]:
        """For every convolution, how much each channel takes from t positions back, and from t ahead: [D, K] each."""
        back = self.filter(length).split(self.width)
        ahead = self.filter_ahead(length).split(self.width) if self.filter_ahead is not None else [None] * len(back)
        return list(zip(back, ahead, strict=True))

    def toeplitz(self, length: int, channel: int, convolution: int = 0) -> Tensor:
        """The matrix that a convolution is, for one channel: [T, T]. For looking at."""
        h_DK, ahead_DK = self.filters(length)[convolution]
        place = torch.arange(length, device=h_DK.device)
        distance_TT = place[:, None] - place[None, :]
        behind_TT = h_DK[channel][distance_TT.clamp(min=0)] * (distance_TT >= 0)
        if ahead_DK is None:
            return behind_TT
        return behind_TT + ahead_DK[channel][(-distance_TT).clamp(min=0)] * (distance_TT < 0)

    def _streams(self, x_BTD: Tensor, context: Context) -> tuple[Tensor, ...]:
        """v and the gates, each [B, D, T]: time last, as convolutions want it."""
        c_BCT = self.to_streams(x_BTD).transpose(1, 2)
        if context.segments_BT is None:
            return self.short(c_BCT).chunk(self.order + 1, dim=1)
        # Masked before, for the short convolution may look ahead; and after, for its bias is added to padding too.
        real_B1T = (context.segments_BT != 0)[:, None].to(c_BCT.dtype)
        return (self.short(c_BCT * real_B1T) * real_B1T).chunk(self.order + 1, dim=1)

    def _gated(self, v_BDT: Tensor, gates: Sequence[Tensor], convolve: Callable[[int, Tensor], Tensor]) -> Tensor:
        """The recurrence over gates and convolutions, at one position or at all."""
        z_BDT = v_BDT
        if self.skips is None:
            for n, x_BDT in enumerate(gates):
                z_BDT = x_BDT * convolve(n, z_BDT)
            return z_BDT
        for n, x_BDT in enumerate(gates[:-1]):
            z_BDT = x_BDT * z_BDT
            z_BDT = convolve(n, z_BDT) + self.skips[n][:, None].to(z_BDT.dtype) * z_BDT
        return gates[-1] * z_BDT


class ShortConvolution(nn.Module):
    """Every channel on its own: a weighted sum of three positions, the last three or one to each side."""

    def __init__(self, channels: int, causal: bool):
        super().__init__()
        self.left = SHORT - 1 if causal else SHORT // 2
        bound = 1 / math.sqrt(SHORT)
        self.weight_C1S = nn.Parameter(torch.empty(channels, 1, SHORT).uniform_(-bound, bound))
        self.bias_C = nn.Parameter(torch.empty(channels).uniform_(-bound, bound))

    def forward(self, c_BCT: Tensor) -> Tensor:
        # Written as a sum: three shifted products are faster than a library's convolution of groups.
        length = c_BCT.shape[-1]
        padded = F.pad(c_BCT, (self.left, SHORT - 1 - self.left))
        weight_S1C1 = self.weight_C1S.to(c_BCT.dtype).permute(2, 1, 0)[..., None]
        total = self.bias_C.to(c_BCT.dtype)[:, None]
        for place in range(SHORT):
            total = total + weight_S1C1[place] * padded[..., place : place + length]
        return total

    def step(self, c_NC: Tensor, state: HyenaState) -> Tensor:
        seen = [*state.recent, c_NC]
        state.recent = seen[1:]
        total: Tensor = self.bias_C
        for place, x_NC in enumerate(seen):
            total = total + self.weight_C1S[:, 0, place] * x_NC
        return total


class ImplicitFilter(nn.Module):
    """Filters made from positions: time, sines and cosines of it, through a network of sines, times a window."""

    FREQUENCY = 10.0  # ω of the activation sin(ω x)
    # Where windows have fallen to a hundredth: 1.5 times the length for the slowest channel, .3 for the fastest.
    SLOWEST, FASTEST, FALLEN = 1.5, 0.3, 0.01

    def __init__(self, channels: int, width: int, settings: ModelSettings):
        super().__init__()
        inner = settings.hyena_filter_width
        self.length = max(settings.hyena_filter_length, 2)
        self.bands = settings.hyena_filter_bands
        self.hidden = nn.ModuleList([nn.Linear(1 + 2 * self.bands, inner), nn.Linear(inner, inner)])
        self.to_filters = nn.Linear(inner, channels, bias=False)
        fall = -math.log(self.FALLEN)
        delta_D = torch.linspace(fall / self.SLOWEST, fall / self.FASTEST, width)
        self.delta_M: Tensor
        self.register_buffer("delta_M", delta_D.repeat(channels // width), persistent=False)

    @torch.no_grad()
    def initialise(self) -> None:
        """Sines of many frequencies; and filters that keep the size of what they convolve, however long they are."""
        for layer in (*self.hidden, self.to_filters):
            layer.reset_parameters()
        h_MK = self(self.length)
        self.to_filters.weight /= h_MK.norm(dim=1, keepdim=True)

    def forward(self, length: int) -> Tensor:
        """The first `length` taps of every filter: [M, K]. Past the trained length the same curves go on."""
        with torch.autocast(self.delta_M.device.type, enabled=False):  # positions need more digits than bfloat16 has
            time_K1 = torch.arange(length, device=self.delta_M.device)[:, None].to(self.delta_M) / (self.length - 1)
            x_KX = self._features(time_K1)
            for layer in self.hidden:
                x_KX = torch.sin(self.FREQUENCY * layer(x_KX))
            window_MK = torch.exp(-time_K1[:, 0] * self.delta_M[:, None])
            return self.to_filters(x_KX).T * window_MK

    def _features(self, time_K1: Tensor) -> Tensor:
        cycles = torch.linspace(1e-4, max(self.bands - 1, 1e-4), self.bands, device=time_K1.device, dtype=time_K1.dtype)
        angle_KB = 2 * math.pi * cycles * time_K1
        return torch.cat([time_K1, angle_KB.cos(), -angle_KB.sin()], dim=-1)


@dataclass
class HyenaState:
    """The last inputs of the short convolution, and all that the long ones must remember."""

    recent: list[Tensor]  # [N, C] each, the latest last
    convolutions: Sequence[TiledConvolution | ModalConvolution]

    def select(self, rows_N: Tensor) -> None:
        """Keep these rows, in this order; a row may be kept more than once."""
        self.recent = [c_NC[rows_N] for c_NC in self.recent]
        for convolution in self.convolutions:
            convolution.select(rows_N)
