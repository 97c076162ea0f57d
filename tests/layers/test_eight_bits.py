"""Products in eight bits against the same in float64. The bounds are those of rounding: 1/16 for e4m3, 1/8 for e5m2."""

import os

import pytest
import torch
from torch.nn import functional as F

from expect import error_of
from regard.hardware import Hardware
from regard.layers.fused import eight_bits
from regard.layers.fused.eight_bits import E4M3, E5M2, OPERANDS, gradient_factor
from regard.layers.fused.product import Operand, Rounded, in_half, product
from regard.models import stack
from regard.models.causal import Causal
from regard.run import read_recipe
from regard.settings import CausalModel, SystemSettings

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9),
    reason="needs a CUDA device with products in eight bits"
    + (": Triton's interpreter casts to eight bits otherwise" if INTERPRETED else ""),
)
POSITIONS = 48
OPERAND, GRADIENT = 2.0**-4, 2.0**-3  # how far a number is rounded, at most, as a share of it
HALF = 2.0**-8
# The distance of the smallest numbers from each other.
STEPS = {E4M3: 2.0**-9, E5M2: 2.0**-16}


def layer(columns: int = 96, rows: int = 64, scale: float = 0.02) -> torch.nn.Linear:
    torch.manual_seed(1)
    made = torch.nn.Linear(columns, rows, bias=False)
    with torch.no_grad():
        made.weight.copy_(scale * torch.randn_like(made.weight))
    return made


def rounded(linear: torch.nn.Linear, half: torch.dtype = torch.bfloat16) -> Rounded:
    return eight_bits.in_eight_bits([linear], half, POSITIONS)[linear]


def operand(columns: int = 96) -> torch.Tensor:
    """Of many sizes, as activations are."""
    generator = torch.Generator().manual_seed(2)
    sizes = torch.exp2(6 * torch.rand(3, POSITIONS // 3, columns, generator=generator) - 4)
    return (torch.randn(sizes.shape, generator=generator) * sizes).bfloat16()


def rounded_by(x: torch.Tensor, weight: torch.Tensor, share: float, step: float) -> torch.Tensor:
    """How far x Wᵀ may be off when x is rounded by a share or half a step, and W likewise by 1/16."""
    x, weight = x.double().abs(), weight.double().abs()
    # A matrix is scaled so that its largest number is at least 128.
    step_of_weight = STEPS[E4M3] * weight.max() / 128 / 2
    most = F.linear(x * (1 + share) + step / 2, weight * (1 + OPERAND) + step_of_weight)
    return most - F.linear(x, weight) + HALF * most  # which is itself given in half precision


@pytest.mark.parametrize("scale", [1e-4, 0.02, 1.0, 300.0])
def test_a_product_is_as_close_as_eight_bits_are(scale):
    linear, x = layer(scale=scale), operand()
    found = product(Operand(x), linear.weight, rounded(linear)).half
    wanted = F.linear(x.double(), linear.weight.double())
    assert found.dtype == torch.bfloat16
    far = (found.double() - wanted).abs()
    assert (far <= rounded_by(x, linear.weight, OPERAND, STEPS[E4M3] / OPERANDS)).all()
    # Of many numbers, which are rounded up or down, what is off is mostly less than what one may be.
    assert 0 < far.norm() <= (OPERAND**2 + OPERAND**2) ** 0.5 * wanted.norm()


@pytest.mark.parametrize("size", [8.0, 2.0**-3, 2.0**-12], ids=["largest", "at the start", "before activations"])
def test_gradients_too_as_small_as_they_are_in_training(size):
    linear, x = layer(), operand().requires_grad_()
    gradient = (size / POSITIONS * torch.randn(3, POSITIONS // 3, 64)).bfloat16()
    eight = rounded(linear)
    found = torch.autograd.grad(product(Operand(x), linear.weight, eight).half, (x, linear.weight), gradient)
    with torch.autocast("cpu", torch.bfloat16):
        of_weight = torch.autograd.grad(F.linear(x, linear.weight), linear.weight, gradient)[0]
    assert found[0].dtype == torch.bfloat16
    wanted = F.linear(gradient.double(), linear.weight.T.double())
    far = (found[0].double() - wanted).abs()
    assert (far <= rounded_by(gradient, linear.weight.T, GRADIENT, STEPS[E5M2] / eight.factor)).all()
    assert 0 < far.norm() <= (OPERAND**2 + GRADIENT**2) ** 0.5 * wanted.norm()
    assert torch.equal(found[1], of_weight), "gradients of weights are not rounded"


def test_the_factor_of_gradients_grows_with_the_positions_that_the_loss_is_a_mean_of():
    factors = [gradient_factor(positions) for positions in (1, 2, 3, 1000, 65_536)]
    assert [factor / factors[0] for factor in factors] == [1, 2, 4, 1024, 65_536]


def test_what_is_too_large_is_cut_off_and_what_is_no_number_stays_that():
    sizes = torch.tensor([1e9, -1e9, torch.inf, torch.nan, 0.0])
    for dtype in (E4M3, E5M2):
        cast, most = eight_bits.to_eight_bits(sizes, dtype, 4.0).float(), torch.finfo(dtype).max
        assert cast[:3].tolist() == [most, -most, most] and cast[3].isnan() and cast[4] == 0
    linear = layer()
    x = operand()
    x[0, 0, 0], x[0, 1, 0] = 1e6, torch.nan
    eight = rounded(linear)
    found = product(Operand(x), linear.weight, eight).half
    assert found[0, 1].isnan().all() and found[0, 0].isfinite().all()
    cut = x.clone()
    cut[0, 0, 0] = torch.finfo(E4M3).max / OPERANDS
    torch.testing.assert_close(found[0, 0], product(Operand(cut), linear.weight, eight).half[0, 0], rtol=0, atol=0)


def test_a_matrix_of_zeros_gives_zeros():
    linear = layer(scale=0.0)
    found = product(Operand(operand()), linear.weight, rounded(linear)).half
    assert (found == 0).all()


class Passed(torch.autograd.Function):
    """What follows a product, and gives its gradient in both ways: here not the same, to see which is used for what."""

    @staticmethod
    def forward(ctx, half, gradient, factor):
        ctx.factor = factor
        return half.clone()

    @staticmethod
    def backward(ctx, d):
        return d, eight_bits.to_eight_bits(3 * d, E5M2, ctx.factor), None


def test_the_gradient_in_eight_bits_is_the_one_that_was_handed_over():
    linear, x = layer(), operand().requires_grad_()
    given = product(Operand(x), linear.weight, rounded(linear))
    gradient = torch.exp2(torch.randint(-8, 3, given.half.shape)).bfloat16() / 64  # exact in eight bits, and 1.5 times
    usual = torch.autograd.grad(given.half, (x, linear.weight), gradient, retain_graph=True)
    handed = torch.autograd.grad(Passed.apply(*given), (x, linear.weight), gradient)
    torch.testing.assert_close(handed[0].float(), 3 * usual[0].float(), rtol=2 * HALF, atol=1e-6)
    assert torch.equal(handed[1], usual[1])


def test_what_was_written_in_eight_bits_is_what_is_read():
    linear, x = layer(), operand()
    eight = rounded(linear)
    other = eight_bits.to_eight_bits(-x, E4M3, OPERANDS)
    assert torch.equal(
        product(Operand(x, other), linear.weight, eight).half, product(Operand(-x), linear.weight, eight).half
    )


def test_without_eight_bits_a_product_is_that_of_torch_and_the_gradient_of_weights_is_not_rounded():
    linear, x = layer(), operand().float().requires_grad_()
    given = product(Operand(x), linear.weight, in_half([linear], torch.bfloat16)[linear])
    gradient = torch.randn(given.half.shape).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        wanted = F.linear(x, linear.weight)
    assert torch.equal(given.half, wanted) and given.gradient is None
    found = torch.autograd.grad(given.half, (x, linear.weight), gradient)
    expected = torch.autograd.grad(wanted, (x, linear.weight), gradient)
    assert all(map(torch.equal, found, expected))


def test_some_rows_of_a_matrix_are_those_of_the_whole():
    linear, x = layer(), operand()
    eight = rounded(linear, torch.float32)
    read = eight.read(Operand(x))
    assert torch.equal(eight.part(slice(16, 48)).product(read), eight.product(read)[..., 16:48])
    gradient = torch.zeros(3, POSITIONS // 3, 64)
    gradient[..., 16:48] = torch.randn(3, POSITIONS // 3, 32)
    cast = eight_bits.to_eight_bits(gradient, E5M2, 1.0)
    of_part = eight.part(slice(16, 48)).of_input(gradient[..., 16:48], cast[..., 16:48].contiguous())
    torch.testing.assert_close(of_part, eight.of_input(gradient, cast))


def test_matrices_of_other_widths_are_refused():
    error = error_of(rounded, layer(rows=40))
    assert "40 × 96" in error.why and "16" in error.why


@pytest.mark.parametrize(
    ("recipe", "change"),
    [
        ("gpt2-124m", "model.gated=true"),
        ("gpt2-124m", "model.mixer=hyena"),
        ("gpt2-124m", "model.heads=256"),
        ("shakespeare", "model.width=24"),
        ("words", "seed=1"),
    ],
)
def test_settings_that_cannot_have_it_are_refused(recipe, change):
    read_recipe(recipe, [change] if recipe != "shakespeare" else [])
    error = error_of(read_recipe, recipe, ["system.precision=float8", change])
    assert 'system.precision = "float8"' in f"{error.what} {error.why}"


def test_a_cpu_is_refused_for_training_and_for_nothing_else():
    assert read_recipe("gpt2-124m", ["system.precision=float8"]).system.precision == "float8"
    hardware = Hardware.choose(SystemSettings(device="cpu", precision="float8"))
    assert hardware.precision == torch.float32
    assert "CPU" in error_of(hardware.check_training).why
    Hardware.choose(SystemSettings(device="cpu", precision="bfloat16")).check_training()


def test_blocks_without_kernels_are_refused_and_only_in_training():
    torch.manual_seed(1)
    model = Causal(CausalModel(layers=1, width=32, heads=2, feedforward=64, dropout=0.0), 20)
    tokens = torch.randint(0, 20, (2, 5))
    expected = model.hidden(tokens)
    with stack.eight_bits(True):
        error_of(model.hidden, tokens)
        with torch.no_grad():
            assert torch.equal(model.hidden(tokens), expected)
    assert torch.equal(model.hidden(tokens), expected)


@gpu
def test_casts_on_a_gpu_are_those_of_the_cpu():
    from regard.layers.fused import casts

    x = torch.randn(96, 160) * torch.exp2(torch.randint(-24, 24, (96, 160)).float())
    x[0, :5] = torch.tensor([1e9, -1e9, torch.inf, torch.nan, 0.0])
    for dtype in (E4M3, E5M2):
        found, wanted = casts.cast(x.cuda(), dtype, 4.0).cpu(), eight_bits.to_eight_bits(x, dtype, 4.0)
        torch.testing.assert_close(found.float(), wanted.float(), rtol=0, atol=0, equal_nan=True)
    for scale in (1e-4, 1.0, 300.0):
        weight = scale * torch.randn(96, 160)
        largest = weight.abs().max()
        for found, wanted in zip(
            casts.cast_weight(weight.cuda(), largest.cuda()), eight_bits._cast_weight(weight, largest), strict=True
        ):
            assert torch.equal(found.cpu().float(), wanted.float())
