"""Hyena and its convolutions against the sums they stand for."""

import math

import pytest
import torch

from regard.layers import convolution
from regard.layers.context import Context
from regard.layers.convolution import fft_length, long_convolution
from regard.layers.hyena import Hyena, HyenaSettings, ShortConvolution
from regard.layers.streaming import BLOCK, ModalConvolution, Modes, NaiveConvolution, TiledConvolution
from regard.settings import ModelSettings

B, D, T = 2, 6, 37


def make(causal: bool = True, **changes) -> Hyena:
    torch.manual_seed(1)
    own = {"filter_length": T, "filter_width": 16} | changes
    return Hyena(ModelSettings(width=D, heads=1, mixer="hyena", hyena=own), causal).eval()


def whole(length: int = T, causal: bool = True) -> Context:
    return Context.build(None, torch.arange(length)[None], causal)


@pytest.mark.parametrize("length", [1, 2, 3, 37, 64, 100])
def test_the_long_convolution_equals_torchs(length):
    torch.manual_seed(2)
    u, h = torch.randn(B, D, length), torch.randn(D, length)
    padded = torch.nn.functional.pad(u, (length - 1, 0))
    expected = torch.nn.functional.conv1d(padded, h.flip(-1)[:, None], groups=D)
    torch.testing.assert_close(long_convolution(u, h), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("length", [1, 2, 37])
def test_in_both_directions_it_equals_torchs(length):
    torch.manual_seed(3)
    u, h, ahead = torch.randn(B, D, length), torch.randn(D, length), torch.randn(D, length)
    kernel = torch.cat([ahead[:, 1:].flip(-1), h], dim=-1)  # lags −T+1 … T−1
    padded = torch.nn.functional.pad(u, (length - 1, length - 1))
    expected = torch.nn.functional.conv1d(padded, kernel.flip(-1)[:, None], groups=D)
    torch.testing.assert_close(long_convolution(u, h, ahead), expected, atol=1e-4, rtol=0)


def test_channels_in_groups_give_the_same(monkeypatch):
    torch.manual_seed(4)
    u, h = torch.randn(B, D, T, requires_grad=True), torch.randn(D, T, requires_grad=True)
    at_once = long_convolution(u, h)
    expected = torch.autograd.grad(at_once.square().sum(), [u, h])
    monkeypatch.setattr(convolution, "LARGEST_SPECTRUM", 2 * B * fft_length(2 * T))
    in_groups = long_convolution(u, h)
    torch.testing.assert_close(in_groups, at_once, atol=1e-5, rtol=0)
    for found, wanted in zip(torch.autograd.grad(in_groups.square().sum(), [u, h]), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("least", [1, 2, 3, 5, 17, 1000, 1025, 1300, 2000])
def test_fft_lengths_are_long_enough_and_not_twice_as_long(least):
    assert least <= fft_length(least) <= max(2, 1.5 * least)


def test_the_short_convolution_equals_torchs():
    torch.manual_seed(5)
    for causal, padding in ((True, (2, 0)), (False, (1, 1))):
        short = ShortConvolution(D, causal)
        x = torch.randn(B, D, T)
        padded = torch.nn.functional.pad(x, padding)
        expected = torch.nn.functional.conv1d(padded, short.weight_C1S, short.bias_C, groups=D)
        torch.testing.assert_close(short(x), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("recurrence", ["paper", "public"])
def test_the_layer_is_gates_and_toeplitz_matrices(causal, recurrence):
    hyena = make(causal, recurrence=recurrence, order=3)
    x = torch.randn(B, T, D)
    c = torch.nn.functional.pad(hyena.to_streams(x).transpose(1, 2), (2, 0) if causal else (1, 1))
    short = torch.nn.functional.conv1d(c, hyena.short.weight_C1S, hyena.short.bias_C, groups=4 * D)
    v, x1, x2, x3 = short.split(D, dim=1)

    def matrix(n: int) -> torch.Tensor:
        return torch.stack([hyena.toeplitz(T, channel, n) for channel in range(D)])

    def convolve(n: int, z: torch.Tensor) -> torch.Tensor:
        return torch.einsum("dts,bds->bdt", matrix(n), z)

    if recurrence == "paper":
        y = x3 * convolve(2, x2 * convolve(1, x1 * convolve(0, v)))
    else:
        z = convolve(0, x1 * v) + hyena.skips[0][:, None] * (x1 * v)
        y = x3 * (convolve(1, x2 * z) + hyena.skips[1][:, None] * (x2 * z))
    expected = hyena.to_out(y.transpose(1, 2))
    torch.testing.assert_close(hyena(x, whole(causal=causal)), expected, atol=1e-5, rtol=0)
    assert bool((matrix(0).triu(1) == 0).all()) == causal


@pytest.mark.parametrize("bands", [0, 1, 3])
@pytest.mark.parametrize("length", [T, 2 * T])
def test_filters_are_the_papers_network_of_sines_times_a_falling_window(bands, length):
    """ω = 10; features t, cos 2πft, −sin 2πft; windows that fall to .01 at 1.5 … .3 of the length."""
    hyena = make(recurrence="paper", order=2, filter_bands=bands)
    network = hyena.filter.double()
    first, second = network.hidden
    frequencies = {0: [], 1: [1e-4], 3: [1e-4, (1e-4 + 2) / 2, 2.0]}[bands]
    found = network(length)
    assert found.shape == (2 * D, length)
    for k in (0, 1, 5, T - 1, length - 1):
        t = k / (T - 1)
        waves = [2 * math.pi * f * t for f in frequencies]
        x = torch.tensor([t, *(math.cos(w) for w in waves), *(-math.sin(w) for w in waves)], dtype=torch.double)
        for layer in (first, second):
            x = torch.sin(10 * (layer.weight @ x + layer.bias))
        for channel in range(2 * D):
            slowest, fastest = -math.log(0.01) / 1.5, -math.log(0.01) / 0.3
            delta = slowest + (fastest - slowest) * (channel % D) / (D - 1)
            expected = math.exp(-delta * t) * (network.to_filters.weight[channel] @ x)
            torch.testing.assert_close(found[channel, k], expected, atol=1e-6, rtol=0)


def test_filters_start_with_a_length_of_one_and_the_short_convolution_as_torchs():
    hyena = make()
    assert list(hyena.initialise()) == [hyena.filter]
    torch.testing.assert_close(hyena.filter(T).norm(dim=1), torch.ones(D), atol=1e-4, rtol=0)
    wide = ShortConvolution(4000, causal=True)
    for weight in (wide.weight_C1S, wide.bias_C):
        assert 0.99 * 3**-0.5 < weight.abs().max() <= 3**-0.5
        assert weight.min() < 0 < weight.max()


def test_a_longer_sequence_extends_the_filters_and_keeps_their_beginning():
    hyena = make()
    short, long = hyena.filters(T)[0][0], hyena.filters(3 * T)[0][0]
    torch.testing.assert_close(long[:, :T], short, atol=1e-6, rtol=0)
    assert (long[:, T:].abs().amax(0) > 0).all()
    x = torch.randn(B, 3 * T, D)
    torch.testing.assert_close(hyena(x, whole(3 * T))[:, :T], hyena(x[:, :T], whole()), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", [TiledConvolution, NaiveConvolution])
@pytest.mark.parametrize("first", [0, 1, 50])
def test_tiles_sum_what_the_literal_sum_does(first, kind):
    torch.manual_seed(6)
    length = 9 * BLOCK + 5
    h, u = torch.randn(D, length, dtype=torch.float64), torch.randn(B, D, length, dtype=torch.float64)
    streaming = kind(h, B)
    parts = [streaming.prefill(u[..., :first])] if first else []
    parts += [streaming.step(u[..., t])[..., None] for t in range(first, length)]
    literal = torch.stack([(u[..., : t + 1] * h[:, : t + 1].flip(-1)).sum(-1) for t in range(length)], -1)
    torch.testing.assert_close(torch.cat(parts, -1), literal, atol=1e-10, rtol=0)


def test_a_sum_of_exponentials_is_found_again():
    torch.manual_seed(7)
    t = torch.arange(200, dtype=torch.float64)
    angle, decay, weight = torch.rand(D, 3, 1) * 3, 0.9 + 0.09 * torch.rand(D, 3, 1), torch.randn(D, 3, 1)
    h = (weight * decay**t * torch.cos(angle * t)).sum(1)  # three damped waves: six exponentials
    fitted = Modes.fit(h, 6)
    assert fitted.error < 1e-8
    u = torch.randn(B, D, 200, dtype=torch.float64)
    modal, exact = ModalConvolution(fitted, B), TiledConvolution(h, B)
    for t in range(200):
        torch.testing.assert_close(modal.step(u[..., t]), exact.step(u[..., t]), atol=1e-6, rtol=0)


def test_more_exponentials_come_nearer_and_the_error_is_the_one_reported():
    hyena = make()
    errors = [hyena.distil(modes, T) for modes in (2, 4, 8, 16)]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 0.05 < errors[0]
    modes = hyena.distilled[0]
    powers = modes.poles_DM[:, None] ** torch.arange(T)[None, :, None]
    rebuilt = (powers * modes.residues_DM[:, None]).sum(-1).real
    h = hyena.filters(T)[0][0]
    assert float((rebuilt - h).detach().norm() / h.detach().norm()) == pytest.approx(errors[-1], rel=0.05, abs=1e-5)


def test_a_distilled_layer_decodes_nearly_as_the_exact_one():
    hyena = make()
    x = torch.randn(B, T, D)
    with torch.no_grad():
        expected = hyena(x, whole())
        error = hyena.distil(16, T)
        state = hyena.start(B, T, x)
        begun = hyena.prefill(x[:, :5], whole(5), state)
        steps = torch.stack([hyena.step(x[:, t], state) for t in range(5, T)], dim=1)
    found = torch.cat([begun, steps], 1)
    assert (found - expected).norm() / expected.norm() < 2 * error < 0.1
    assert not torch.equal(found, expected)


def test_one_gate_leaves_no_convolution_in_the_public_recurrence():
    for recurrence, problems in {"public": 1, "paper": 0}.items():
        model = ModelSettings(mixer="hyena", hyena={"order": 1, "recurrence": recurrence})
        assert len(list(model.check_parts())) == problems


def test_filters_are_made_for_the_length_of_a_row_unless_another_is_given():
    for own, length in (({}, 50), ({"filter_length": 7}, 7)):
        model = ModelSettings(mixer="hyena", hyena=own).for_length(50)
        assert model.own("mixer", HyenaSettings).filter_length == length
