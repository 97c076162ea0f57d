"""Every kernel of attention computes the same."""

import pytest
import torch

from regard.hardware import Hardware
from regard.layers import attention_kernel
from regard.layers.attention_kernel import attend, cudnn_attention, flex
from regard.layers.context import Context
from regard.settings import SystemSettings

hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9, reason="needs a Hopper GPU"
)


def written_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -torch.inf).softmax(-1) @ v


def test_asking_for_cudnn_ends_with_the_context_and_changes_nothing_on_a_cpu():
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 2, 3, 600, 8).unbind()
    expected = attend(q, k, v, causal=True)
    torch.testing.assert_close(expected, written_out(q, k, v))
    with pytest.raises(ZeroDivisionError), cudnn_attention(True):
        assert attention_kernel._cudnn
        assert torch.equal(attend(q, k, v, causal=True), expected)  # float32 is not for cuDNN
        _ = 1 / 0
    assert not attention_kernel._cudnn


def test_a_training_that_must_give_the_same_bytes_never_asks_for_cudnn():
    assert not Hardware.choose(SystemSettings(device="cpu")).cudnn_attention
    assert not Hardware(torch.device("cpu"), torch.bfloat16, False, deterministic=True).cudnn_attention


@hopper
def test_on_hopper_only_what_need_not_be_the_same_bytes_asks_for_cudnn():
    assert Hardware(torch.device("cuda"), torch.bfloat16, False).cudnn_attention
    assert not Hardware(torch.device("cuda"), torch.bfloat16, False, deterministic=True).cudnn_attention


@hopper
@pytest.mark.parametrize("compiled", [False, True])
def test_cudnn_gives_the_outputs_and_gradients_of_the_formula(compiled):
    torch.manual_seed(2)
    qkv = torch.randn(2, 640, 3 * 4 * 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def through(x: torch.Tensor, kernel: object) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, 64)).transpose(1, 2) for part in x.chunk(3, dim=-1))
        return kernel(q, k, v).transpose(1, 2).flatten(2)

    def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend(q, k, v, causal=True)

    function = torch.compile(lambda x: through(x, fused)) if compiled else lambda x: through(x, fused)
    exact = qkv.detach().double().requires_grad_()
    wanted = through(exact, written_out)
    gradient = torch.randn_like(wanted)
    (of_exact,) = torch.autograd.grad(wanted, exact, gradient)
    with cudnn_attention(True):
        found = function(qkv)
    (of_found,) = torch.autograd.grad(found, qkv, gradient.to(found.dtype))
    assert (found.double() - wanted).norm() <= 0.01 * wanted.norm()
    assert (of_found.double() - of_exact).norm() <= 0.02 * of_exact.norm()


def masked_example(device: str = "cpu", dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    """Rows of 40 positions that three sequences share, and padding after them, in causal order."""
    torch.manual_seed(3)
    segments = torch.tensor([1] * 11 + [2] * 20 + [3] * 4 + [0] * 5, device=device).expand(2, -1)
    mask = Context.build(segments, torch.zeros(2, 40, device=device), causal=True).mask_B1TT
    return torch.randn(3, 2, 4, 40, 16, device=device, dtype=dtype), mask


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("kernel", [flex, attention_kernel.written_out])
def test_a_masked_kernel_gives_the_outputs_of_the_formula(kernel):
    qkv, mask = masked_example()
    q, k, v = qkv.double().unbind()
    scores = (q @ k.mT / 4).masked_fill(~mask, -torch.inf)
    expected = scores.softmax(-1) @ v
    torch.testing.assert_close(kernel(*qkv.unbind(), mask), expected.float(), atol=1e-5, rtol=0)
    torch.testing.assert_close(attend(*qkv.unbind(), mask), expected.float(), atol=1e-5, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kernel", ["torch", "flex", "written out"])
def test_compiled_on_a_gpu_masked_kernels_give_the_gradients_of_the_formula(kernel, monkeypatch):
    monkeypatch.setattr(attention_kernel, "MASKED", kernel)
    qkv, mask = masked_example("cuda", torch.bfloat16)
    qkv.requires_grad_()
    exact = qkv.detach().double().requires_grad_()
    q, k, v = exact.unbind()
    wanted = (q @ k.mT / 4).masked_fill(~mask, -torch.inf).softmax(-1) @ v
    found = torch.compile(lambda x: attend(*x.unbind(), mask), dynamic=False)(qkv)
    gradient = torch.randn_like(wanted)
    (of_wanted,) = torch.autograd.grad(wanted, exact, gradient)
    (of_found,) = torch.autograd.grad(found, qkv, gradient.to(found.dtype))
    assert (found.double() - wanted).norm() <= 0.01 * wanted.norm()
    assert (of_found.double() - of_wanted).norm() <= 0.02 * of_wanted.norm()
