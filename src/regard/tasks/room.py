"""Is there room for a model? Asked before it is built, and before a byte of its weights is read into it.

The model is laid out on torch's device `meta`, where tensors have a shape and nothing else. To train takes, for every
weight, itself, its gradient, what the optimizer remembers of it, and a moving average where there is one; and for a
batch at least a few vectors for every position in every layer. All are lower bounds: what they exclude cannot work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError
from regard.settings import NetworkSettings, TaskSettings

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from regard.tasks.task import Task

NUMBER = 4  # bytes of a weight
KEPT = 4  # vectors of each position that every block keeps for the way back, at the very least
HALF = 2  # bytes of a number in the smallest of the precisions


def check_room_to_train(task: Task[Any], holders: int = 1) -> None:
    """An error if the model of a prepared task, its optimizer and a batch cannot be in memory together.

    `holders`: so many processes hold a part of the model each. To validate, every one has all its weights.
    """
    model = _laid_out(task)
    if model is None:
        return
    settings = task.settings
    optimizer = settings.training.part("optimizer")
    each = NUMBER * (2 + getattr(optimizer, "remembers", 0) + bool(settings.training.ema))
    weights = sum(parameter.numel() for parameter in model.parameters())
    held = each * weights if holders == 1 else each * weights // holders + NUMBER * weights
    buffers = sum(buffer.numel() for buffer in model.buffers())
    positions = settings.tokens_per_step // settings.training.pieces
    batch = positions * HALF * (settings.width * KEPT * _layers(settings) + _logits(model))
    free = _free(task.hardware.device)
    if held + NUMBER * buffers > free:
        raise RegardError(
            f"There is no room to train a model of {weights:,} weights.",
            f"With gradients and optimizer they take {_shown(held)}; {_shown(free)} of memory are free.",
            f"Lower {' or '.join(_sizes(settings))}.",
        )
    if held + batch > free:
        raise RegardError(
            f"There is no room to train with {settings.BATCH} = {settings.batch_size:,}.",
            f"A batch takes {_shown(batch)} or more, the model {_shown(held)}; {_shown(free)} of memory are free.",
            f"Lower {settings.BATCH}, or raise training.micro_batches (same result, less memory).",
        )


def check_room_to_load(task: Task[Any], weights: Mapping[str, Tensor]) -> None:
    """An error if these are not the weights of a restored task's model: before the model is built in vain."""
    from regard.training.checkpoint import must_fit

    model = _laid_out(task)
    if model is None:
        return
    must_fit(model, weights, task.folder.path)
    needed, free = NUMBER * sum(parameter.numel() for parameter in model.parameters()), _free(task.hardware.device)
    if needed > free:
        raise RegardError(
            f"There is no room for the model of '{task.folder.path}'.",
            f"It takes {_shown(needed)}; {_shown(free)} of memory are free.",
            "Close other programs, or use a machine with more memory.",
        )


def _laid_out(task: Task[Any]) -> nn.Module | None:
    """The model without its numbers. None where a part cannot be made that way: then nothing is known beforehand."""
    import torch

    from regard.models.blank import Blank

    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"), Blank():
            return task.build()
    except RegardError:
        raise
    except Exception:  # a plug-in may compute with numbers while it is made
        return None


def _free(device: torch.device) -> int:
    import torch

    from regard.process_memory import available_memory

    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory()


def _layers(settings: TaskSettings) -> int:
    return settings.model.layers if hasattr(settings, "model") else 1


def _logits(model: Any) -> int:
    """Numbers of a position: logits and their gradient, where words are copied. Elsewhere they are never all there."""
    return 2 * model.to_logits.out_features if getattr(model, "copying", None) is not None else 0


def smaller(settings: TaskSettings) -> str:
    """The settings to lower for a training that takes less memory than one row of its batches does now."""
    row = settings.row[0] if isinstance(settings, NetworkSettings) else settings.BATCH
    return " or ".join([*([row] if "." in row else []), *_sizes(settings)])


def _sizes(settings: TaskSettings) -> list[str]:
    """The settings that make a model large."""
    if not hasattr(settings, "model"):
        return [f"{section}.width" for section, values in settings.sections().items() if hasattr(values, "width")]
    vocabulary = [
        f"{section}.vocabulary" for section, values in settings.sections().items() if hasattr(values, "vocabulary")
    ]
    return ["model.layers", "model.width", "model.feedforward", *vocabulary]


def _shown(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
