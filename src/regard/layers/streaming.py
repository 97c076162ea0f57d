"""Long convolution one position at a time, for decoding.

    y_t = Σ_{s ≤ t} h_{t−s} u_s         asked for t = 0, 1, 2 …, when u_t is known only after y_{t−1}

Taken literally, position t costs t products. Tiled, it costs some log² t on average and gives the same sums in
another order: whenever a block of inputs is complete, its share in as many future outputs is added to them at
once by an FFT (van der Hoeven's relaxed product; "future fill"). Blocks double: the share of the last 2^k B inputs
in the next 2^k B outputs is added when 2^k B is the largest such number that divides the position. Only the inputs
of the running block of B are summed up one by one.

Distilled, it costs the same at every position, and is approximate: h as a sum of M exponentials,

    h_t ≈ Re Σ_m c_m λ_mᵗ            s_m ← λ_m s_m + u_t            y_t = Re Σ_m c_m s_m

Shapes: N rows · D channels · L longest sequence · T positions given at once · K taps · M exponentials
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.layers.convolution import fft_length, long_convolution

BLOCK = 32  # inputs summed up one by one


class StreamingConvolution(Protocol):
    def step(self, u_ND: Tensor) -> Tensor:
        """Feed one position; its output: [N, D]."""

    def prefill(self, u_NDT: Tensor) -> Tensor:
        """Feed the first positions at once; their outputs: [N, D, T]."""

    def select(self, rows_N: Tensor) -> None:
        """Keep these rows, in this order; a row may be kept more than once."""


class TiledConvolution:
    """Exact. The filter's taps are as many as the longest sequence."""

    def __init__(self, h_DK: Tensor, rows: int):
        channels, longest = h_DK.shape
        self.h_DK = h_DK
        self.nearest_DB = h_DK[:, :BLOCK].flip(-1).contiguous()
        self.inputs_NDL = h_DK.new_zeros(rows, channels, longest)
        self.outputs_NDL = h_DK.new_zeros(rows, channels, longest)  # what is known of them so far
        self.length = self.first = 0  # positions fed, and those of them fed at once
        self.spectra: dict[int, Tensor] = {}

    def step(self, u_ND: Tensor) -> Tensor:
        t, fed = self.length, self.length - self.first
        begin = t - fed % BLOCK
        self.inputs_NDL[..., t] = u_ND
        running_NDB = self.inputs_NDL[..., begin : t + 1]
        y_ND = self.outputs_NDL[..., t] + (running_NDB * self.nearest_DB[:, begin - t - 1 :]).sum(-1)
        self.length += 1
        if (fed + 1) % BLOCK == 0:
            blocks = (fed + 1) // BLOCK
            self._fill_future((blocks & -blocks) * BLOCK)
        return y_ND.to(u_ND.dtype)

    def prefill(self, u_NDT: Tensor) -> Tensor:
        length, longest = u_NDT.shape[-1], self.h_DK.shape[-1]
        size = fft_length(length + longest)
        spectrum = torch.fft.rfft(u_NDT.to(self.h_DK.dtype), n=size) * torch.fft.rfft(self.h_DK, n=size)
        self.outputs_NDL = torch.fft.irfft(spectrum, n=size)[..., :longest].contiguous()
        self.length = self.first = length
        return self.outputs_NDL[..., :length].to(u_NDT.dtype)

    def select(self, rows_N: Tensor) -> None:
        self.inputs_NDL, self.outputs_NDL = self.inputs_NDL[rows_N], self.outputs_NDL[rows_N]

    def _fill_future(self, size: int) -> None:
        """Add the share of the last `size` inputs in the next `size` outputs."""
        here, longest = self.length, self.h_DK.shape[-1]
        room = min(size, longest - here)
        if room <= 0:
            return
        if size not in self.spectra:
            self.spectra[size] = torch.fft.rfft(self.h_DK[:, : 2 * size], n=2 * size)
        # Around a circle of 2 · size; what runs over its end falls on the first half, which is not used.
        spectrum = torch.fft.rfft(self.inputs_NDL[..., here - size : here], n=2 * size) * self.spectra[size]
        self.outputs_NDL[..., here : here + room] += torch.fft.irfft(spectrum, n=2 * size)[..., size : size + room]


@dataclass(frozen=True)
class Modes:
    """Filters as sums of exponentials."""

    poles_DM: Tensor  # λ
    residues_DM: Tensor  # c
    error: float  # ‖h − ĥ‖ / ‖h‖ over all channels

    HANKEL = 256  # rows and columns of the matrix that the poles are found from

    @classmethod
    def most(cls, taps: int) -> int:
        """How many exponentials can be told apart in this many taps."""
        return max(2, min(cls.HANKEL, (taps + 1) // 2)) - 1

    @classmethod
    def fit(cls, h_DK: Tensor, modes: int) -> Modes:
        """Poles from the directions that shifted pieces of a filter span (Kung, 1978); residues by least squares."""
        h = h_DK.detach().double().cpu()
        taps = h.shape[1]
        rows = cls.most(taps) + 1
        modes = min(modes, rows - 1)
        hankel_DXX = h[:, : 2 * rows - 1].unfold(1, min(rows, taps - rows + 1), 1)
        basis_DXM = torch.linalg.svd(hankel_DXX, full_matrices=False).U[..., :modes]
        shift_DMM = torch.linalg.pinv(basis_DXM[:, :-1]) @ basis_DXM[:, 1:]
        poles_DM = torch.linalg.eigvals(shift_DMM)
        # One that grows would run away; a filter that is known for K taps is cut off, not continued.
        poles_DM = poles_DM / poles_DM.abs().clamp(min=1.0)
        powers_DKM = poles_DM[:, None] ** torch.arange(taps, dtype=torch.float64)[None, :, None]
        basis = torch.cat([powers_DKM.real, -powers_DKM.imag], dim=-1)
        solved = torch.linalg.lstsq(basis, h[..., None], driver="gelsd").solution[..., 0]
        error = float(((basis @ solved[..., None])[..., 0] - h).norm() / h.norm())
        residues_DM = torch.complex(*solved.split(modes, dim=-1))
        kind = torch.complex128 if h_DK.dtype == torch.float64 else torch.complex64
        return cls(poles_DM.to(h_DK.device, kind), residues_DM.to(h_DK.device, kind), error)


class ModalConvolution:
    """As good as the fit. The state is M numbers per channel, however long the text."""

    def __init__(self, modes: Modes, rows: int):
        self.modes = modes
        self.state_NDM = modes.poles_DM.new_zeros(rows, *modes.poles_DM.shape)

    def step(self, u_ND: Tensor) -> Tensor:
        self.state_NDM = self.modes.poles_DM * self.state_NDM + u_ND[..., None]
        return (self.modes.residues_DM * self.state_NDM).sum(-1).real.to(u_ND.dtype)

    def prefill(self, u_NDT: Tensor) -> Tensor:
        return torch.stack([self.step(u_NDT[..., t]) for t in range(u_NDT.shape[-1])], dim=-1)

    def select(self, rows_N: Tensor) -> None:
        self.state_NDM = self.state_NDM[rows_N]


class NaiveConvolution:
    """The sum taken literally: every position goes over all inputs so far. To compare with."""

    def __init__(self, h_DK: Tensor, rows: int):
        self.h_DK = h_DK
        self.reversed_DK = h_DK.flip(-1).contiguous()
        self.inputs_NDL = h_DK.new_zeros(rows, *h_DK.shape)
        self.length = 0

    def step(self, u_ND: Tensor) -> Tensor:
        self.inputs_NDL[..., self.length] = u_ND
        self.length += 1
        return (self.inputs_NDL[..., : self.length] * self.reversed_DK[:, -self.length :]).sum(-1).to(u_ND.dtype)

    def prefill(self, u_NDT: Tensor) -> Tensor:
        self.length = u_NDT.shape[-1]
        self.inputs_NDL[..., : self.length] = u_NDT
        return long_convolution(u_NDT, self.h_DK)

    def select(self, rows_N: Tensor) -> None:
        self.inputs_NDL = self.inputs_NDL[rows_N]
