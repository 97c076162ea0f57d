"""Positional encodings: the vectors that are added, the rotation angles, or the relative biases.

Shapes: T positions · D channels · K channels of a head
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.errors import UsageError
from regard.explain.explanation import Explanation
from regard.explain.heat_maps import Map, draw_maps
from regard.explain.sheet import Sheet
from regard.explain.view import View
from regard.inside.biases import window_bias
from regard.inside.named import Named, named
from regard.layers.block import Block
from regard.layers.embedding import Embedding
from regard.layers.patches import PatchEmbedding
from regard.layers.positions import Positions
from regard.layers.windows import WindowAttention

POSITIONS = 100  # drawn at most


@torch.inference_mode()
def positions(view: View) -> Explanation:
    settings = view.task.settings.model
    model, name = view.task.model, getattr(settings, "positions", "none")
    longest = settings.part("positions").most_positions(settings)
    windows = [module for module in model.modules() if isinstance(module, WindowAttention)]
    if windows:
        biases = [window_bias(window, f"bias, layer {n + 1}", whole=True) for n, window in enumerate(windows)]
        title = "Relative position biases: added to the scores, by head and by offset between two patches"
        return Explanation(
            title, biases, lambda: _draw_biases(biases), ["offset of the query from the key, in rows and columns"]
        )
    codes = model_codes(model, min(POSITIONS, longest))
    if codes:
        added = "added to a token's vector"
        return Explanation(
            f"Positional encodings: {name}", codes, lambda: _draw_codes(codes, added), ["added to every token"]
        )
    embeddings = [module.positions for module in model.modules() if isinstance(module, Embedding)]
    rotary = next((each for each in embeddings if type(each).rotate is not Positions.rotate), None)
    mixers_rotate = any(getattr(block.mixer, "rotate", None) for block in model.modules() if isinstance(block, Block))
    if rotary is None or not mixers_rotate:
        raise UsageError(
            f'This model has no positional encodings (positions = "{name}").',
            "Only its mixers can distinguish positions.",
            "Choose another run.",
        )
    angles = rotations(rotary, settings.head_key_width, min(POSITIONS, longest))
    remark = "each pair of channels of queries and keys is rotated; first the cosines of the angles, then the sines"
    scale = "cosine or sine of the rotation angle"
    return Explanation(f"Positional encodings: {name}", [angles], lambda: _draw_codes([angles], scale), [remark])


def model_codes(model: nn.Module, count: int) -> list[Named]:
    """The distinct position vectors that embeddings add: [T, D] each."""
    codes: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, Embedding):
            positions_T = torch.arange(count, device=module.table.weight.device)
            code_TD = module.positions.code(positions_T)
        elif isinstance(module, PatchEmbedding):
            rows, columns = module.grid
            width = module.project.out_channels
            code_TD = module.positioned(torch.zeros(1, rows * columns, width, device=module.project.weight.device))[0]
        else:
            continue
        code_TD = code_TD.float().cpu()
        if code_TD.any() and not any(torch.equal(code_TD, known_TD) for known_TD in codes.values()):
            codes[name.rpartition(".")[2].replace("_embedding", "")] = code_TD
    return [_named_code(f"positions, {name}" if len(codes) > 1 else "positions", code) for name, code in codes.items()]


def rotations(positions: Positions, width: int, count: int) -> Named:
    """A vector whose pairs are all (1, 0), rotated at each position: [T, K], cosines and then sines."""
    x_11TK = torch.zeros(1, 1, count, width)
    x_11TK[..., : width // 2] = 1.0
    return _named_code("positions", positions.rotate(x_11TK, torch.arange(count)[None])[0, 0])


def _named_code(name: str, code_TD: Tensor) -> Named:
    rows, channels = ([str(n + first) for n in range(side)] for side, first in zip(code_TD.shape, (0, 1), strict=True))
    return named(name, code_TD, [("position", rows), ("channel", channels)])


def _draw_codes(codes: Sequence[Named], scale: str) -> Figure:
    width, sheet, y, left = 7.5, Sheet(), 0.0, 0.6
    for code in codes:
        high = min(4.2, max(0.8, 0.06 * len(code.values)))
        largest = float(np.abs(code.values).max())
        sheet.text(left, y + 0.13, code.name if len(codes) > 1 else "", 8, weight="bold")
        y += 0.18
        sheet.heat(left, y, width, high, code.values, largest, signed=True)
        _numbered(sheet, code, left, y, width, high)
        y += high + 0.7
        sheet.scale(left, y - 0.05, largest, scale, signed=True)
        y += 0.25
    return sheet.finished(left + width, y)


def _numbered(sheet: Sheet, code: Named, left: float, top: float, width: float, high: float) -> None:
    """Labels of some positions and channels, at the edges."""
    rows, columns = code.values.shape
    for row in range(0, rows, max(1, int(round(rows / 6, -1)) if rows > 30 else rows // 6)):
        sheet.text(left - 0.05, top + (row + 0.5) * high / rows, code.labels[0][row], 7, ha="right", va="center")
    for column in range(0, columns, max(1, columns // 8)):
        sheet.text(left + (column + 0.5) * width / columns, top + high + 0.12, code.labels[1][column], 7, ha="center")
    sheet.text(left - 0.45, top + high / 2, "position", 8, rotation=90, ha="center", va="center")
    sheet.text(left + width / 2, top + high + 0.3, "channel", 8, ha="center")


def _draw_biases(biases: Sequence[Named]) -> Figure:
    maps = [
        [
            Map(f"{array.name.removeprefix('bias, ')} · head {head + 1}", values)
            for head, values in enumerate(array.values)
        ]
        for array in biases
    ]
    first = biases[0]
    axes = ("rows apart", "columns apart")
    return draw_maps(maps, first.labels[1], first.labels[2], "added to the score", axes, signed=True)
