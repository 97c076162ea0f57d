from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor
from torch.nn import functional as F

from broken.ways import equal_weights, kernel, put, with_argument
from regard.models.causal import Causal
from regard.models.trunk import Trunk


def undivided(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, scale=1.0)


def encoder_that_does_not_look(patch: pytest.MonkeyPatch, module: Any) -> None:
    make = module.encoder

    def deaf() -> Trunk:
        model = make()
        module.without_attention(model)
        return model

    patch.setattr(module, "encoder", deaf)


OUTCOMES = {"soft-dictionary": "depends", "permutation": "depends"}
BROKEN = {
    "scaling": kernel(undivided),
    "softmax-scale": with_argument(normalise=lambda x: (x / x.std(-1, keepdim=True)).softmax(-1)),
    "soft-dictionary": kernel(equal_weights),
    "permutation": put("NO_POSITIONS", "sinusoidal"),
    "one-hot": kernel(equal_weights),
    "context": encoder_that_does_not_look,
    "heads": put("MANY", 1),
    "causal-mask": put("Unmasked", Causal),
}
