"""Pixels (iGPT): a causal language model over the pixels of images, which then draws images of its own.

Shapes: N images · H × W pixels · C channels · T = H·W pixels of an image · P pixels that are given · S samples
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import console
from regard.errors import RegardError, UsageError
from regard.recipes import changed
from regard.settings import (
    CausalModel,
    FileList,
    ImageTaskSettings,
    PixelSettings,
    PixelTraining,
    Problem,
    SamplingSettings,
)
from regard.tasks.images import ImageTask
from regard.tasks.task import About

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from regard.data.image_cache import Images
    from regard.data.palette import Palette
    from regard.data.pixel_batches import PixelBatch
    from regard.evaluation.metrics import Evaluation
    from regard.inside.subject import Subject
    from regard.models.causal import Causal

PALETTE = "palette.json"
MOST_VALIDATED = 1000  # images; a test takes all
PIXELS_AT_ONCE = 65_536  # of all images that are drawn, or read, side by side
MOST_SAMPLES = 10_000


class PixelTaskSettings(ImageTaskSettings):
    pixels: PixelSettings = PixelSettings()
    model: CausalModel = CausalModel()
    training: PixelTraining = PixelTraining()
    decoding: SamplingSettings = SamplingSettings()

    @property
    def row(self) -> tuple[str, int]:
        return "the product of both sides in images.size", self.images.height * self.images.width

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        yield from self.check_tokens("")
        if self.pixels.palette == "grey" and self.images.colour:
            yield Problem(
                'pixels.palette = "grey" needs images.colour = false', 'set that, or pixels.palette = "k-means"'
            )


class Pixels(ImageTask[PixelTaskSettings]):
    """`regard.load("runs/mnist-pixels").sample(25)`"""

    about = About(
        noun="a model of pixels",
        verb="generate",
        metrics=("bits_per_pixel", "loss"),
        starter="digits-pixels",
        advice="Edit data.sample or data.images, and images.size; every pixel is a token.",
    )
    Settings = PixelTaskSettings

    model: Causal
    palette: Palette

    # ------------------------------------------------------------ from data to a model

    def prepare(self) -> None:
        from regard.data.pixel_batches import PixelStream

        super().prepare()
        if not self.folder.has(PALETTE):
            self.folder.write_json(PALETTE, self._make_palette().to_json())
        self.restore()
        settings = self.settings
        self.stream = PixelStream(
            self.images.train,
            self.palette,
            settings.training.images_per_batch,
            settings.seed,
            settings.augmentation,
        )

    def _make_palette(self) -> Palette:
        from regard.data.palette import Palette

        asked, train = self.settings.pixels.colours, self.images.train
        if self.settings.pixels.palette == "grey":
            palette = Palette.grey(asked)
        else:
            console.say(f"Looking for {asked:,} colours in {len(train):,} images.")
            palette = Palette.k_means(train.pixels_NHWC, asked, self.settings.seed)
        if len(palette) < asked:
            console.warn(f"There are only {len(palette):,} colours; pixels.colours = {asked:,} asks for more.")
        return palette

    def restore(self) -> None:
        """The palette is made once, then read back, so that a code always stands for the same colour."""
        from regard.data.palette import Palette

        where, content = self.folder.path / PALETTE, self.folder.read_json(PALETTE, dict[str, list[list[int]]])
        self.palette = Palette.from_json(content, self.settings.images.channels, where)

    def build(self) -> Causal:
        """A token for each colour, and one for the start of an image."""
        from regard.models.causal import Causal

        return Causal(self.settings.model, len(self.palette) + 1)

    def architecture(self) -> dict[str, Any]:
        return {
            "architecture": "causal",
            "vocabulary": len(self.palette) + 1,
            "start_id": len(self.palette),
            "images": self.settings.images.model_dump(),
            "palette": self.palette.to_json()["colours"],
        }

    def describe(self) -> str:
        count = len(self.images.train)
        steps = -(-count // self.settings.training.images_per_batch)
        return (
            f"{count:,} images of {self.height} x {self.width} · {self.height * self.width:,} pixels each, "
            f"of {len(self.palette)} colours · an epoch is {steps:,} step{'s' * (steps > 1)}"
        )

    @property
    def height(self) -> int:
        return self.settings.images.height

    @property
    def width(self) -> int:
        return self.settings.images.width

    # ------------------------------------------------------------ training and scoring

    def hidden(self, batch: PixelBatch) -> Tensor:
        return self.model.hidden(batch.tokens_BT)

    def validate(self, step: int) -> dict[str, float]:
        return self._measure(self.images.valid.evenly(MOST_VALIDATED))

    def test(self) -> dict[str, float]:
        return self._measure(self.images.test)

    def _measure(self, images: Images) -> dict[str, float]:
        """Over every pixel, the first of an image included.

        loss            mean, in nats per pixel
        bits_per_pixel  the same in bits: what a perfect coder would need to store a pixel of the palette's colours.
                        With 256 grey levels nothing is lost by the palette, and these are "bits per dimension".
        """
        from regard.training.measure import measure

        training = self.settings.training
        at_once = max(1, training.images_per_batch // training.micro_batches)
        measured = measure(
            self.model, self._batches(images.pixels_NHWC, at_once), self.logits, self.hardware, self.processes
        )
        return {"loss": measured.loss, "bits_per_pixel": measured.loss / math.log(2)}

    def _batches(self, pixels_NHWC: NDArray[np.uint8], at_once: int) -> Iterator[PixelBatch]:
        from regard.data.pixel_batches import pixel_batch

        for start in range(0, len(pixels_NHWC), at_once):
            yield pixel_batch(self.palette.codes(pixels_NHWC[start : start + at_once]), start=len(self.palette))

    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        from regard.evaluation.metrics import Evaluation, Score

        images, what = self.held_out(files, split)
        if not len(images):
            raise RegardError("There is nothing to score.", f"There is no image in {what}.", "Name another file.")
        lost = self.palette.error(images.pixels_NHWC[: self._at_once])
        units = {"loss": "nats per pixel", "bits_per_pixel": f"bits per pixel of {len(self.palette)} colours"}
        scores = [Score(name, value, None, f"{what} · {units[name]}") for name, value in self._measure(images).items()]
        details = {"colours": len(self.palette), "palette_squared_error": lost}
        return Evaluation(scores, len(images), "images", details=details)

    def next_commands(self) -> list[str]:
        path = self.folder.path
        commands = [
            f"regard generate {path} --samples 25 -o samples.png",
            f"regard generate {path} --complete {self.example} --keep 0.5 -o completed.png",
            f"regard evaluate {path}",
        ]
        return [*commands, f"regard probe {path}"] if self.images.classes else commands

    # ------------------------------------------------------------ a loaded run

    def sample(self, count: int = 25, seed: int = 1, **decoding: Any) -> NDArray[np.uint8]:
        """Images that the model makes up: [N, H, W, C]. Keywords override [decoding]: temperature=0.9 …"""
        import numpy as np

        _check_count(count)
        return self._draw(np.zeros((count, 0), np.int64), seed, decoding)

    def complete(
        self,
        images: Sequence[NDArray[np.uint8] | Path | str] | Path | str,
        keep: float = 0.5,
        samples: int = 5,
        seed: int = 1,
        **decoding: Any,
    ) -> NDArray[np.uint8]:
        """The first rows of each image, a file or [H, W, C], and below them what the model adds: [N, S, H, W, C].

        What is kept has the palette's colours.
        """
        import numpy as np

        rows = self.kept_rows(keep)
        images = [images] if isinstance(images, Path | str) else images
        if not images:
            raise UsageError("There is no image to complete.", "None was given.", "Add --complete IMAGE.png.")
        pixels = [self.read_file(image) if isinstance(image, Path | str) else image for image in images]
        codes_NT = self.palette.codes(np.stack(pixels))
        _check_count(samples * len(images))
        given_NP = np.repeat(codes_NT[:, : rows * self.width], samples, axis=0)
        completed = self._draw(given_NP, seed, decoding)
        return completed.reshape(len(images), samples, *completed.shape[1:])

    def kept_rows(self, keep: float) -> int:
        """How many rows of an image a share of it is: at least one, and not all."""
        if not 0 < keep < 1 or self.height < 2:
            raise UsageError(
                f"{keep:g} of an image cannot be kept.",
                f"At least one of its {self.height} rows is kept, and at least one drawn.",
                "Use a share between 0 and 1: --keep 0.5.",
            )
        return min(max(1, round(keep * self.height)), self.height - 1)

    def _draw(self, given_NP: NDArray[np.int64], seed: int, decoding: dict[str, Any]) -> NDArray[np.uint8]:
        """Images that continue the pixels given: [N, H, W, C]. Image n depends on the seed and n alone."""
        from regard.decoding.pixels import draw_pixels

        if seed < 0:
            raise UsageError(f"The seed {seed} is negative.", "A seed is 0 or more.", "Use --seed 1.")
        settings = changed(self.settings.decoding, **decoding)
        codes_NT = draw_pixels(
            self.model,
            given_NP,
            self.height * self.width,
            settings,
            start=len(self.palette),
            seed=seed,
            engines=self.engines(settings.int8),
        ).codes_NT
        return self.palette.pixels(codes_NT, self.height, self.width)

    @property
    def _at_once(self) -> int:
        return max(1, PIXELS_AT_ONCE // (self.height * self.width))

    # ------------------------------------------------------------ looking into layers

    def subject(self, image: Path | str) -> Subject:
        """An image, and the model's prediction of each pixel, to trace."""
        from regard.inside import subjects

        pixels_HWC = self.read_file(image)
        start = len(self.palette)
        codes = self.palette.codes(pixels_HWC[None])[0].tolist()

        def colour(code: int) -> str:
            return "<start>" if code == start else "#" + "".join(f"{level:02x}" for level in self.palette.rgb(code))

        return subjects.causal(
            self.model,
            [start, *codes[:-1]],
            colour,
            [start],
            pixels=(self.height, self.width),
            input_text=Path(image).name,
            picture_HWC=self.palette.pixels(self.palette.codes(pixels_HWC[None]), self.height, self.width)[0],
        )

    @property
    def _layers(self) -> list[nn.Module]:
        return self.model.trunk.layers

    def _forward_passes(self, pixels_NHWC: NDArray[np.uint8]) -> Iterator[Tensor]:
        for batch in self._batches(pixels_NHWC, self._at_once):
            with self.hardware.autocast():
                yield self.model.trunk(batch.to(self.hardware.device).tokens_BT)


def _check_count(images: int) -> None:
    if not 1 <= images <= MOST_SAMPLES:
        raise UsageError(
            f"{images:,} images cannot be drawn.",
            f"One to {MOST_SAMPLES:,} are drawn at a time.",
            "Use --samples 25, or call again with another --seed.",
        )
