"""Torch's optimizers without torch's compiler.

They import it, which takes some two seconds, when they are made and at every step: only to tell it where not to look.
No optimizer is compiled here, so their methods are used as they were before they were wrapped for that.
"""

from __future__ import annotations

import inspect
from typing import TypeVar

import torch

Kind = TypeVar("Kind", bound=torch.optim.Optimizer)
WRAPPED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def uncompiled(optimizer: type[Kind]) -> type[Kind]:
    """The same optimizer. It cannot be differentiated through."""
    methods = {name: inspect.unwrap(getattr(optimizer, name)) for name in WRAPPED}
    step = torch.no_grad()(inspect.unwrap(optimizer.step))
    return type(optimizer.__name__, (optimizer,), {"__doc__": optimizer.__doc__, "step": step, **methods})
