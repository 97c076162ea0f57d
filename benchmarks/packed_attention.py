"""Attention over rows that several sequences share: forward and backward by every kernel there is.

    python benchmarks/packed_attention.py                        # rows as in multi30k and in Transformer base
    python benchmarks/packed_attention.py --shape 64x256x8x64    # rows x positions x heads x width of a head

Each row has about ten sequences that do not see each other, as in a translator's encoder, and again in causal order.
All kernels are first compared with the formula in float64. The last line is JSON: microseconds by shape and kernel.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention
from torch.profiler import ProfilerActivity, profile

from regard.layers.context import Context

SHAPES = ["64x128x4x64", "64x128x8x64", "96x256x8x64"]
Kernel = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def torch_chooses(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask)


def cudnn(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    bias = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -torch.inf).expand(-1, q.shape[1], -1, -1)
    y: Tensor = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, bias, True, 0.0, False, False)[0]
    return y


def formula(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf).softmax(-1) @ v


def flex(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """A kernel that torch generates for this mask, when it compiles."""

    def seen(score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return torch.where(mask[row, 0, query, key], score, -torch.inf)

    y: Tensor = flex_attention(q, k, v, score_mod=seen)
    return y


def regard_masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    from regard.layers.fused import short_attention

    return short_attention.attend(q, k, v, mask)


KERNELS: dict[str, Kernel] = {
    "torch": torch_chooses, "regard": regard_masked, "flex": flex, "written out": formula, "cudnn": cudnn
}  # fmt: skip
COMPILED = {"flex", "written out"}  # the others are one kernel, or a few, as they are


def example(
    rows: int, length: int, heads: int, width: int, causal: bool, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Queries, keys and values as one projection gives them, and the mask."""
    torch.manual_seed(1)
    segments = torch.arange(length, device=device) * 10 // length + 1
    context = Context.build(segments.expand(rows, -1), torch.zeros(rows, length, device=device), causal=causal)
    assert context.mask_B1TT is not None
    qkv = torch.randn(rows, length, 3 * heads * width, device=device, dtype=torch.bfloat16, requires_grad=True)
    return qkv, context.mask_B1TT


def through(kernel: Kernel, qkv: Tensor, mask: Tensor, heads: int) -> Tensor:
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
    return kernel(q, k, v, mask).transpose(1, 2).flatten(2)


def microseconds(name: str, shape: str, causal: bool, device: torch.device, repeats: int) -> float:
    """Of all kernels of forward and backward together; on a CPU, of the time they take."""
    rows, length, heads, width = map(int, shape.split("x"))
    qkv, mask = example(rows, length, heads, width, causal, device)
    on_gpu = device.type == "cuda"
    kernel = KERNELS[name]
    run = torch.compile(through, dynamic=False) if on_gpu and name in COMPILED else through
    exact = qkv.detach()[:2].double().requires_grad_()
    wanted = through(formula, exact, mask[:2], heads)
    gradient = torch.randn(rows, *wanted.shape[1:], device=device).to(qkv.dtype)
    (of_wanted,) = torch.autograd.grad(wanted, exact, gradient[:2].double())
    found = run(kernel, qkv, mask, heads)
    (of_found,) = torch.autograd.grad(found, qkv, gradient)
    for mine, one in ((found, wanted), (of_found, of_wanted)):
        apart = float((mine[:2].double() - one).norm() / one.norm())
        assert apart < 0.02, f"differs from the formula by {apart:.3f}"

    def both() -> None:
        torch.autograd.grad(run(kernel, qkv, mask, heads), qkv, gradient)

    if not on_gpu:
        return 1e6 * min(_timed(both) for _ in range(2))
    for _ in range(3):
        both()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(repeats):
            both()
        torch.cuda.synchronize()
    return sum(kernel.device_time_total for kernel in profiled.key_averages()) / repeats


def _timed(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="+", default=SHAPES, dest="shapes")
    parser.add_argument("--kernels", nargs="+", default=list(KERNELS), choices=list(KERNELS))
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch._dynamo.config.recompile_limit = 64
    results: dict[str, dict[str, float | str]] = {}
    print("rows x positions x heads x width |", " | ".join(options.kernels), "(microseconds, forward and backward)")
    for shape in options.shapes:
        for causal in (False, True):
            title = f"{shape}{' causal' if causal else ''}"
            results[title] = {}
            for name in options.kernels:
                try:
                    results[title][name] = round(microseconds(name, shape, causal, device, options.repeats), 1)
                except Exception as error:  # one that cannot is told of
                    results[title][name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:80]}"
            print(title, *results[title].values(), sep=" | ", flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
