"""Draw images pixel by pixel.

    p(image) = ∏_t p(pixel_t | the pixels before it)

Each image draws from its own stream of random numbers, made from (seed, its number): it does not depend on which
others are drawn beside it.

Shapes: N images · P pixels that are given · T pixels of an image
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from regard.decoding.engine import Engine
from regard.decoding.engines import Engines
from regard.decoding.hypothesis import Request
from regard.decoding.sampling import PROBABILITY, TOKEN, Draws
from regard.models.causal import Causal
from regard.settings import SamplingSettings


@dataclass(frozen=True)
class SampledPixels:
    """Codes of images, [N, T], and the log-probability of each pixel as it was drawn; 0 for one that was given."""

    codes_NT: NDArray[np.int64]
    log_p_NT: NDArray[np.float32]


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
    engines: Engines | None = None,
) -> SampledPixels:
    """Continue the pixels given, which may be none, to images of `length`; `first` is the number of the first."""
    engines = engines or Engines(model, device)
    engines.ready()
    count, given = given_NP.shape
    codes_NT = np.zeros((count, length), np.int64)
    codes_NT[:, :given] = given_NP
    p_NT = np.ones((count, length), np.float32)
    slots = settings.slots or engines.slots(count, 1, length)
    words = engines.source.to_logits.weight.shape[0]

    def make() -> Engine:
        # Every token is a colour, but <start>.
        search = Draws(slots, length, words, settings, never=[start], device=engines.device)
        return Engine(engines.rows(slots, 1, length, length, fixed=settings.slots > 0), search, slots, engines.device)

    def request(image: int) -> Request:
        uniform = np.random.default_rng([seed, first + image]).random(length, np.float32)[given:]
        reads = [start, *given_NP[image].tolist()]
        return Request(image, reads[:-1], reads[-1], length - given, uniform=uniform)

    next_N = np.full(count, given)
    engine = engines.get(("pixels", settings, length, start, slots), make)
    for step in engine.run(request(image) for image in range(count)):
        slots_X = [slot for slot, text in enumerate(step.texts) if text is not None]
        images = np.array([text.number for text in step.texts if text is not None], np.int64)
        codes_NT[images, next_N[images]] = step.report_BX[slots_X, TOKEN]
        p_NT[images, next_N[images]] = step.report_BX[slots_X, PROBABILITY]
        next_N[images] += 1
    return SampledPixels(codes_NT, np.log(p_NT))
