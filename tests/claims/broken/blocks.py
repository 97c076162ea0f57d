from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from torch import nn
from torch.nn import functional as F

from broken.ways import put, with_argument
from regard.layers.block import Block


def never_warm(patch: pytest.MonkeyPatch, module: Any) -> None:
    train = module.trained
    patch.setattr(module, "trained", lambda *settings, seed: train(*settings, "training.warmup=0", seed=seed))


# Of the tiny versions: models of symbols are all right with and without label smoothing.
OUTCOMES = {"residuals": "depends", "averaging": "depends", "label-smoothing": "depends"}
BROKEN = {
    "averaging": with_argument(averaged=1),
    "label-smoothing": with_argument(smoothing=0.0),
    "layer-norm": with_argument(bare=partial(nn.LayerNorm, 32)),
    "linear-feedforward": with_argument(activation=F.relu),
    "residuals": with_argument(plain=Block),
    "tied-embeddings": put("TIED", "none"),
    "warm-up": never_warm,
}
