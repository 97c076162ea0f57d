"""Write captions: images are sources, given as their bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.tokenizers import START, TextTokenizer
from regard.decoding.engines import Engines
from regard.decoding.hypothesis import Request, SearchRecord
from regard.decoding.text_search import TextSearch, Written, drawn_with
from regard.settings import CaptionDecoding


@dataclass(frozen=True)
class CaptionWriter:
    tokenizer: TextTokenizer
    settings: CaptionDecoding
    max_positions: int
    engines: Engines

    def write(
        self,
        pixels_NHWC: NDArray[np.uint8],
        seed: int = 1,
        best: int = 0,
        progress: Callable[[int], None] = lambda done: None,
        forced: Sequence[int] = (),
    ) -> list[list[Written]]:
        """For each image its `best` captions (0: as many as the beam is wide), best first.

        `forced`: tokens that must come first in all of them.
        """
        asked = [self._request(number, pixels_HWC, forced, seed) for number, pixels_HWC in enumerate(pixels_NHWC)]
        search = self._search(int(np.prod(pixels_NHWC.shape[1:])))
        found = dict(search.texts(asked, best or self.settings.beam, progress))
        return [found.get(number, []) for number in range(len(asked))]

    def record(self, pixels_HWC: NDArray[np.uint8], forced: Sequence[int] = ()) -> SearchRecord:
        """How the captions of an image were searched for."""
        return self._search(pixels_HWC.size).record(self._request(0, pixels_HWC, forced, seed=1))

    def _request(self, number: int, pixels_HWC: NDArray[np.uint8], forced: Sequence[int], seed: int) -> Request:
        limit = min(self.settings.max_tokens + len(forced), self.max_positions)
        uniform = drawn_with(self.settings, limit, seed, number)
        return Request(number, pixels_HWC.reshape(-1), START, limit, list(forced), uniform)

    def _search(self, longest: int) -> TextSearch:
        return TextSearch(self.settings, self.engines, self.tokenizer, longest, "captioning")
