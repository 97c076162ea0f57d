"""Cross-attention of a captioner: a map over the image for each word of the caption.

Lengths are in inches. Shapes: L layers · H heads · T words · S patches, on a grid R × C · of an image H × W pixels
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard.explain.explanation import Explanation
from regard.explain.image_maps import GAP, LINE, OWN_SCALE, SCALE, draw_over, map_size, picture_of
from regard.explain.sheet import Sheet, label
from regard.explain.view import View
from regard.inside.named import named

COLUMNS = 8
MOST_WORDS = 64  # drawn


def caption_maps(view: View) -> Explanation:
    from regard.explain.attention import chosen_attention, named_weights

    parts, cross = chosen_attention(view.trace)
    weights, remarks = named_weights(view, parts, cross)
    patches = view.subject.stacks[0]
    assert patches.grid is not None
    words = [answer.label.strip() for answer in view.subject.answers]
    maps_TRC = weights.values.mean((0, 1))[:, patches.before :].reshape(len(words), *patches.grid)
    rows, columns = ([str(n + 1) for n in range(side)] for side in patches.grid)
    axes = [("word", words), ("row", rows), ("column", columns)]
    layers, heads = weights.values.shape[:2]
    mean_of = f"mean of {layers} layer{'s' * (layers > 1)} and {heads} head{'s' * (heads > 1)}"
    if len(words) > MOST_WORDS:
        remarks = [*remarks, f"drawn: the first {MOST_WORDS} of {len(words)} words"]
    return Explanation(
        "Cross-attention: attention from each word of the caption to the image",
        [named("attention", maps_TRC, axes, "weight"), replace(weights, name="attention of every head")],
        lambda: draw_caption_maps(picture_of(view.subject), words, maps_TRC),
        [f"cross-attention over patches, {mean_of}", OWN_SCALE, *remarks],
    )


def draw_caption_maps(pixels_HWC: NDArray[np.uint8], words: list[str], maps_TRC: NDArray[np.floating]) -> Figure:
    """The image, then for each word the image with the map of the word over it."""
    width, height = map_size(pixels_HWC)
    words = words[:MOST_WORDS]
    columns = min(COLUMNS, len(words) + 1)
    sheet = Sheet()
    cells = [("image", None), *zip(words, maps_TRC, strict=False)]
    for number, (word, map_RC) in enumerate(cells):
        row, column = divmod(number, columns)
        corner = column * (width + GAP), row * (height + LINE + GAP)
        draw_over(sheet, corner, (width, height), label(word), pixels_HWC, map_RC)
    bottom = math.ceil(len(cells) / columns) * (height + LINE + GAP)
    sheet.scale(0.0, bottom + SCALE - 0.25, 1.0, "of each map's maximum")
    return sheet.finished(columns * (width + GAP) - GAP, bottom + SCALE)
