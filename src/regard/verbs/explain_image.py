"""The picture of `regard explain` for an image classifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regard.data.images import BadImage, read_image
from regard.errors import RegardError
from regard.evaluation.classification import guesses
from regard.explain.image_maps import draw_maps
from regard.explain.rollout import attention_maps
from regard.runs.images import ImageClassificationRun


def draw_image_maps(run: Path, file: Path, output: Path, device: str) -> dict[str, Any]:
    """Where in an image a classifier looked."""
    if not file.is_file():
        state = "It is a folder." if file.is_dir() else "There is no such file."
        raise RegardError(f"The image '{file}' cannot be read.", state, "Name one image.")
    model = ImageClassificationRun(run, device)
    if model.config.model.mixer != "attention":
        raise RegardError(
            f"The attention of '{run}' cannot be drawn over an image.",
            f'It has none: its mixer is "{model.config.model.mixer}".',
            'Choose a run with model.mixer = "attention".',
        )
    try:
        pixels_HWC = read_image(file, model.config.images)
    except BadImage as error:
        raise RegardError(f"The image '{file}' cannot be read.", error.reason, "Choose another.") from None
    [guess] = guesses(model.probabilities(pixels_HWC[None]), model.classes)
    scaled_1CHW = model.scale.on(model.hardware.device).pixels(
        torch.from_numpy(pixels_HWC)[None].to(model.hardware.device)
    )
    maps = attention_maps(model.model, scaled_1CHW[0])
    try:
        draw_maps(pixels_HWC, maps, f"{file.name}: {guess.label}, {guess.probability:.1%}", output)
    except OSError as error:
        raise RegardError(f"Cannot write '{output}'.", f"{error}", "Choose a writable place with -o.") from None
    return {
        "picture": str(output.resolve()),
        "image": str(file),
        "label": guess.label,
        "probability": guess.probability,
        "rollout": maps.rollout_RS.tolist(),
    }
