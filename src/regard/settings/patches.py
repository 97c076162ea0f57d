"""Of tasks whose model reads patches of images: what a ViT or a Swin needs of the sizes."""

from __future__ import annotations

import json
from collections.abc import Iterator

from regard.settings.base import Problem
from regard.settings.model import PatchModel
from regard.settings.task import PictureTaskSettings

SWIN = {  # what a model with stages has to have
    "pooling": "mean",
    "registers": 0,
    "mixer": "attention",
    "positions": "none",
    "key_value_heads": 0,
    "key_width": 0,
    "value_width": 0,
}


class PatchTaskSettings(PictureTaskSettings):
    """Of a task whose model reads patches."""

    model: PatchModel = PatchModel()

    @property
    def row(self) -> tuple[str, int]:
        return "the number of patches", self.model.tokens(self.images.height, self.images.width)

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        if getattr(self.training, "start_from", ""):  # its model is another run's, checked when that is known
            return
        yield from self.check_tokens(", or a larger model.patch")
        yield from self.model.check_patches(self.images.height, self.images.width)
        if self.model.stages:
            yield from self._check_windows()

    def remarks(self) -> list[str]:
        fields = type(self.model).model_fields
        chosen = [name for name in ("window", "narrow") if getattr(self.model, name) != fields[name].default]
        idle = [f"model.{name} has no effect: it is of Swin, and model.stages is empty." for name in chosen]
        return super().remarks() + (idle if not self.model.stages else [])

    def _check_windows(self) -> Iterator[Problem]:
        """Swin: every stage's grid is cut into windows, and halved for the next."""
        model = self.model
        for name, value in SWIN.items():
            if getattr(model, name, value) != value:
                yield Problem(
                    "model.stages (Swin) has patches in windows and nothing beside them, a bias for each distance in a "
                    "window, and heads of equal width",
                    f"use model.{name} = {json.dumps(value)}",
                )
        sides = [self.images.height // model.patch_height, self.images.width // model.patch_width]
        for stage in range(len(model.stages)):
            grid = f"stage {stage + 1} has a grid of {sides[0]} x {sides[1]} patches"
            for side in sides:
                window = min(model.window, *(sides if model.narrow == "square" else [side]))
                if window and side % window:
                    sides_alone = ' or model.narrow = "sides"' if window < model.window else ""
                    yield Problem(
                        f"{grid}, which windows of {window} do not fill",
                        f"choose model.window, model.patch and images.size so that they do{sides_alone}",
                    )
                if stage + 1 < len(model.stages) and side % 2:
                    yield Problem(
                        f"{grid}, which cannot be merged in twos", "use fewer model.stages, or another model.patch"
                    )
            sides = [side // 2 for side in sides]
