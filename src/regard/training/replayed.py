"""A function that is captured in a CUDA graph once it has been called a few times, and replayed from then on.

A GPU runs small kernels faster than a program can start them; replayed, they are started as one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

WARM_UP = 3  # calls in which libraries choose their kernels and all memory is allocated
# Another thread makes the next batches meanwhile, and may ask for memory that a GPU copies from.
CAPTURE = "thread_local"

Result = TypeVar("Result")


class Replayed(Generic[Result]):
    """`function` takes nothing, and works on tensors that stay where they are; so does what it returns."""

    def __init__(self, function: Callable[[], Result], captured: bool = True):
        """`captured`: False to call the function as it is every time."""
        self.function, self.captured = function, captured
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.result: Result

    def __call__(self) -> Result:
        if not self.captured or self.calls < WARM_UP:
            self.calls += 1
            return self.function()
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, capture_error_mode=CAPTURE):
                self.result = self.function()
        self.graph.replay()
        return self.result
