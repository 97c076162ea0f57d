"""What tasks over images share: reading them once, reporting what could not be read, and looking into layers."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from regard import console
from regard.data.image_sources import check_sources
from regard.data.splits import SPLITS, must_not_be_empty
from regard.errors import RegardError
from regard.settings import FileList, ImageTaskSettings, PictureTaskSettings
from regard.tasks.task import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from regard.data.image_cache import Images, ImageSplits
    from regard.data.images import Size
    from regard.data.scale import Scale, Scaled

EXAMPLES = 10  # images saved as files

P = TypeVar("P", bound=PictureTaskSettings)
I = TypeVar("I", bound=ImageTaskSettings)  # noqa: E741
SCALE = "scale.json"


class PictureTask(Task[P]):
    """A task that reads images of one size, with whatever belongs to them."""

    images: ImageSplits
    scale: Scale
    scaled: Scaled

    def prepare(self) -> None:
        """Read train, valid and test; what cannot be read is left out, counted and named in the run folder."""
        from regard.data.image_cache import left_out

        self.images = self.splits()
        self.remember_data(self.images.fingerprints)
        if self.images.skipped:
            self.folder.write_text("skipped_images.txt", "".join(line + "\n" for line in self.images.skipped))
            console.warn(f"{left_out(self.images.skipped)}. All are named in the run's skipped_images.txt.")
        must_not_be_empty({split: len(getattr(self.images, split)) for split in SPLITS}, "image", "images")
        self._save_examples()

    @property
    def example(self) -> Path:  # type: ignore[override]
        """A test image."""
        return min(self.folder.samples.glob("*.png"))

    @abstractmethod
    def splits(self) -> ImageSplits:
        """The images that the run is trained and measured on."""

    def measure_scale(self) -> None:
        """Mean and deviation of the training images, unless the run has them from another."""
        from regard.data.scale import Scale

        if not self.folder.has(SCALE):
            self.folder.write_json(SCALE, asdict(Scale.measured(self.images.train)))

    def restore_scale(self) -> None:
        from regard.data.scale import Scale

        content, channels = self.folder.read_json(SCALE, dict[str, list[float]]), self.settings.images.channels
        self.scale = Scale.from_json(content, channels, self.folder.path / SCALE)
        self.scaled = self.scale.on(self.hardware.device)

    def _save_examples(self) -> None:
        """A test image of each class, or of none, as files in the run's samples: something to try the verbs on."""
        import numpy as np

        from regard.explain.image_grid import save_image

        test = self.images.test
        number_of = {int(label): number for number, label in reversed(list(enumerate(test.labels_N)))}
        paths: list[Path] = []
        for label, number in sorted(number_of.items())[:EXAMPLES]:
            plain = re.sub(r"\W+", "-", self.images.classes[label]).strip("-") if label >= 0 else "image"
            path = self.folder.samples / f"{plain[:40] or f'class-{label + 1}'}.png"
            if path in paths:  # two names that differ in their signs alone
                path = self.folder.samples / f"class-{label + 1}.png"
            save_image(np.array(test.pixels_NHWC[number]), path)
            paths.append(path)

    def read(self, image: NDArray[np.uint8] | Path | str) -> NDArray[np.uint8]:
        """An image, a file or pixels [h, w] or [h, w, C], as the model sees images: [H, W, C]."""
        from regard.data.images import fit_pixels, read_image

        size = self.settings.images
        return read_image(Path(image), size) if isinstance(image, Path | str) else fit_pixels(image, size)

    def read_with_size(self, image: NDArray[np.uint8] | Path | str) -> tuple[NDArray[np.uint8], Size]:
        """The same, and the image's own width and height."""
        from regard.data.images import fit_pixels, read_with_size

        size = self.settings.images
        if isinstance(image, Path | str):
            return read_with_size(Path(image), size)
        return fit_pixels(image, size), (image.shape[1], image.shape[0])

    def read_file(self, path: Path | str) -> NDArray[np.uint8]:
        """An image file as the model sees images; a clear error where it cannot be read."""
        from regard.data.images import BadImage

        try:
            return self.read(Path(path))
        except BadImage as error:
            raise RegardError(f"The image '{path}' cannot be read.", error.reason, "Give another image.") from None

    def looked_at(self, path: Path | str) -> tuple[NDArray[np.uint8], Tensor]:
        """An image file, to trace: as the model sees images, [H, W, C], and scaled as its input is, [C, H, W]."""
        import torch

        file = Path(path)
        if not file.is_file():
            state = "It is a folder." if file.is_dir() else "There is no such file."
            raise RegardError(f"The image '{file}' cannot be read.", state, "Name one image.")
        pixels_HWC = self.read_file(file)
        return pixels_HWC, self.scaled.pixels(torch.from_numpy(pixels_HWC)[None].to(self.hardware.device))[0]


class ImageTask(PictureTask[I]):
    """A task over images with labels, or none."""

    needs_classes: ClassVar[bool] = False

    @classmethod
    def check_files(cls, settings: I) -> None:
        check_sources(settings.data)

    @classmethod
    def examine(cls, settings: I) -> tuple[dict[str, Any], list[str]]:
        from regard.data.survey import survey_images

        return survey_images(settings.data, settings.images, cls.needs_classes)

    def splits(self) -> ImageSplits:
        from regard.data.image_cache import image_splits

        return image_splits(self.settings.data, self.settings.images)

    def held_out(self, files: FileList | None, split: str, classes: Sequence[str] = ()) -> tuple[Images, str]:
        """The images to score, with labels among these classes where they are given; and what they are, in words."""
        from regard.data.image_cache import labelled_images

        if files:
            paths = [Path(str(name)).resolve() for name in files]
            named = ", ".join(path.name for path in paths)
            return labelled_images(paths, self.settings.data, self.settings.images, list(classes)), named
        splits = self.splits()
        self.notice_change(splits.fingerprints, split)
        if classes and splits.classes != list(classes):
            raise RegardError(
                f"The classes of the images are not those of '{self.folder.path}' any more.",
                f"They are now {', '.join(splits.classes[:20])}; the run knows {', '.join(classes[:20])}.",
                "Restore the images, or name others: regard evaluate RUN FOLDER.",
            )
        images: Images = getattr(splits, split)
        return images, split

    # ------------------------------------------------------------ looking into layers

    def probe(self, train: int, test: int, output: Path | None = None) -> dict[str, Any]:
        """How well a linear classifier can read the class of an image from each layer; drawn in the run folder."""
        from regard.evaluation.probe import probe_layers
        from regard.explain.probe import draw_probe

        splits = self.splits()
        with console.progress(0, "linear classifiers"):
            result = probe_layers(self._layer_features, splits.train, splits.test, self.settings.seed, train, test)
        title = f"A linear classifier on each layer of {self.folder.path.name}"
        picture = self.drawn(output or self.folder.plots / "probe.png", lambda path: draw_probe(result, path, title))
        return result | {"picture": picture}

    def _layer_features(self, pixels_NHWC: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
        """What each layer makes of each image, the mean of its tokens: [N, D] of the embedding, then of each block."""
        from regard.evaluation.probe import layer_features

        return layer_features(self._layers, self._forward_passes(pixels_NHWC))

    @property
    @abstractmethod
    def _layers(self) -> list[nn.Module]:
        """What makes the tokens, and every block."""

    @abstractmethod
    def _forward_passes(self, pixels_NHWC: NDArray[np.uint8]) -> Iterator[Tensor]:
        """The model applied to these images, some at a time."""
