"""Every kernel of attention computes the same."""

import os

import pytest
import torch

from regard.hardware import Hardware
from regard.layers import attention_kernel
from regard.layers.attention_kernel import attend, cudnn_attention
from regard.layers.context import Context
from regard.settings import SystemSettings

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # the kernels on a CPU, slowly
gpu = pytest.mark.skipif(not torch.cuda.is_available() and not INTERPRETED, reason="needs a CUDA device")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
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


def of_formula(qkv: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    q, k, v = qkv.unbind()
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -1e30)
    return (scores.softmax(-1) * mask.any(-1, keepdim=True)) @ v


def test_a_mask_gives_the_outputs_of_the_formula():
    qkv, mask = masked_example()
    torch.testing.assert_close(attend(*qkv.unbind(), mask), of_formula(qkv.double(), mask).float(), atol=1e-5, rtol=0)


@gpu
@pytest.mark.parametrize(("queries", "keys"), [(40, 40), (19, 23), (64, 64), (130, 200)])
@pytest.mark.parametrize(("width", "kind"), [(16, "masked"), (64, "masked"), (32, "causal"), (32, "all")])
def test_the_kernel_for_short_rows_gives_the_outputs_and_gradients_of_the_formula(queries, keys, width, kind):
    from regard.layers.fused import short_attention

    torch.manual_seed(4)
    shapes = [(2, positions, 3, width) for positions in (queries, keys, keys)]
    qkv = [torch.randn(*shape, device=DEVICE).half().transpose(1, 2).requires_grad_() for shape in shapes]
    of_query, of_key = (torch.arange(positions, device=DEVICE) // 9 for positions in (queries, keys))
    mask = (of_query[:, None] == of_key[None, :]).expand(2, 1, -1, -1).clone()
    mask[1, :, 3] = False  # a query that sees nothing
    assert short_attention.can(*qkv, mask)
    if kind == "masked":
        found = short_attention.attend(*qkv, mask)
    else:
        mask = torch.ones_like(mask)
        mask = mask.tril() if kind == "causal" else mask
        found = short_attention.attend(*qkv, None, kind == "causal")
    exact = [one.detach().double().requires_grad_() for one in qkv]
    q, k, v = exact
    scores = (q @ k.mT / width**0.5).masked_fill(~mask, -1e30)
    wanted = (scores.softmax(-1) * mask.any(-1, keepdim=True)) @ v
    weights = torch.randn_like(wanted)
    assert (found.double() - wanted).norm() <= 0.001 * wanted.norm()
    for one, other in zip(
        torch.autograd.grad((found.double() * weights).sum(), qkv),
        torch.autograd.grad((wanted * weights).sum(), exact),
        strict=True,
    ):
        assert (one.double() - other).norm() <= 0.002 * other.norm()


@gpu
def test_what_the_kernel_for_short_rows_cannot_do_is_left_to_torch():
    from regard.layers.fused import short_attention

    qkv, mask = masked_example(DEVICE, torch.bfloat16)
    q, k, v = qkv.unbind()
    assert short_attention.can(q, k, v, mask)
    assert not short_attention.can(q.float(), k.float(), v.float(), mask)
    assert not short_attention.can(q[..., :10], k[..., :10], v[..., :10], mask)
    assert not short_attention.can(q, k[:, :2], v[:, :2], mask), "fewer heads of keys"
    assert not short_attention.can(q, k, v, torch.zeros_like(mask, dtype=torch.float32)), "numbers to add"
    far = q.new_zeros(1, 1, 600, 16)
    assert not short_attention.can(far, far, far, mask.new_ones(1, 1, 600, 600))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_masks_and_short_rows_are_left_to_it(monkeypatch):
    from regard.layers.fused import short_attention

    qkv, mask = masked_example("cuda", torch.bfloat16)
    asked = []
    kernel = short_attention.attend
    monkeypatch.setattr(short_attention, "attend", lambda *given: asked.append(1) or kernel(*given))
    found, wanted = attend(*qkv.unbind(), mask), of_formula(qkv.double(), mask)
    attend(*qkv.unbind(), causal=True)
    assert len(asked) == 2
    long = torch.randn(1, 1, 300, 16, device="cuda", dtype=torch.bfloat16)
    attend(long, long, long, causal=True)
    assert len(asked) == 2
    assert (found.double() - wanted).norm() <= 0.01 * wanted.norm()
