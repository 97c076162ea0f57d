"""Models whose weights come from elsewhere, built without drawing random numbers for them.

To draw them takes longer than to read trained ones; and on torch's device `meta`, where there are no numbers at all,
it would load torch's compiler first. What is computed from no generator stays as it is: buffers have their values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_variadic


def told_to_modes(fill: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same function, of which a mode is told, as it is of `nn.init.normal_`."""

    @functools.wraps(fill)
    def told(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if has_torch_function_variadic(tensor):
            return handle_torch_function(told, (tensor,), tensor, *args, **kwargs)
        return fill(tensor, *args, **kwargs)

    return told


# It draws again until no number is too large. Where nothing is drawn, that may never be.
nn.init._no_grad_trunc_normal_ = told_to_modes(nn.init._no_grad_trunc_normal_)

# What fills a tensor at random: of torch.nn.init, and the methods that it and layers call.
INITIALISERS = ["uniform_", "normal_", "_no_grad_trunc_normal_", "xavier_uniform_", "xavier_normal_"]
INITIALISERS += ["kaiming_uniform_", "kaiming_normal_", "orthogonal_", "sparse_"]
FILLING: set[Callable[..., Any]] = {getattr(nn.init, name) for name in INITIALISERS}
FILLING |= {Tensor.uniform_, Tensor.normal_}
NEW: set[Callable[..., Any]] = {torch.rand, torch.randn}


class Blank(TorchFunctionMode):
    """Within it, tensors that would be random are left as they are allocated: memory that nobody has touched."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("generator") is None:  # with its own generator, a number is part of the model
            if function in FILLING:
                return args[0] if args else kwargs["tensor"]
            if function in NEW:
                return torch.empty(*args, **{name: value for name, value in kwargs.items() if name != "generator"})
        return function(*args, **kwargs)
