"""The GPU's kernels for the long convolution against float64 on the same device."""

import pytest
import torch

from regard.layers import convolution
from regard.layers.convolution import fft_length, long_convolution

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize(("rows", "channels", "length"), [(1, 4, 100), (2, 6, 1000), (3, 64, 4096), (5, 2, 1)])
def test_outputs_and_gradients_equal_float64(rows, channels, length, both):
    torch.manual_seed(length)
    inputs = [torch.randn(rows, channels, length), torch.randn(channels, length)]
    inputs += [torch.randn(channels, length)] if both else []
    gradient = torch.randn(rows, channels, length, device="cuda")
    found = [x.cuda().requires_grad_() for x in inputs]
    exact = [x.cuda().double().requires_grad_() for x in inputs]
    y, y_exact = long_convolution(*found), long_convolution(*exact)
    results = [y, *torch.autograd.grad(y, found, gradient, allow_unused=True)]
    expected = [y_exact, *torch.autograd.grad(y_exact, exact, gradient.double(), allow_unused=True)]
    for result, wanted in zip(results, expected, strict=True):
        assert (result.double() - wanted).norm() <= 2e-6 * wanted.norm() + 1e-12


def test_time_need_not_lie_last_in_memory():
    torch.manual_seed(1)
    u, h = torch.randn(2, 300, 8, device="cuda").transpose(1, 2), torch.randn(8, 300, device="cuda")
    torch.testing.assert_close(long_convolution(u, h), long_convolution(u.contiguous(), h))


def test_channels_in_groups_give_the_same(monkeypatch):
    torch.manual_seed(2)
    u, h = torch.randn(3, 8, 257, device="cuda", requires_grad=True), torch.randn(8, 257, device="cuda")
    at_once = long_convolution(u, h)
    (expected,) = torch.autograd.grad(at_once.square().sum(), u)
    monkeypatch.setattr(convolution, "LARGEST_SPECTRUM", 3 * fft_length(2 * 257) * 4)
    in_groups = long_convolution(u, h)
    (found,) = torch.autograd.grad(in_groups.square().sum(), u)
    torch.testing.assert_close(in_groups, at_once)
    torch.testing.assert_close(found, expected)
