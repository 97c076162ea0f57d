from __future__ import annotations

from functools import partial

from broken.ways import put
from regard.layers import positions

OUTCOMES = {"position-kinds": "depends"}
BROKEN = {
    "position-rotation": lambda patch, module: patch.setattr(
        positions, "sinusoidal", partial(lambda code, at, width: code(at**1.1, width), positions.sinusoidal)
    ),
    "position-kinds": put("NO_POSITIONS", "sinusoidal"),
    "position-order": lambda patch, module: patch.setattr(module, "ORDER", sorted(module.ORDER)),
}
