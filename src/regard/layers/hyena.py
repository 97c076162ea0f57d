"""Hyena: long convolutions and gates in the place of attention (Poli et al., 2023).

    v, x¹ … xᴺ = short(X W_in)                    short: every channel convolved over three neighbouring positions

    paper     z¹ = v           zⁿ⁺¹ = xⁿ ⊙ (hⁿ ∗ zⁿ)                         y = zᴺ⁺¹
    public    z¹ = v           zⁿ⁺¹ = hⁿ ∗ (xⁿ ⊙ zⁿ) + Dⁿ ⊙ (xⁿ ⊙ zⁿ)          y = xᴺ ⊙ zᴺ,  n = 1 … N − 1

    Y = y W_out

The filters h are as long as the sequence, but not a table: a small network computes them from the position,

    h_t = window_t ⊙ FFN(features of t)       window_t = exp(−t |δ|), δ another for each channel

so a longer sequence only asks it for more positions. In both directions there is a second filter for what lies
ahead. Rows hold one sequence each; a second one would be convolved with the first.

Shapes: B rows · T positions · D model width · C = (N + 1) · D channels of all streams · K taps of a filter
        M = D · number of convolutions
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.context import Context, Memory
from regard.layers.convolution import long_convolution
from regard.layers.mixer import Decoding, Mixer
from regard.layers.streaming import ModalConvolution, Modes, NaiveConvolution, StreamingConvolution, TiledConvolution
from regard.settings import ModelSettings, PartSettings, Problem

SHORT = 3  # positions that the short convolution sees
LONG_STRETCH = 1024  # tokens over which the cost of one is measured: it varies from token to token
MODES, LONGEST_FIT = 16, 1024  # exponentials of a distilled filter, and the longest filter they are fitted to


class HyenaSettings(PartSettings):
    order: int = Field(2, gt=0, le=8, description="how many gates (N)")
    recurrence: Literal["paper", "public"] = Field(
        "public", description="paper (convolve and gate N times) · public (as its public code: one convolution fewer)"
    )
    filter_length: int = Field(
        0, ge=0, le=1 << 24, description="the length filters are made for, and beyond which they continue; 0: of a row"
    )
    filter_bands: int = Field(
        8, ge=0, le=1024, description="sines and cosines of time that filters are made from; fewer: smoother filters"
    )
    filter_width: int = Field(64, gt=0, le=16_384, description="width of the network that makes the filters")

    def for_length(self, length: int) -> Self:
        return self if self.filter_length else self.model_copy(update={"filter_length": length})

    def check(self, model: ModelSettings) -> Iterator[Problem]:
        if self.recurrence == "public" and self.order < 2:
            yield Problem(
                'model.hyena.order = 1 leaves no convolution with model.hyena.recurrence = "public"',
                'use an order of 2 or more, or recurrence = "paper"',
            )


class Hyena(Mixer):
    Settings = HyenaSettings
    compared_to = "attention"
    decoding_remark = (
        f"hyena: the last {LONG_STRETCH:,} tokens, since the cost varies from token to token. hyena-all: the mean over "
        "all tokens from the first. hyena-naive: a sum over all inputs for each token. hyena-distilled: "
        f"{MODES} exponentials per channel, approximate."
    )

    def __init__(self, settings: ModelSettings, causal: bool = False, decoder: bool = False):
        super().__init__(settings, causal, decoder)
        own = settings.own("mixer", HyenaSettings)
        self.width, self.order = settings.width, own.order
        paper = own.recurrence == "paper"
        convolutions = self.order if paper else self.order - 1
        streams = (self.order + 1) * self.width
        self.to_streams = nn.Linear(self.width, streams, bias=settings.bias)
        self.short = ShortConvolution(streams, causal)
        channels = convolutions * self.width
        self.filter = ImplicitFilter(channels, self.width, own)
        self.filter_ahead = None if causal else ImplicitFilter(channels, self.width, own)
        self.skips = None if paper else nn.ParameterList(torch.randn(self.width) for _ in range(convolutions))
        self.to_out = nn.Linear(self.width, self.width, bias=settings.bias)
        self.distilled: list[Modes] = []  # if there are any, decoding uses them in place of the filters

    def forward(self, x_BTD: Tensor, context: Context) -> Tensor:
        return self.to_out(self.gathered(x_BTD, context).transpose(1, 2))

    def gathered(self, x_BTD: Tensor, context: Context) -> Tensor:
        """y, before W_out: [B, D, T]."""
        filters = self.filters(x_BTD.shape[1])
        v_BDT, *gates = self.streams(x_BTD, context)
        return self._gated(v_BDT, gates, lambda n, z_BDT: long_convolution(z_BDT, *filters[n]))

    def step(self, x_ND: Tensor, state: HyenaState) -> Tensor:
        """One position further: [N, D]. Same numbers as `forward` on the whole prefix."""
        c_NC1 = self.short.step(self.to_streams(x_ND), state)[..., None]
        v_ND1, *gates = c_NC1.chunk(self.order + 1, dim=1)
        y_ND1 = self._gated(v_ND1, gates, lambda n, z_ND1: state.convolutions[n].step(z_ND1[..., 0])[..., None])
        return self.to_out(y_ND1[..., 0])

    def start(self, rows: int, max_length: int, like: Tensor, memory: Memory | None = None) -> HyenaState:
        """The state before the first position."""
        if self.distilled:
            return self._state([ModalConvolution(modes, rows) for modes in self.distilled], rows, like)
        return self._state([TiledConvolution(h_DK, rows) for h_DK, _ in self.filters(max_length)], rows, like)

    def start_naive(self, rows: int, max_length: int, like: Tensor) -> HyenaState:
        """The same with every convolution taken literally, to compare with."""
        return self._state([NaiveConvolution(h_DK, rows) for h_DK, _ in self.filters(max_length)], rows, like)

    def prefill(self, x_BTD: Tensor, context: Context, state: HyenaState) -> Tensor:
        """`forward`, with what it convolved remembered for the steps that follow."""
        c_BCT = self.to_streams(x_BTD).transpose(1, 2)
        state.recent = list(F.pad(c_BCT, (SHORT - 1, 0))[..., 1 - SHORT :].clone().unbind(-1))
        v_BDT, *gates = self.short(c_BCT).chunk(self.order + 1, dim=1)
        y_BDT = self._gated(v_BDT, gates, lambda n, z_BDT: state.convolutions[n].prefill(z_BDT))
        return self.to_out(y_BDT.transpose(1, 2))

    def decodings(self, length: int) -> Iterator[Decoding]:
        yield Decoding("", self.start, LONG_STRETCH)
        yield Decoding("all", self.start, tokens=0)
        yield Decoding("naive", self.start_naive)
        if length <= LONGEST_FIT:
            self.distil(MODES, length)
            yield Decoding("distilled", self.start)

    def initialise(self) -> Iterable[nn.Module]:
        for network in self._filter_networks():
            network.initialise()
        return self._filter_networks()

    def no_decay(self) -> Iterable[nn.Parameter]:
        """The weights of the filter networks are frequencies."""
        return [weight for network in self._filter_networks() for weight in network.parameters()]

    @staticmethod
    def most_modes(length: int) -> int:
        """How many exponentials filters of this length can be distilled into."""
        return Modes.most(length)

    def distil(self, modes: int, length: int) -> float:
        """From now on decode with sums of this many exponentials; their relative distance from the filters."""
        self.distilled = [Modes.fit(h_DK, modes) for h_DK, _ in self.filters(length)]
        return max(fitted.error for fitted in self.distilled)

    def filters(self, length: int) -> list[tuple[Tensor, Tensor | None]]:
        """For every convolution, how much each channel takes from t positions back, and from t ahead: [D, K] each."""
        back = self.filter(length).split(self.width)
        ahead = self.filter_ahead(length).split(self.width) if self.filter_ahead is not None else [None] * len(back)
        return list(zip(back, ahead, strict=True))

    def toeplitz(self, length: int, channel: int | slice, convolution: int = 0) -> Tensor:
        """The matrix that a convolution is, for one channel: [T, T]; or for several. For looking at."""
        h_DK, ahead_DK = self.filters(length)[convolution]
        position_T = torch.arange(length, device=h_DK.device)
        distance_TT = position_T[:, None] - position_T[None, :]
        behind_TT = h_DK[channel][..., distance_TT.clamp(min=0)] * (distance_TT >= 0)
        if ahead_DK is None:
            return behind_TT
        return behind_TT + ahead_DK[channel][..., (-distance_TT).clamp(min=0)] * (distance_TT < 0)

    def _filter_networks(self) -> list[ImplicitFilter]:
        return [network for network in (self.filter, self.filter_ahead) if network is not None]

    def _state(self, convolutions: Sequence[StreamingConvolution], rows: int, like: Tensor) -> HyenaState:
        zeros_NC = like.new_zeros(rows, len(self.short.bias_C))
        return HyenaState([zeros_NC] * (SHORT - 1), convolutions)

    def streams(self, x_BTD: Tensor, context: Context) -> tuple[Tensor, ...]:
        """v and the gates, each [B, D, T]: time last, as convolutions want it."""
        c_BCT = self.to_streams(x_BTD).transpose(1, 2)
        if context.segments_BT is None:
            return self.short(c_BCT).chunk(self.order + 1, dim=1)
        # Masked before, because the short convolution may look ahead; and after, because its bias is added to padding.
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
        for shift in range(SHORT):
            total = total + weight_S1C1[shift] * padded[..., shift : shift + length]
        return total

    def step(self, c_NC: Tensor, state: HyenaState) -> Tensor:
        seen = [*state.recent, c_NC]
        state.recent = seen[1:]
        total: Tensor = self.bias_C
        for shift, x_NC in enumerate(seen):
            total = total + self.weight_C1S[:, 0, shift] * x_NC
        return total


class ImplicitFilter(nn.Module):
    """Filters made from positions: time, sines and cosines of it, through a network of sines, times a window."""

    FREQUENCY = 10.0  # ω of the activation sin(ω x)
    # Where windows have fallen to a hundredth: 1.5 times the length for the slowest channel, .3 for the fastest.
    SLOWEST, FASTEST, FALLEN = 1.5, 0.3, 0.01

    def __init__(self, channels: int, width: int, settings: HyenaSettings):
        super().__init__()
        inner = settings.filter_width
        self.length = max(settings.filter_length, 2)
        self.bands = settings.filter_bands
        self.hidden = nn.ModuleList([nn.Linear(1 + 2 * self.bands, inner), nn.Linear(inner, inner)])
        self.to_filters = nn.Linear(inner, channels, bias=False)
        fall = -math.log(self.FALLEN)
        delta_D = torch.linspace(fall / self.SLOWEST, fall / self.FASTEST, width)
        self.delta_M: Tensor
        self.register_buffer("delta_M", delta_D.repeat(channels // width), persistent=False)

    @torch.no_grad()
    def initialise(self) -> None:
        """Sines of many frequencies; and filters that keep the size of what they convolve, however long they are."""
        if self.delta_M.is_meta:  # laid out only: there are no numbers to scale
            return
        for layer in (*self.hidden, self.to_filters):
            layer.reset_parameters()
        h_MK = self(self.length)
        self.to_filters.weight /= h_MK.norm(dim=1, keepdim=True)

    def forward(self, length: int) -> Tensor:
        """The first `length` taps of every filter: [M, K]. Past the trained length the same curves continue."""
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
    convolutions: Sequence[StreamingConvolution]

    def select(self, rows_N: Tensor) -> None:
        """Keep these rows, in this order; a row may be kept more than once."""
        self.recent = [c_NC[rows_N] for c_NC in self.recent]
        for convolution in self.convolutions:
            convolution.select(rows_N)
