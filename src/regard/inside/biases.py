"""Relative position biases: what each head of an attention in windows adds to a score for how far patches are apart.

    table[row(i) − row(j), column(i) − column(j)]          i: the patch that looks · j: the one that is looked at

Shapes: H heads · R × C distances in rows and columns · S × S those of the window that was set
"""

from __future__ import annotations

from regard.inside.named import Named, named
from regard.layers.windows import WindowAttention


def window_bias(window: WindowAttention, name: str = "bias", whole: bool = False) -> Named:
    """Of the distances within its window: [H, R, C].

    `whole`: of all that the table has, [H, S, S]. Where a window is smaller than was set, some of them are never used.
    """
    side = int(window.table.shape[0] ** 0.5)
    bias_HSS = window.table.detach().float().cpu().T.unflatten(1, (side, side))
    farthest = (side // 2, side // 2) if whole else (window.window[0] - 1, window.window[1] - 1)
    rows, columns = (slice(side // 2 - far, side // 2 + far + 1) for far in farthest)
    down, across = ([str(apart) for apart in range(-far, far + 1)] for far in farthest)
    heads = [str(head + 1) for head in range(window.heads)]
    axes = [("head", heads), ("rows apart", down), ("columns apart", across)]
    return named(name, bias_HSS[:, rows, columns], axes)
