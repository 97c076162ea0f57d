"""Draw images pixel by pixel: every row is at the same pixel, so there is nothing to wait for.

    p(image) = ∏_t p(pixel_t | the pixels before it)

Each image draws from its own stream of random numbers, made from (seed, its number): it does not depend on which
others are drawn beside it.

Shapes: N images · P pixels that are given · T pixels of an image · W tokens: the colours, and <start>
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding.sampling import draw, truncate
from regard.models.causal import Causal
from regard.settings import SamplingSettings


@dataclass(frozen=True)
class SampledPixels:
    """Codes of images, [N, T], and the log-probability of each pixel as it was drawn; 0 for one that was given."""

    codes_NT: NDArray[np.int64]
    log_p_NT: NDArray[np.float32]


@torch.inference_mode()
def draw_pixels(
    model: Causal,
    given_NP: NDArray[np.int64],
    length: int,
    settings: SamplingSettings,
    *,
    start: int,
    seed: int = 1,
    first: int = 0,
    device: torch.device | None = None,
) -> SampledPixels:
    """Continue the pixels given, which may be none, to images of `length`; `first` is the number of the first."""
    count, given = given_NP.shape
    numbers = range(first, first + count)
    uniform_NT = np.stack([np.random.default_rng([seed, number]).random(length, np.float32) for number in numbers])
    if settings.temperature == 0:
        uniform_NT = np.zeros_like(uniform_NT)  # the first, which is the likeliest
    uniform_TN = torch.from_numpy(uniform_NT.T.copy()).to(device)
    codes_NT = torch.full((count, length), start, device=device)
    codes_NT[:, :given] = torch.from_numpy(given_NP)
    log_p_NT = torch.zeros(count, length, device=device)
    state = model.start(count, length)
    starts_N1 = torch.full((count, 1), start, device=device)
    logits_NW = model.prefill(torch.cat([starts_N1, codes_NT[:, :given]], dim=1), state)
    for t in range(given, length):
        codes_NT[:, t], p_N = _draw(logits_NW, settings, start, uniform_TN[t])
        log_p_NT[:, t] = p_N.log()
        if t + 1 < length:
            logits_NW = model.step(codes_NT[:, t], state)
    return SampledPixels(codes_NT.cpu().numpy(), log_p_NT.cpu().numpy())


def _draw(logits_NW: Tensor, settings: SamplingSettings, start: int, uniform_N: Tensor) -> tuple[Tensor, Tensor]:
    """A colour for each image, never <start>; and its probability."""
    logits_NW = logits_NW.float()
    logits_NW[:, start] = -torch.inf
    # At temperature 0 the likeliest is taken, whatever is cut off behind it.
    return draw(*truncate(logits_NW, settings.temperature or 1.0, settings.top_k, settings.top_p), uniform_N)
