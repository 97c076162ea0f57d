"""A palette: the few colours that pixels are told apart by, so that each is one token.

    code(x) = argmin_k |x − c_k|²            the nearest colour; of equally near ones, the first

Grey levels lie at equal distances; other colours are found by k-means among the images' own (iGPT has 512).
They are ordered from dark to bright.

Shapes: N images · H × W pixels · C channels · K colours · T = H·W pixels of an image, row by row
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from regard.errors import RegardError, first_problem
from regard.settings import Settings

MOST_SAMPLED = 1_000_000  # pixels that k-means sees
IMAGES_SAMPLED = 4096  # images that they are from, at most
MOST_COLOURS = 4096
AT_ONCE = 1024  # colours compared with the palette together: as many as stay in the cache
UNKNOWN = -1


class Colours(Settings):
    """What a run's palette.json holds."""

    colours: list[list[Annotated[int, Field(ge=0, le=255)]]]


class Palette:
    """Colours [K, C] from 0 to 255; `code` is a colour's index among them."""

    def __init__(self, colours_KC: NDArray[np.uint8]):
        if colours_KC.ndim != 2 or not len(colours_KC):
            raise ValueError(f"a palette needs colours of some channels, not an array of {colours_KC.shape}")
        self.colours_KC = np.ascontiguousarray(colours_KC, np.uint8)
        # The code of every colour there is, found when it is first met: an image is then looked up, not searched.
        self._known = np.full(256**self.channels, UNKNOWN, np.int16)

    @classmethod
    def grey(cls, levels: int) -> Palette:
        """This many levels from black to white, at equal distances; there are no more than 256."""
        return cls(np.unique(np.linspace(0, 255, levels).round().astype(np.uint8))[:, None])

    @classmethod
    def k_means(cls, pixels_NHWC: NDArray[np.uint8], colours: int, seed: int) -> Palette:
        """Colours that lie near those of the images; fewer than asked where the images have no more."""
        from sklearn.cluster import MiniBatchKMeans  # here: it takes half a second

        sample_PC = _sample(pixels_NHWC, seed)
        colours_KC = np.unique(sample_PC, axis=0)
        if len(colours_KC) > colours:
            # scikit-learn takes 32 bits; smaller seeds stay what they are.
            state = seed if seed < 2**32 else int(np.random.SeedSequence(seed).generate_state(1)[0])
            search = MiniBatchKMeans(colours, random_state=state, batch_size=16_384, n_init=1, init_size=20_000)
            search.fit(sample_PC.astype(np.float32))
            colours_KC = np.unique(search.cluster_centers_.round().clip(0, 255).astype(np.uint8), axis=0)
        return cls(colours_KC[np.argsort(_brightness(colours_KC), kind="stable")])

    @classmethod
    def from_json(cls, content: Any, channels: int, where: Path | str) -> Palette:
        """The palette of a run whose images have these channels; `where` it is written, for messages."""
        try:
            colours = Colours.model_validate(content).colours
        except ValidationError as error:
            raise _malformed(where, first_problem(error)) from None
        if not 1 <= len(colours) <= MOST_COLOURS or any(len(colour) != channels for colour in colours):
            raise _malformed(where, f"It is to have up to {MOST_COLOURS:,} colours of {channels} numbers each.")
        return cls(np.array(colours, np.uint8))

    def to_json(self) -> dict[str, Any]:
        return {"colours": self.colours_KC.tolist()}

    def __len__(self) -> int:
        return len(self.colours_KC)

    @property
    def channels(self) -> int:
        return self.colours_KC.shape[1]

    def codes(self, pixels_NHWC: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The nearest colour of every pixel, row by row: [N, T]."""
        if pixels_NHWC.shape[-1] != self.channels:
            raise ValueError(f"images of {pixels_NHWC.shape[-1]} channels, a palette of {self.channels}")
        numbers_NHW = np.zeros(pixels_NHWC.shape[:-1], np.int64)
        for channel in range(self.channels):  # a colour's number has its channels as digits
            numbers_NHW = numbers_NHW * 256 + pixels_NHWC[..., channel]
        numbers_NT = numbers_NHW.reshape(len(pixels_NHWC), -1)
        codes_NT = self._known[numbers_NT]
        if (new := np.unique(numbers_NT[codes_NT == UNKNOWN])).size:
            self._known[new] = self._nearest(new)
            codes_NT = self._known[numbers_NT]
        return codes_NT.astype(np.int64)

    def pixels(self, codes_NT: NDArray[np.integer[Any]], height: int, width: int) -> NDArray[np.uint8]:
        """Images of the colours that the codes stand for: [N, H, W, C]."""
        return self.colours_KC[codes_NT].reshape(-1, height, width, self.channels)

    def rgb(self, code: int) -> tuple[int, ...]:
        """A colour as red, green and blue, also where images are grey."""
        levels = self.colours_KC[code].tolist()
        return tuple(levels if len(levels) == 3 else levels * 3)

    def error(self, pixels_NHWC: NDArray[np.uint8]) -> float:
        """What the palette loses: the mean squared difference of a channel, from 0 to 255."""
        shown_NHWC = self.pixels(self.codes(pixels_NHWC), *pixels_NHWC.shape[1:3])
        return float(np.square(shown_NHWC.astype(np.float64) - pixels_NHWC).mean())

    def _nearest(self, numbers_P: NDArray[np.int64]) -> NDArray[np.int16]:
        """|x − c|² without |x|², which is the same for all: |c|² − 2 x·c. Whole numbers, so exact in float32."""
        powers_C = 256 ** np.arange(self.channels)[::-1]
        colours_CK = self.colours_KC.T.astype(np.float32)
        squares_K, twice_CK = np.square(colours_CK).sum(0), 2 * colours_CK
        nearest_P = np.empty(len(numbers_P), np.int16)
        for start in range(0, len(numbers_P), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            x_PC = (numbers_P[part, None] // powers_C % 256).astype(np.float32)
            nearest_P[part] = (squares_K - x_PC @ twice_CK).argmin(1)
        return nearest_P


def _malformed(where: Path | str, why: str) -> RegardError:
    return RegardError(f"'{where}' is not a palette.", why, "Restore the file, or train again.")


def _sample(pixels_NHWC: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """Pixels of the images, as many as k-means sees: [P, C]."""
    count, height, width, channels = pixels_NHWC.shape
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.permutation(count)[:IMAGES_SAMPLED])
    each = min(height * width, -(-MOST_SAMPLED // len(chosen)))
    return np.concatenate(
        [
            pixels_NHWC[image].reshape(-1, channels)[generator.permutation(height * width)[:each]]
            for image in chosen.tolist()
        ]
    )


def _brightness(colours_KC: NDArray[np.uint8]) -> NDArray[np.float64]:
    weights_C = np.array([0.299, 0.587, 0.114]) if colours_KC.shape[1] == 3 else np.ones(colours_KC.shape[1])
    return colours_KC @ weights_C
