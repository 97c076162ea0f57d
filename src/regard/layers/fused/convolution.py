"""The long convolution on a GPU: two channels to a complex FFT, and all that lies between transforms in one kernel.

A real FFT on the GPU is a complex one with a pass before and after it. Two real channels a and b, put into one
complex sequence z = a + ib, need neither; their spectra lie in that of z,

    A_k = (Z_k + Z̄_{n−k}) / 2         B_k = (Z_k − Z̄_{n−k}) / 2i

and are taken apart, multiplied by those of their filters, and put together again in the same kernel. So memory is
passed over by the transforms, and once before, between and after them.

Shapes: B rows · P pairs of channels · T positions · K taps of a filter · n positions around the circle
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


def convolve(u_BDT: Tensor, h_DK: Tensor, size: int, groups: Sequence[slice]) -> Tensor:
    """The first T of `size` positions around the circle, some channels at a time: [B, D, T]."""
    y_BDT = torch.empty_like(u_BDT, memory_format=torch.contiguous_format)
    for channels in groups:
        z_BPn, h_1Pn = spectrum(u_BDT[:, channels], size), spectrum(h_DK[None, channels], size)
        _over_frequencies(_multiply, z_BPn, h_1Pn)
        _unpack_into(y_BDT[:, channels], torch.fft.ifft(z_BPn, norm="forward"))
    return y_BDT


def convolve_backward(
    gradient_BDT: Tensor, u_BDT: Tensor, h_DK: Tensor, size: int, groups: Sequence[slice]
) -> tuple[Tensor, Tensor]:
    """The gradients of u and h; the spectra are recomputed."""
    u_gradient_BDT = torch.empty_like(u_BDT, memory_format=torch.contiguous_format)
    h_gradient_DK = torch.empty_like(h_DK, memory_format=torch.contiguous_format)
    for channels in groups:
        g_BPn, u_BPn = spectrum(gradient_BDT[:, channels], size), spectrum(u_BDT[:, channels], size)
        h_1Pn = spectrum(h_DK[None, channels], size)
        _over_frequencies(_correlate, g_BPn, u_BPn, h_1Pn)
        del u_BPn
        _unpack_into(u_gradient_BDT[:, channels], torch.fft.ifft(g_BPn, norm="forward"))
        _unpack_into(h_gradient_DK[None, channels], torch.fft.ifft(h_1Pn, norm="forward"))
    return u_gradient_BDT, h_gradient_DK


def spectrum(x_BDT: Tensor, size: int) -> Tensor:
    """The FFT of channels 2p and 2p + 1 as real and imaginary part, filled up with zeros: [B, P, n]."""
    rows, channels, length = x_BDT.shape
    z_BPn = torch.empty(rows, channels // 2, size, dtype=torch.complex64, device=x_BDT.device)
    grid = (triton.cdiv(size, BLOCK), channels // 2, rows)
    _pack[grid](x_BDT, torch.view_as_real(z_BPn), *x_BDT.stride(), length, size, channels // 2, BLOCK=BLOCK)
    return torch.fft.fft(z_BPn)


def _unpack_into(x_BDT: Tensor, z_BPn: Tensor) -> None:
    """Real and imaginary parts, divided by n, as channels of x; its time must lie last in memory."""
    rows, pairs, size = z_BPn.shape
    length = x_BDT.shape[-1]
    grid = (triton.cdiv(length, BLOCK), pairs, rows)
    _unpack[grid](torch.view_as_real(z_BPn), x_BDT, *x_BDT.stride()[:2], length, size, pairs, 1 / size, BLOCK=BLOCK)


def _over_frequencies(kernel: triton.JITFunction, *spectra: Tensor) -> None:
    rows, pairs, size = spectra[0].shape
    grid = (triton.cdiv(size // 2 + 1, BLOCK // 2), pairs)
    kernel[grid](*(torch.view_as_real(z) for z in spectra), rows, size, pairs, BLOCK=BLOCK // 2)


@triton.jit
def _pack(x, z, row_stride, channel_stride, time_stride, length, size, pairs, BLOCK: tl.constexpr):
    pair, row = tl.program_id(1), tl.program_id(2).to(tl.int64)
    t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x += row * row_stride + 2 * pair.to(tl.int64) * channel_stride
    inside = t < length
    a = tl.load(x + t.to(tl.int64) * time_stride, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + channel_stride + t.to(tl.int64) * time_stride, mask=inside, other=0.0).to(tl.float32)
    _store(z + (row * pairs + pair) * size * 2, t, a, b, t < size)


@triton.jit
def _unpack(z, x, row_stride, channel_stride, length, size, pairs, scale, BLOCK: tl.constexpr):
    pair, row = tl.program_id(1), tl.program_id(2).to(tl.int64)
    t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = t < length
    a, b = _load(z + (row * pairs + pair) * size * 2, t, inside)
    x += row * row_stride + 2 * pair.to(tl.int64) * channel_stride
    tl.store(x + t, (a * scale).to(x.dtype.element_ty), mask=inside)
    tl.store(x + channel_stride + t, (b * scale).to(x.dtype.element_ty), mask=inside)


@triton.jit
def _multiply(z, h, rows, size, pairs, BLOCK: tl.constexpr):
    """Z ← the spectrum of both channels, each times that of its filter."""
    pair = tl.program_id(1).to(tl.int64)
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    other = tl.where(k == 0, 0, size - k)
    inside = k <= size // 2
    ha_re, ha_im, hb_re, hb_im = _apart(h + pair * size * 2, k, other, inside)
    for row in range(rows):
        line = z + (row * pairs + pair) * size * 2
        a_re, a_im, b_re, b_im = _apart(line, k, other, inside)
        ya_re, ya_im = a_re * ha_re - a_im * ha_im, a_re * ha_im + a_im * ha_re
        yb_re, yb_im = b_re * hb_re - b_im * hb_im, b_re * hb_im + b_im * hb_re
        _together(line, k, other, inside, ya_re, ya_im, yb_re, yb_im)


@triton.jit
def _correlate(g, u, h, rows, size, pairs, BLOCK: tl.constexpr):
    """G ← G H̄, and H ← the sum of G Ū over the rows."""
    pair = tl.program_id(1).to(tl.int64)
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    other = tl.where(k == 0, 0, size - k)
    inside = k <= size // 2
    ha_re, ha_im, hb_re, hb_im = _apart(h + pair * size * 2, k, other, inside)
    sa_re, sa_im = tl.zeros_like(ha_re), tl.zeros_like(ha_re)
    sb_re, sb_im = tl.zeros_like(ha_re), tl.zeros_like(ha_re)
    for row in range(rows):
        offset = (row * pairs + pair) * size * 2
        ga_re, ga_im, gb_re, gb_im = _apart(g + offset, k, other, inside)
        ua_re, ua_im, ub_re, ub_im = _apart(u + offset, k, other, inside)
        sa_re += ga_re * ua_re + ga_im * ua_im
        sa_im += ga_im * ua_re - ga_re * ua_im
        sb_re += gb_re * ub_re + gb_im * ub_im
        sb_im += gb_im * ub_re - gb_re * ub_im
        ya_re, ya_im = ga_re * ha_re + ga_im * ha_im, ga_im * ha_re - ga_re * ha_im
        yb_re, yb_im = gb_re * hb_re + gb_im * hb_im, gb_im * hb_re - gb_re * hb_im
        _together(g + offset, k, other, inside, ya_re, ya_im, yb_re, yb_im)
    _together(h + pair * size * 2, k, other, inside, sa_re, sa_im, sb_re, sb_im)


@triton.jit
def _apart(z, k, other, inside):
    """A_k and B_k from Z_k and Z_{n−k}."""
    p_re, p_im = _load(z, k, inside)
    q_re, q_im = _load(z, other, inside)
    return (p_re + q_re) * 0.5, (p_im - q_im) * 0.5, (p_im + q_im) * 0.5, (q_re - p_re) * 0.5


@triton.jit
def _together(z, k, other, inside, a_re, a_im, b_re, b_im):
    """Z_k = A_k + i B_k, and Z_{n−k} = Ā_k + i B̄_k."""
    _store(z, k, a_re - b_im, a_im + b_re, inside)
    _store(z, other, a_re + b_im, b_re - a_im, inside)


@triton.jit
def _load(z, k, inside):
    both = tl.arange(0, 2)
    return tl.split(tl.load(z + k[:, None] * 2 + both[None, :], mask=inside[:, None], other=0.0))


@triton.jit
def _store(z, k, re, im, inside):
    both = tl.arange(0, 2)
    tl.store(z + k[:, None] * 2 + both[None, :], tl.join(re, im), mask=inside[:, None])
