"""Tensors in files: safetensors, laid out so that a file can be mapped into memory and used where it lies.

A file is the length of its header (8 bytes), the header (JSON, then spaces), and the numbers of all tensors without a
gap. The last bits of a product depend on whether its numbers begin at a multiple of 64 bytes, as torch allocates
them. So the header is filled up to one, and tensors of an odd size are last.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

ALIGNMENT = 64  # bytes, of all that torch allocates
NAMES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64"}
NAMES |= {torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Equal tensors give equal bytes."""
    order = sorted(tensors, key=lambda name: (tensors[name].nbytes % ALIGNMENT != 0, -tensors[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        tensor, start = tensors[name], end
        end += tensor.nbytes
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(math.ceil((len(text) + 8) / ALIGNMENT) * ALIGNMENT - 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            # One after the other: on a GPU, no more than one of them is here as well.
            file.write(tensors[name].contiguous().cpu().flatten().view(torch.uint8).numpy().data)


def map_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, mapped into memory: a page is read when it is first used, and never written back.

    One that does not begin where torch would put it, as in files of other programs, is copied.
    """
    return {
        name: tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()
        for name, tensor in load_file(path).items()
    }
