"""Augmentation in kernels for a GPU against the same written out in torch.

The kernels run on a GPU, or with TRITON_INTERPRET=1, slowly, on a CPU.
"""

import os

import pytest
import torch
from test_augmentation import EVERYTHING, augmentation, images, keys

from regard.data import augmentation as module
from regard.data.augmentation import ROUNDS
from regard.data.image_operations import OPERATIONS
from regard.data.keys import uniforms, whole

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
gpu = pytest.mark.skipif(not torch.cuda.is_available() and not INTERPRETED, reason="needs a CUDA device")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
COUNT = 120


@gpu
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(32, 32), (12, 16), (17, 17)])
@pytest.mark.parametrize(
    "settings", [EVERYTHING, {"crop": 3}, {"mixup": 0.5}, {"operations": 1, "strength": 1.0}, {"erase": 0.7}]
)
def test_kernels_give_the_same_images(settings, size, channels, monkeypatch):
    from regard.data import fused_augmentation

    augment = augmentation(*size, **settings).to(DEVICE)
    own, other = (images(COUNT, *size, channels, seed) for seed in (0, 1))
    parts = [part.to(DEVICE) for part in (own, keys(COUNT), other, keys(COUNT, first=COUNT))]
    drawn = whole(uniforms(keys(COUNT), ROUNDS + 1)[ROUNDS], len(OPERATIONS))
    assert len(drawn.unique()) == len(OPERATIONS)
    monkeypatch.setattr(module, "_kernels", lambda *_: None)
    x, share = augment(*parts)
    monkeypatch.setattr(module, "_kernels", lambda *_: fused_augmentation)
    fused_x, fused_share = augment(*parts)
    assert fused_x.shape == x.shape
    torch.testing.assert_close(fused_share, share, atol=1e-6, rtol=0)
    # torch contracts some products and sums, and here and there a level tips over.
    assert ((fused_x - x).abs() > 1e-6).float().mean() < 1e-3
