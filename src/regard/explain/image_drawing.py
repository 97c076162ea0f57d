"""An image inside a figure."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray


def draw_image(
    axis: Axes, pixels_HWC: NDArray[np.uint8], extent: tuple[float, float, float, float] | None = None
) -> None:
    """Grey or in colour, without interpolation; over the whole axis, or within left, right, bottom and top."""
    if pixels_HWC.shape[-1] == 1:
        axis.imshow(pixels_HWC[..., 0], cmap="gray", vmin=0, vmax=255, interpolation="nearest", extent=extent)
    else:
        axis.imshow(pixels_HWC, interpolation="nearest", extent=extent)
