"""Long convolution by FFT: every position gathers from all before it, with weights that depend on distance only.

    y_t = Σ_{s ≤ t} h_{t−s} u_s                      causal
    y_t = Σ_s h_{t−s} u_s,   t − s from −T+1 to T−1    in both directions

As a matrix it is Toeplitz: the same number along every diagonal. Multiplying by it costs T²; in the frequency
domain it is one product per frequency, and getting there and back costs T log T:

    y = irfft(rfft(u) ⊙ rfft(h))       both padded to at least 2T, so that the end does not run into the beginning

Shapes: B rows · D channels · T positions · K taps of a filter · F frequencies
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

LARGEST_SPECTRUM = 1 << 27  # numbers transformed at a time; more channels are done one group after the other


def long_convolution(u_BDT: Tensor, h_DK: Tensor, back_DK: Tensor | None = None) -> Tensor:
    """Convolve every channel with its filter: [B, D, T].

    h_DK[:, t] weighs what lies t positions back; back_DK[:, t], if given, what lies t ahead (its first tap is not
    used: a position is counted once). Computed in float32, or in float64 if that is what comes in.
    """
    length = u_BDT.shape[-1]
    h_DK = h_DK[:, :length]
    if back_DK is not None:
        # Around a circle of 2T positions, so that −t is the same as 2T − t.
        behind_DK = back_DK[:, 1:length].flip(-1)
        gap = fft_length(2 * length) - h_DK.shape[-1] - behind_DK.shape[-1]
        h_DK = torch.cat([F.pad(h_DK, (0, gap)), behind_DK], dim=-1)
    return convolve(u_BDT, h_DK)


def fft_length(least: int) -> int:
    """The first length from `least` on that FFTs are fast for: 2^k, 3 · 2^k or 5 · 2^k."""
    power = 1 << max(least - 1, 1).bit_length()
    return min(size for size in (power, power * 3 // 4, power * 5 // 8) if size >= least)


# An operator of its own, so that torch.compile takes it as it is and fuses what is around it.
@torch.library.custom_op("regard::convolve", mutates_args=())
def convolve(u_BDT: Tensor, h_DK: Tensor) -> Tensor:
    """Around a circle of at least 2T positions; the first T of them: [B, D, T]."""
    size, length = fft_length(2 * u_BDT.shape[-1]), u_BDT.shape[-1]
    groups = _groups(u_BDT, size)
    if fused := _fused(u_BDT):
        return fused.convolve(u_BDT, h_DK, size, groups)
    parts = []
    for channels in groups:
        spectrum_BDF = _spectrum(u_BDT[:, channels], size) * _spectrum(h_DK[channels], size)
        parts.append(torch.fft.irfft(spectrum_BDF, n=size)[..., :length].to(u_BDT.dtype))
    return _joined(parts, dim=1)


@convolve.register_fake
def _(u_BDT: Tensor, h_DK: Tensor) -> Tensor:
    return u_BDT.new_empty(u_BDT.shape)


@torch.library.custom_op("regard::convolve_backward", mutates_args=())
def convolve_backward(gradient_BDT: Tensor, u_BDT: Tensor, h_DK: Tensor) -> tuple[Tensor, Tensor]:
    """The spectra are recomputed: stored, they would take eight times the memory of the input."""
    size, length, taps = fft_length(2 * u_BDT.shape[-1]), u_BDT.shape[-1], h_DK.shape[-1]
    groups = _groups(u_BDT, size)
    if fused := _fused(u_BDT):
        return fused.convolve_backward(gradient_BDT, u_BDT, h_DK, size, groups)
    u_gradients, h_gradients = [], []
    for channels in groups:
        g_BDF = _spectrum(gradient_BDT[:, channels], size)
        # Convolution's transpose is correlation: the conjugate spectrum.
        back_BDF = g_BDF * _spectrum(h_DK[channels], size).conj()
        u_gradients.append(torch.fft.irfft(back_BDF, n=size)[..., :length].to(u_BDT.dtype))
        across_DF = (g_BDF * _spectrum(u_BDT[:, channels], size).conj()).sum(0)
        h_gradients.append(torch.fft.irfft(across_DF, n=size)[..., :taps].to(h_DK.dtype))
    return _joined(u_gradients, dim=1), _joined(h_gradients, dim=0)


@convolve_backward.register_fake
def _(gradient_BDT: Tensor, u_BDT: Tensor, h_DK: Tensor) -> tuple[Tensor, Tensor]:
    return u_BDT.new_empty(u_BDT.shape), h_DK.new_empty(h_DK.shape)


def _backward(context: Any, gradient_BDT: Tensor) -> tuple[Tensor, Tensor]:
    return convolve_backward(gradient_BDT, *context.saved_tensors)


def _save_inputs(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


convolve.register_autograd(_backward, setup_context=_save_inputs)


def _fused(u_BDT: Tensor) -> Any:
    """The kernels for a GPU, where they can be used: they take channels in pairs, and compute in float32."""
    if not u_BDT.is_cuda or u_BDT.dtype == torch.float64 or u_BDT.shape[1] % 2:
        return None
    try:
        from regard.layers.fused import convolution
    except ImportError:  # without Triton
        return None
    return convolution


def _spectrum(x: Tensor, size: int) -> Tensor:
    return torch.fft.rfft(x if x.dtype == torch.float64 else x.float(), n=size)


def _groups(u_BDT: Tensor, size: int) -> list[slice]:
    """Channels that are transformed together."""
    rows, channels, _ = u_BDT.shape
    together = max(2, LARGEST_SPECTRUM // (rows * size) // 2 * 2)  # even: a GPU takes them in pairs
    return [slice(first, min(first + together, channels)) for first in range(0, channels, together)]


def _joined(parts: list[Tensor], dim: int) -> Tensor:
    return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts, dim)
