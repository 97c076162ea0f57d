"""A model that does not fit one device: every process holds its rows of each weight, gradient and optimizer state.

torch's `fully_shard` does it. A block's weights are put together when the block computes, forward and backward, and its
gradients are added up over the processes and cut into rows again as soon as it is done. So a device holds, besides its
rows, one block as a whole, and all that belongs to no block: embeddings, the head.

Sums between processes are ours where they are to be exact. Of W processes, process r computes the micro-batches r,
r + W, r + 2W …, so that what is added over the processes is always the lowest part of the tree (see `tree`).

Shapes: P processes · X numbers
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from regard.errors import UsageError
from regard.layers.block import Block
from regard.models.blank import Blank
from regard.training.processes import Processes, Reduce
from regard.training.rows import whole
from regard.training.tree import tree_sum

ENTRANCES = ("hidden",)  # what a loss calls of a model, besides the model itself


class TreeReduceScatter:
    """As torch's reduce-scatter, with an order of additions that does not depend on the library."""

    def __init__(self, processes: Processes):
        self.processes = processes

    def allocate(self, size: torch.Size, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        mine_PX = torch.empty_like(input_tensor).view(self.processes.count, -1)
        with self.processes.noticing_loss():
            dist.all_to_all_single(mine_PX, input_tensor.view_as(mine_PX), group=group)
        output_tensor.copy_(tree_sum(mine_PX).view_as(output_tensor))


def shard(model: nn.Module, device: torch.device, processes: Processes, reduce: Reduce) -> nn.Module:
    """The same model, of which this process holds a part."""
    if processes.device.type != device.type:
        raise UsageError(
            "A model cannot be sharded among processes that share a GPU.",
            "Each holds its part on a device of its own.",
            "Use as many processes as there are GPUs, or leave out training.shard.",
        )
    # Harmless as long as nobody changes in place what a model returns, and nobody does.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
    mesh = init_device_mesh(device.type, (processes.count,))
    for block in _read_as_a_whole(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    for name in ENTRANCES:
        if hasattr(model, name):
            register_fsdp_forward_method(model, name)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # The loss is divided by the targets of the whole batch already.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
            if reduce == "exact":
                module.set_custom_reduce_scatter(TreeReduceScatter(processes))  # type: ignore[arg-type]
    return model


def _read_as_a_whole(model: nn.Module) -> list[Block]:
    """The blocks that compute once for all positions. Others belong to the rest, or would be gathered all the time."""
    in_order = [module for module in model.modules() if getattr(module, "reads_in_order", False)]
    left = {id(block) for module in in_order for block in module.modules()}
    return [module for module in model.modules() if isinstance(module, Block) and id(module) not in left]


def whole_model(build: Callable[[], nn.Module], weights: Mapping[str, Tensor], device: torch.device) -> nn.Module:
    """A model of its own with these weights, sharded or not: for validating, which takes no gradients."""
    with Blank():
        twin = build().to(device)
    own = dict(twin.named_parameters())
    with torch.no_grad():
        for name, weight in weights.items():
            own[name].copy_(whole(weight))
    return twin.eval()
