"""Ways to break an ingredient of a claim."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from torch import Tensor

from regard.layers import attention_kernel

Break = Callable[[pytest.MonkeyPatch, Any], None]


def put(name: str, value: Any) -> Break:
    """Something else under this name of the claim's file."""
    return lambda patch, module: patch.setattr(module, name, value)


def with_argument(**given: Any) -> Break:
    """The experiment with arguments that only a test gives."""
    return lambda patch, module: patch.setattr(module, "experiment", partial(module.experiment, **given))


def kernel(attend: Callable[..., Tensor]) -> Break:
    """Another attention for all models."""
    return lambda patch, module: patch.setattr(attention_kernel, "attend", attend)


def equal_weights(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return v.mean(-2, keepdim=True).expand(*q.shape[:-1], v.shape[-1])
