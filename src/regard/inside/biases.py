"""Relative position biases of attention in windows: added to the score of a query and a key by their offset.

    b_ij = table[row(i) − row(j), column(i) − column(j)]          i: query patch · j: key patch

Shapes: H heads · R × C offsets in rows and columns · S × S those of the configured window
"""

from __future__ import annotations

from regard.inside.named import Named, named
from regard.layers.windows import WindowAttention


def window_bias(window: WindowAttention, name: str = "bias", whole: bool = False) -> Named:
    """The biases of all offsets within the actual window: [H, R, C].

    `whole`: of the whole table, [H, S, S]. If the window is smaller than configured, some of it is never used.
    """
    side = int(window.table.shape[0] ** 0.5)
    bias_HSS = window.table.detach().float().cpu().T.unflatten(1, (side, side))
    farthest = (side // 2, side // 2) if whole else (window.window[0] - 1, window.window[1] - 1)
    rows, columns = (slice(side // 2 - far, side // 2 + far + 1) for far in farthest)
    down, across = ([str(apart) for apart in range(-far, far + 1)] for far in farthest)
    heads = [str(head + 1) for head in range(window.heads)]
    axes = [("head", heads), ("rows apart", down), ("columns apart", across)]
    return named(name, bias_HSS[:, rows, columns], axes)
