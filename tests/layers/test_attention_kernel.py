"""Every kernel of attention computes the same."""

import pytest
import torch

from regard.hardware import Hardware
from regard.layers import attention_kernel
from regard.layers.attention_kernel import attend, cudnn_attention
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
