"""Hyena as a matrix. Given its gates, which depend on the input, every channel is a linear map of its v.

    paper     M = diag(xᴺ) T_N … diag(x¹) T_1
    public    M = diag(xᴺ) (T_{N−1} + D_{N−1} I) diag(xᴺ⁻¹) … (T_1 + D_1 I) diag(x¹)

    y = M v          Y = y W_out          T_n: the filter hⁿ as a Toeplitz matrix

So M is to Hyena what the weights are to attention: row t is what position t takes from every position. It differs from
channel to channel, and its entries may be negative. The notes of each matrix have the largest `difference` between M v
and the output of the layer's FFT.

Shapes: D channels · T positions · K taps of a filter
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.inside.named import Named, named
from regard.inside.parts import PartTrace
from regard.layers.hyena import Hyena

MOST_NUMBERS = 1 << 24  # in the matrices of a chunk


@torch.no_grad()
def operator(part: PartTrace, channel: int, pieces: Sequence[str] | None = None) -> Named:
    """M of one channel: [T, T]. `pieces`: the tokens at the positions."""
    hyena = _hyena(part)
    if not isinstance(channel, int) or isinstance(channel, bool) or not 0 <= channel < hyena.width:
        raise UsageError(
            f"There is no channel {channel!r}.", f"It has {hyena.width}.", f"Use one from 0 to {hyena.width - 1}."
        )
    [(matrix_DTT, difference)] = _operators(part, hyena, slice(channel, channel + 1))
    axes = _positions(part, pieces)
    return named("operator", matrix_DTT[0], axes, part=part.name, channel=channel, difference=difference)


@torch.no_grad()
def mean_operator(part: PartTrace, pieces: Sequence[str] | None = None) -> Named:
    """Mean of |M| over all channels: [T, T]."""
    hyena, length = _hyena(part), len(part.read_TD)
    sum_TT, worst = part.read_TD.new_zeros(length, length, dtype=torch.float32), 0.0
    for matrix_DTT, difference in _operators(part, hyena, slice(0, hyena.width)):
        sum_TT += matrix_DTT.abs().sum(0)
        worst = max(worst, difference)
    mean_TT = sum_TT / hyena.width
    return named("mean size of the operator", mean_TT, _positions(part, pieces), part=part.name, difference=worst)


@torch.no_grad()
def filters(part: PartTrace, taps: int | None = None) -> list[Named]:
    """For every convolution, the filter over earlier positions and, if bidirectional, over later ones: [D, K] each.

    `taps`: their length K, by default that of the input.
    """
    hyena = _hyena(part)
    taps = taps or len(part.read_TD)
    arrays = []
    for number, (back_DK, ahead_DK) in enumerate(hyena.filters(taps)):
        for direction, h_DK in (("back", back_DK), ("ahead", ahead_DK)):
            if h_DK is not None:
                axes = [("channel", _numbers(hyena.width)), ("distance", _numbers(taps))]
                arrays.append(named("filter", h_DK, axes, part=part.name, convolution=number, direction=direction))
    return arrays


def _operators(part: PartTrace, hyena: Hyena, channels: slice) -> Iterator[tuple[Tensor, float]]:
    """M of a chunk of channels at a time, and its largest difference from the output of the FFT."""
    assert part.context is not None
    x_1TD = part.read_TD[None]
    fft_DT = hyena.gathered(x_1TD, part.context)[0].float()
    v_DT, *gates = (stream_1DT[0].float() for stream_1DT in hyena.streams(x_1TD, part.context))
    length = len(part.read_TD)
    at_once = max(1, MOST_NUMBERS // length**2)
    for start in range(channels.start, channels.stop, at_once):
        chunk = slice(start, min(start + at_once, channels.stop))
        matrix_DTT = _product(hyena, [gate_DT[chunk] for gate_DT in gates], chunk, length)
        y_DT = (matrix_DTT @ v_DT[chunk, :, None])[..., 0]
        yield matrix_DTT, float((y_DT - fft_DT[chunk]).abs().max())


def _product(hyena: Hyena, gates: list[Tensor], channels: slice, length: int) -> Tensor:
    """M: [D, T, T]. diag(x) A scales the rows of A."""
    matrix_DTT: Tensor | None = None
    if hyena.skips is None:
        for n, x_DT in enumerate(gates):
            convolution_DTT = hyena.toeplitz(length, channels, n).float()
            before_DTT = convolution_DTT if matrix_DTT is None else convolution_DTT @ matrix_DTT
            matrix_DTT = x_DT[..., None] * before_DTT
        assert matrix_DTT is not None
        return matrix_DTT
    matrix_DTT = torch.diag_embed(gates[0])
    for n, x_DT in enumerate(gates[1:]):
        skip_DTT = torch.diag_embed(hyena.skips[n][channels, None].float().expand(-1, length))
        matrix_DTT = x_DT[..., None] * ((hyena.toeplitz(length, channels, n).float() + skip_DTT) @ matrix_DTT)
    return matrix_DTT


def _hyena(part: PartTrace) -> Hyena:
    if not isinstance(part.module, Hyena):
        raise UsageError(
            f"'{part.name}' is not a Hyena layer.",
            "Only a layer of long convolutions can be written as such a matrix.",
            'Choose a run with model.mixer = "hyena".',
        )
    return part.module


def _positions(part: PartTrace, pieces: Sequence[str] | None) -> list[tuple[str, Sequence[str]]]:
    names = pieces or _numbers(len(part.read_TD))
    return [("position", names), ("from", names)]


def _numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]
