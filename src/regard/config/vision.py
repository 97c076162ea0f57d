"""What must fit together in the settings of an image model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from regard.config.data import ImageSettings
from regard.config.model import ModelSettings

if TYPE_CHECKING:
    from regard.config import Config


MOST_TOKENS = 65_536
SWIN = {  # what a model with stages has to have
    "pooling": "mean",
    "registers": 0,
    "mixer": "attention",
    "positions": "none",
    "key_value_heads": 0,
    "key_width": 0,
    "value_width": 0,
}


def patches(images: ImageSettings, model: ModelSettings) -> int:
    """Tokens of an image in a ViT: its patches, the class token and the registers."""
    grid = (images.height // model.patch_height) * (images.width // model.patch_width)
    return grid + (model.pooling in ("first", "both")) + model.registers


def images_agree(config: Config) -> None:
    """A clear error for the first pair of settings that do not fit."""
    training, images, data = config.training, config.images, config.data
    if training.images_per_batch < training.micro_batches:
        raise ValueError(
            f"training.micro_batches = {training.micro_batches}, but a batch has only {training.images_per_batch} "
            "images; raise training.images_per_batch or lower training.micro_batches"
        )
    named = [name for name in ("sample", "images", "train") if getattr(data, name)]
    if len(named) > 1:
        raise ValueError(
            f"data.{named[0]} and data.{named[1]} both name the images to train on; leave one of them empty"
        )
    if data.held_out + (data.held_out_test or data.held_out) >= 1:
        raise ValueError("data.held_out and data.held_out_test leave nothing to train on; lower one of them")
    if config.augmentation.mixup and config.augmentation.cutmix and not config.augmentation.mix:
        raise ValueError("augmentation.mix = 0 leaves mixup and cutmix without effect; raise it, or set both to 0")
    if config.augmentation.crop >= min(images.height, images.width):
        raise ValueError(
            f"augmentation.crop = {config.augmentation.crop} would cut images of {images.height} x {images.width} "
            "away; use an eighth of a side or so"
        )
    if not training.start_from:  # else it has the model of another run, and is checked when that is known
        _tokens_fit(config)


def _tokens_fit(config: Config) -> None:
    """An image can be cut into the tokens of the model, and there are not too many."""
    images, model = config.images, config.model
    name, tokens = config.row
    if tokens > MOST_TOKENS:
        larger = "model.patch" if config.task == "classify-image" else ""
        raise ValueError(
            f"{name} is {tokens:,}, more than the {MOST_TOKENS:,} that attention can still be computed for; "
            f"choose a smaller images.size{f', or a larger {larger}' if larger else ''}"
        )
    if config.task == "pixels":
        if config.pixels.palette == "grey" and images.colour:
            raise ValueError(
                'pixels.palette = "grey" needs images.colour = false; set that, or pixels.palette = "k-means"'
            )
        return
    if model.pooling == "last":
        raise ValueError('model.pooling = "last" is for texts; use "first" (a class token), "mean" or "both"')
    if images.height % model.patch_height or images.width % model.patch_width:
        raise ValueError(
            f"images of {images.height} x {images.width} cannot be cut into patches of {model.patch_height} x "
            f"{model.patch_width}; choose model.patch so that it divides images.size"
        )
    if model.positions == "sinusoidal-2d" and model.width % 4:
        raise ValueError(
            f'model.width = {model.width} cannot be divided by 4, which model.positions = "sinusoidal-2d" needs; '
            "use another width"
        )
    if model.stages:
        _windows_fit(images, model)


def _windows_fit(images: ImageSettings, model: ModelSettings) -> None:
    """Swin: every stage's grid is cut into windows, and halved for the next."""
    for name, value in SWIN.items():
        if getattr(model, name) != value:
            raise ValueError(
                "model.stages (Swin) has patches in windows and nothing beside them, a bias for each distance in a "
                f"window, and heads of equal width; use model.{name} = {json.dumps(value)}"
            )
    sides = [images.height // model.patch_height, images.width // model.patch_width]
    for stage in range(len(model.stages)):
        for side in sides:
            if side > model.window and side % model.window:
                raise ValueError(
                    f"stage {stage + 1} has a grid of {sides[0]} x {sides[1]} patches, which windows of "
                    f"{model.window} do not fill; choose model.window, model.patch and images.size so that they do"
                )
            if stage + 1 < len(model.stages) and side % 2:
                raise ValueError(
                    f"stage {stage + 1} has a grid of {sides[0]} x {sides[1]} patches, which cannot be merged in twos; "
                    "use fewer model.stages, or another model.patch"
                )
        sides = [side // 2 for side in sides]
