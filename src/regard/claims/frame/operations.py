"""How much arithmetic a computation does, and how much of it must wait: counted, so the same on every machine.

    products of matrices      2 · rows · columns · inner width, by torch's own table
    Fourier transforms        5 · n · log₂ n for each of length n
    everything else           one for each number that is written; views write nothing

Fused kernels would hide what they do, so attention runs as it is written, and LSTMs step by step.

    longest chain             the most operations of which each needs the one before: what no parallel machine can avoid
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from regard.layers import convolution

FOURIER = {"_fft_r2c", "_fft_c2r", "_fft_c2c"}
# Operators of ours are opaque to torch: what they compute is counted instead.
OUR_OWN = {f"regard::{each._name}": each._init_fn for each in (convolution.convolve, convolution.convolve_backward)}


class Operations(TorchDispatchMode):
    """Counts what is computed inside `with Operations() as operations`."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if inner := OUR_OWN.get(func._schema.name):
            with self:
                return inner(*args)
        out = func(*args, **(kwargs or {}))
        self.count += _of(func, args, kwargs or {}, out)
        return out


def operations(compute: Callable[[], Any]) -> float:
    """Of one call."""
    with written_out(), Operations() as counted:
        compute()
    return counted.count


def longest_chain(compute: Callable[[], Tensor]) -> int:
    """The most differentiable operations in a row that lead to the result, each waiting for the one before."""
    with written_out():
        root = compute().grad_fn
    assert root is not None
    depth: dict[Any, int] = {}
    waiting = [root]  # a stack, not recursion: chains are longer than Python's stack
    while waiting:
        node = waiting[-1]
        before = [each for each, _ in node.next_functions if each is not None]
        unknown = [each for each in before if each not in depth]
        waiting += unknown
        if not unknown:
            depth[waiting.pop()] = 1 + max((depth[each] for each in before), default=0)
    return depth[root]


@contextmanager
def written_out() -> Iterator[None]:
    """Without fused kernels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of TF32 on GPUs that are not here
        with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
            yield


def _of(func: Any, args: Any, kwargs: Any, out: Any) -> float:
    if func.is_view:
        return 0.0
    if func._overloadpacket in flop_registry:
        return float(flop_registry[func._overloadpacket](*args, **kwargs, out_val=out))
    numbers = max((each.numel() for each in tree_leaves(out) if isinstance(each, Tensor)), default=0)
    name = func._overloadpacket.__name__
    if name in FOURIER:
        whole, axes = max(numbers, args[0].numel()), args[1]
        lengths = math.prod(max(args[0].shape[axis], out.shape[axis]) for axis in axes)
        return 5.0 * whole * math.log2(lengths)
    return float(numbers)
