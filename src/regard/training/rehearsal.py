"""Kernels for a GPU are compiled while data is read.

The kernels of `fused` are compiled when they are first called, some seconds for all of a model; libraries load theirs
then, too. What they are compiled for follows from the settings: widths, types, and which numbers are multiples of 16.
So a small model of the same kind takes a step on made-up data, in a second thread, while the real data is prepared.
Nothing depends on it: what was not compiled is compiled when it is needed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

import torch

from regard.layers.attention_kernel import cudnn_attention


@contextmanager
def kernels_ahead(task: Any) -> Iterator[None]:
    """Where there is a GPU, and blocks are not compiled by torch: rehearse, while other work is done."""
    if task.hardware.device.type != "cuda" or task.hardware.compile:
        yield
        return
    thread = Thread(target=_rehearse, args=(copy.copy(task),), daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()  # before random numbers are seeded, and graphs captured


def _rehearse(task: Any) -> None:
    with suppress(Exception):  # whatever is wrong is told when it is used
        rehearse(task)


def rehearse(task: Any) -> bool:
    """Loss and gradient of a small model, by a copy of the task; False where the task has none to offer."""
    batch = task.rehearsal()
    if batch is None:
        return False
    device = task.hardware.device
    task.model = task.model.to(device).train()
    with task.hardware.autocast(), cudnn_attention(task.hardware.cudnn_attention):
        loss = task.loss(batch.to(device))
    loss.backward()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return True
