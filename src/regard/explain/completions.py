"""Completed images side by side: the original, the part that was given to the model, and every completion.

Shapes: N images · S completions · H × W pixels · C channels
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.explain.image_grid import save_grid

GREY = 128  # of the pixels to be completed


def save_completions(
    given_NHWC: Sequence[NDArray[np.uint8]], completed_NSHWC: NDArray[np.uint8], kept_rows: int, path: Path
) -> None:
    """Write a PNG with a group for each image, of which the model was given the first rows."""
    kept_N1HWC = np.full_like(completed_NSHWC[:, :1], GREY)
    kept_N1HWC[:, :, :kept_rows] = completed_NSHWC[:, :1, :kept_rows]  # with the colours of the palette
    groups = np.concatenate([np.stack(given_NHWC)[:, None], kept_N1HWC, completed_NSHWC], axis=1)
    headings = ["given", "kept", *map(str, range(1, completed_NSHWC.shape[1] + 1))]
    save_grid(groups.reshape(-1, *groups.shape[2:]), path, labels=headings * len(groups), group=len(headings))
