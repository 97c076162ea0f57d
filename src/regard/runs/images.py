"""A trained image classifier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard import console
from regard.settings import FileList
from regard.data.image_cache import Images, ImageSplits, image_splits, labelled_images
from regard.data.images import BadImage, fit_pixels, read_image
from regard.errors import RegardError
from regard.evaluation.classification import Guess, beside, class_report, guesses, share_score, top_accuracy
from regard.evaluation.metrics import Evaluation, Score
from regard.evaluation.probe import features_of_layers, means_of_layers
from regard.evaluation.support_vectors import support_vectors
from regard.explain.confusion import draw_confusion
from regard.explain.mistakes import draw_mistakes, worst_mistakes
from regard.runs.base import Run
from regard.tasks.classify_image import TOP, image_classifier, probabilities
from regard.tasks.images import Scale
from regard.tasks.same_data import notice_change

IMAGES_AT_ONCE = 512  # read and classified together


class ImageClassificationRun(Run):
    """`regard.load("runs/digits").classify(["three.png"])`"""

    def __init__(self, path: Path | str, device: str = "auto"):
        super().__init__(path, device)
        self.classes: list[str] = self.folder.read_json("labels.json")
        self.scale = Scale.of_run(path)
        self.model = self._load(image_classifier(self.config, len(self.classes)))

    def classify(self, images: Sequence[NDArray[np.uint8] | Path | str] | Path | str) -> list[Guess | str]:
        """The class of each image, a file or [H, W] or [H, W, C]; where one cannot be read, a text that says why."""
        images = [images] if isinstance(images, Path | str) else images
        found: list[Guess | str] = []
        pixels = []
        for image in images:
            try:
                pixels.append(self._read(image))
                found.append("")
            except BadImage as error:
                found.append(error.reason)
        if not pixels:
            return found
        good = iter(guesses(self.probabilities(np.stack(pixels)), self.classes))
        return [reason or next(good) for reason in found]

    def _read(self, image: NDArray[np.uint8] | Path | str) -> NDArray[np.uint8]:
        size = self.config.images
        return read_image(Path(image), size) if isinstance(image, Path | str) else fit_pixels(image, size)

    def probabilities(self, pixels_NHWC: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Of every class for every image: [N, K]."""
        return probabilities(self.model, pixels_NHWC, self.scale, self.hardware)

    def splits(self) -> ImageSplits:
        """The images that the run was trained and measured on."""
        return image_splits(self.config.data, self.config.images)

    def evaluate(
        self, files: FileList | None = None, split: str = "test", baselines: bool = True, **options: Any
    ) -> Evaluation:
        """Accuracy, the accuracy of the five likeliest, the confusions and the worst mistakes as pictures."""
        images, train = self._images(files, split), None
        if baselines:
            train = self.splits().train
        found_NK = self.probabilities(images.pixels_NHWC)
        report = class_report(images.labels_N, found_NK.argmax(-1), self.classes)
        scores = [*report.scores]
        if len(self.classes) > TOP:
            scores.insert(1, _top_score(images.labels_N, found_NK))
        confusion, mistakes = (self._picture(name, files, split) for name in ("confusion", "mistakes"))
        draw_confusion(report.counts_CC, self.classes, confusion)
        worst = worst_mistakes(images, found_NK, self.classes)
        draw_mistakes(worst, mistakes)
        details = report.to_json() | {
            "confusion_picture": str(confusion.resolve()),
            "mistakes_picture": str(mistakes.resolve()),
            "mistakes": [mistake.to_json() for mistake in worst],
        }
        notes = [str(confusion.resolve()), str(mistakes.resolve())]
        if train is not None:
            with console.progress(0, "support vectors"):
                baseline = support_vectors(train, images, len(self.classes))
            details["baselines"] = [baseline.to_json()]
            notes = [*beside("On the raw pixels of the same images:", [baseline], report), "", *notes]
        found_N = found_NK.argmax(-1)
        outputs = [f"{name}\t{self.classes[n]}" for name, n in zip(images.names, found_N, strict=True)]
        return Evaluation(scores, len(images), "images", outputs, details, notes)

    @torch.inference_mode()
    def layer_features(self, pixels_NHWC: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
        """What each layer makes of each image, the mean of its tokens: [N, D] of the patches, then of each block."""
        to_scale, found = self.scale.on(self.hardware.device), []
        for start in range(0, len(pixels_NHWC), IMAGES_AT_ONCE):
            part_BHWC = torch.from_numpy(np.array(pixels_NHWC[start : start + IMAGES_AT_ONCE]))
            with self.hardware.autocast(), means_of_layers(self.model.layers) as means:
                self.model(to_scale.pixels(part_BHWC.to(self.hardware.device)))
            found.append(means)
        return features_of_layers(found)

    def _images(self, files: FileList | None, split: str) -> Images:
        if files:
            paths = [Path(str(name)).resolve() for name in files]
            return labelled_images(paths, self.config.data, self.config.images, self.classes)
        splits = self.splits()
        notice_change(self.folder, splits.fingerprints, split)
        if splits.classes != self.classes:
            raise RegardError(
                f"The classes of the images are not those of '{self.folder.path}' any more.",
                f"They are now {', '.join(splits.classes[:20])}; the run knows {', '.join(self.classes[:20])}.",
                "Restore the images, or name others: regard evaluate RUN FOLDER.",
            )
        found: Images = getattr(splits, split)
        return found


def _top_score(labels_N: NDArray[np.int64], found_NK: NDArray[np.float32]) -> Score:
    count = len(labels_N)
    return share_score("accuracy_top5", round(top_accuracy(labels_N, found_NK, TOP) / 100 * count), count)
