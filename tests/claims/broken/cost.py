from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from broken.ways import with_argument
from regard.layers import convolution


def circular(u_BDT: Tensor, h_DK: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(u_BDT) * torch.fft.rfft(h_DK), n=u_BDT.shape[-1])


def everywhere(patch: pytest.MonkeyPatch, module: Any) -> None:
    """Local attention whose window is the whole text."""
    patch.setattr(module, "WINDOW", 4096)


RECURRENT = ('model.mixer="gru"', 'model.cross="bahdanau"')
OUTCOMES = {"convolution": "depends", "training-cost": "depends"}
BROKEN = {
    "convolution": lambda patch, module: patch.setattr(convolution, "long_convolution", circular),
    "mixer-cost": everywhere,
    "training-cost": with_argument(models={"transformer": RECURRENT, "gru": RECURRENT}),
}
