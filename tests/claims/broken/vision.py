from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from broken.ways import put
from regard.models.trunk import Trunk


class OtherBlocks(Trunk):
    def read(self, x_BTD: Tensor, context: Any) -> Tensor:
        return super().read(2 * x_BTD, context)


def last_layer_forgets(patch: pytest.MonkeyPatch, module: Any) -> None:
    train = module.trained_model

    def forgetful(*arguments: Any, **more: Any) -> Any:
        task = train(*arguments, **more)
        task.model.trunk.layers[-1].register_forward_hook(lambda block, given, x_BTD: torch.zeros_like(x_BTD))
        return task

    patch.setattr(module, "trained_model", forgetful)


OUTCOMES = {"pixel-features": "does not hold", "vit-pretraining": "does not hold"}
BROKEN = {
    "patches": put("Trunk", OtherBlocks),
    "shuffled-patches": put("NO_POSITIONS", "learned"),
    "vit-swin": lambda patch, module: patch.setattr(module, "swin", module.vit),
    "vit-pretraining": put("steps_from_scratch", lambda steps: 1),
    "pixel-features": last_layer_forgets,
}
