"""A convolution is a product in frequency, and a Toeplitz matrix.

    y_t = Σ_{s ≤ t} h_{t−s} u_s     =     T u,  T_{ts} = h_{t−s}     =     irfft(rfft(u) ⊙ rfft(h))

The three are computed and compared: the sum by numpy, the matrix and the FFT by the layer that Hyena uses. The silent
condition is room: the FFT goes round a circle, and without padding to twice the length the end of the sequence runs
into its beginning, so that early outputs know of late inputs. That is measured, too.

Shapes: B rows · D channels · T positions
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor

from regard.claims.frame.claim import About, Budget, Measured, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import chart, line, number
from regard.layers import convolution
from regard.layers.hyena import Hyena
from regard.settings import SequenceModel

LENGTHS = (16, 64, 256, 1024)
EXACT, WRONG = 1e-9, 1e-2

ABOUT = About(
    text="A convolution is an element-wise product in frequency, and multiplication by a Toeplitz matrix.",
    decks=("000",),
    group="cost",
    measures="the largest difference between a sum written out, the product of spectra and the Toeplitz matrix, "
    "relative to the largest output, for filters as long as their input; and of the spectra without padding.",
    threshold=f"all three agree to {EXACT:g}, with and without padding.",
    figures={
        "frequency": "largest relative difference, product in frequency",
        "toeplitz": "largest relative difference, Toeplitz matrix",
        "unpadded": "largest relative difference, product in frequency without padding",
    },
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    torch.manual_seed(seed)
    lengths = LENGTHS[: budget.choose(tiny=2, normal=4)]
    padded, matrix, circular = [], [], []
    for length in lengths:
        settings = SequenceModel(width=4, heads=1, mixer="hyena", positions="none").for_length(length)
        hyena = Hyena(settings, causal=True).double()
        u_DT = torch.randn(4, length, dtype=torch.float64)
        with torch.no_grad():
            h_DT = hyena.filters(length)[0][0]
            toeplitz_DTT = hyena.toeplitz(length, slice(None))
        summed_DT = np.stack([np.convolve(u_T, h_T)[:length] for u_T, h_T in zip(u_DT, h_DT, strict=True)])
        padded.append(off(convolution.long_convolution(u_DT[None], h_DT)[0], summed_DT))
        matrix.append(off((toeplitz_DTT @ u_DT[..., None])[..., 0], summed_DT))
        circular.append(off(torch.fft.irfft(torch.fft.rfft(u_DT) * torch.fft.rfft(h_DT), n=length), summed_DT))
    return {
        "frequency": max(padded),
        "toeplitz": max(matrix),
        "unpadded": max(circular),
        "by_length": [padded, matrix, circular],
    }


def off(y_DT: Tensor, summed_DT: np.ndarray) -> float:
    return float(np.abs(y_DT.numpy() - summed_DT).max() / np.abs(summed_DT).max())


def verdict(measured: Measured) -> Verdict:
    exact, unpadded = max(measured["frequency"].max(), measured["toeplitz"].max()), measured.mean("unpadded")
    told = (
        f"Sum, spectra and matrix agree to {number(exact)}. Without padding to twice the length the product of spectra "
        f"is another convolution, around a circle: {unpadded:.0%} off, and no longer causal."
    )
    if exact > EXACT:
        return does_not_hold(told)
    return holds(told) if unpadded < EXACT else depends("padding", told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "length", "largest difference from the sum, relative")
    lengths = LENGTHS[: measured["by_length"].shape[-1]]
    for place, name in enumerate(("in frequency", "Toeplitz matrix", "in frequency, unpadded")):
        line(axis, lengths, measured["by_length"][:, place], name, place, log=True)
    axis.set_xscale("log", base=2)
    axis.legend()
    return figure
