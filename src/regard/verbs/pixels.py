"""`regard generate` with a model of pixels: a picture of images that it draws, or completes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard import console
from regard.errors import RegardError, UsageError
from regard.verbs.generate import check_sampling

SAMPLES = 25
COMPLETIONS = 5
GREY = 128  # where nothing was kept
NAME = Path("samples.png")


def draw_images(
    run: Path,
    complete: list[Path],
    keep: float | None,
    samples: int | None,
    seed: int,
    output: Path | None,
    device: str,
    decoding: dict[str, Any],
) -> dict[str, Any]:
    """Draw images, or go on with those given, and write them as one picture."""
    output = output or NAME
    check_sampling(decoding)
    if output.suffix.lower() != ".png":
        raise UsageError(f"'{output}' is not a PNG file.", "Pictures are written as PNG.", "Use a name ending in .png.")
    if keep is not None and not complete:
        raise UsageError("--keep has no effect here.", "It is about images to complete.", "Add --complete IMAGE.png.")
    from regard.explain.image_grid import save_grid  # here: these take a second or two
    from regard.runs.pixels import PixelRun

    model = PixelRun(run, device)
    found: dict[str, Any] = {"picture": str(output.resolve()), "seed": seed}
    if complete:
        images = [model.read(path) for path in complete]
        share = 0.5 if keep is None else keep
        count = COMPLETIONS if samples is None else samples
        drawn = model.complete(images, share, count, seed, **decoding)
        rows = model.kept_rows(share)
        grid = np.stack(
            [
                image_HWC
                for given_HWC, completed_SHWC in zip(images, drawn, strict=True)
                for image_HWC in (given_HWC, _kept(completed_SHWC[0], rows), *completed_SHWC)
            ]
        )
        headings = ["given", "kept", *(str(number) for number in range(1, count + 1))]
        labels: list[str] | None = headings * len(images)
        group: int | None = len(headings)
        found |= {"completed": [str(path) for path in complete], "kept_rows": rows}
    else:
        count = SAMPLES if samples is None else samples
        grid, labels, group = model.sample(count, seed, **decoding), None, None
    if count > 1 and model.config.decoding.model_copy(update=decoding).temperature == 0:
        console.warn("All samples are the same at temperature 0: the likeliest pixel is taken each time.")
    try:
        save_grid(grid, output, labels=labels, group=group)
    except OSError as error:
        raise RegardError(f"Cannot write '{output}'.", f"{error}", "Choose a writable place with -o.") from None
    return found | {"samples": count}


def _kept(image_HWC: NDArray[np.uint8], rows: int) -> NDArray[np.uint8]:
    """The rows that were kept, and grey where the model had to draw."""
    kept_HWC = np.full_like(image_HWC, GREY)
    kept_HWC[:rows] = image_HWC[:rows]
    return kept_HWC
