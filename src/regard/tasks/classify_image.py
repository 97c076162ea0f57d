"""Classify images: labelled images in, a model that names the class of an image out (ViT, Swin)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard import console
from regard.recipes import changed
from regard.settings import (
    AugmentationSettings,
    FileList,
    ImageClassifierTraining,
    ImageModel,
    ImageTaskSettings,
    PatchTaskSettings,
)
from regard.tasks.images import SCALE, ImageTask
from regard.tasks.task import About

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from regard.data.image_batches import ImageBatch
    from regard.data.image_cache import Images
    from regard.evaluation.classification import Guess
    from regard.evaluation.metrics import Evaluation
    from regard.inside.subject import Subject
    from regard.models.swin import Swin
    from regard.models.vision import VisionTransformer

AT_ONCE = 1024  # images classified together
TOP = 5


class ClassifyImageSettings(PatchTaskSettings, ImageTaskSettings):
    SELECT: ClassVar[tuple[str, ...]] = ("loss", "accuracy")

    augmentation: AugmentationSettings = AugmentationSettings()
    model: ImageModel = ImageModel()
    training: ImageClassifierTraining = ImageClassifierTraining()


class ClassifyImage(ImageTask[ClassifyImageSettings]):
    """`regard.load("runs/digits").classify(["three.png"])`"""

    about = About(
        noun="an image classifier",
        verb="classify",
        metrics=("accuracy", "loss"),
        starter="digits",
        advice="Edit data.sample or data.images, images.size and model.patch; it is for small images.",
    )
    Settings = ClassifyImageSettings
    needs_classes = True
    starts_from = ("classify-image",)
    handed_on = (SCALE,)  # the weights expect it
    reads = "images"  # what `classify` takes

    model: VisionTransformer | Swin
    classes: list[str]

    # ------------------------------------------------------------ from data to a model

    def prepare(self) -> None:
        from regard.data.augmentation import Augmentation
        from regard.data.image_batches import ImageStream
        from regard.data.image_cache import must_have_classes

        super().prepare()
        must_have_classes(self.images)
        self.folder.write_json("labels.json", self.images.classes)
        self.measure_scale()
        self.restore()
        settings = self.settings
        self.augment = Augmentation(settings.augmentation, settings.images.height, settings.images.width)
        self.stream = ImageStream(
            self.images.train, settings.training.images_per_batch, settings.seed, mixed=self.augment.mixes
        )

    def restore(self) -> None:
        from regard.data.labelled import check_labels

        labels = self.folder.read_json("labels.json", list[str])
        self.classes = check_labels(labels, self.folder.path / "labels.json")
        self.restore_scale()

    def build(self) -> VisionTransformer | Swin:
        """A ViT, or, where there are stages, a Swin Transformer."""
        from regard.models.swin import Swin
        from regard.models.vision import VisionTransformer

        images, model = self.settings.images, self.settings.model
        kind = Swin if model.stages else VisionTransformer
        return kind(model, images.height, images.width, images.channels, len(self.classes))

    def rehearsal(self) -> ImageBatch | None:
        from regard.data.augmentation import Augmentation
        from regard.data.image_batches import made_up_images
        from regard.data.scale import Scale
        from regard.models.vision import VisionTransformer

        if self.settings.model.stages:
            return None
        images, model = self.settings.images, changed(self.settings.model, layers=2)
        self.augment = Augmentation(self.settings.augmentation, images.height, images.width)
        self.scaled = Scale([0.5] * images.channels, [0.5] * images.channels).on(self.hardware.device)
        self.model = VisionTransformer(model, images.height, images.width, images.channels, classes=10)
        return made_up_images(images.height, images.width, images.channels)

    def architecture(self) -> dict[str, Any]:
        return {
            "architecture": "swin" if self.settings.model.stages else "vit",
            "images": self.settings.images.model_dump(),
            "classes": self.classes,
            "mean": self.scale.mean,
            "deviation": self.scale.deviation,
        }

    def describe(self) -> str:
        images, count = self.settings.images, len(self.images.train)
        colour = "colour" if images.colour else "grey"
        steps = -(-count // self.settings.training.images_per_batch)
        return (
            f"{count:,} {colour} images of {images.height} x {images.width} · {len(self.classes)} classes · "
            f"an epoch is {steps:,} step{'s' * (steps > 1)}"
        )

    # ------------------------------------------------------------ training and scoring

    def loss(self, batch: ImageBatch) -> Tensor:
        from regard.training.loss import cross_entropy, mixed_cross_entropy

        smoothing = self.settings.training.label_smoothing
        if not self.augment.mixes:
            images_BCHW, _ = self.augment(batch.pixels_BHWC, batch.keys_B, None, None)
            return cross_entropy(self.model(self.scaled(images_BCHW)), batch.labels, smoothing, batch.nothing)
        images_BCHW, share_B = self.augment(batch.pixels_BHWC, batch.keys_B, batch.others_BHWC, batch.other_keys_B)
        logits_BK = self.model(self.scaled(images_BCHW))
        return mixed_cross_entropy(logits_BK, batch.labels[:, 0], batch.other_labels_B, share_B, smoothing)

    def probabilities(self, pixels_NHWC: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Of every class for every image: [N, K]."""
        import numpy as np
        import torch

        self.model.eval()
        with torch.inference_mode():
            parts = self.processes.each(
                range(0, len(pixels_NHWC), AT_ONCE),
                lambda first: self._logits(pixels_NHWC, first).float().softmax(-1).cpu().numpy(),
            )
        return np.concatenate(parts)

    def _logits(self, pixels_NHWC: NDArray[np.uint8], first: int) -> Tensor:
        """Of some images, from the first on: [B, K]."""
        import numpy as np
        import torch

        part_BHWC = torch.from_numpy(np.array(pixels_NHWC[first : first + AT_ONCE])).to(self.hardware.device)
        with self.hardware.autocast():
            logits_BK: Tensor = self.model(self.scaled.pixels(part_BHWC))
        return logits_BK

    def _forward_passes(self, pixels_NHWC: NDArray[np.uint8]) -> Iterator[Tensor]:
        for first in range(0, len(pixels_NHWC), AT_ONCE):
            yield self._logits(pixels_NHWC, first)

    @property
    def _layers(self) -> list[nn.Module]:
        return self.model.layers

    def validate(self, step: int) -> dict[str, float]:
        return self._measure(self.images.valid)

    def test(self) -> dict[str, float]:
        return self._measure(self.images.test)

    def _measure(self, images: Images) -> dict[str, float]:
        """Loss in nats; accuracy, and of more than five classes that of the five likeliest, in percent."""
        from regard.evaluation.classification import class_metrics, top_accuracy

        p_NK = self.probabilities(images.pixels_NHWC)
        metrics = class_metrics(images.labels_N, p_NK)
        if len(self.classes) > TOP:
            metrics["accuracy_top5"] = top_accuracy(images.labels_N, p_NK, TOP)
        return metrics

    def evaluate(
        self, files: FileList | None = None, split: str = "test", baselines: bool = True, **options: Any
    ) -> Evaluation:
        """Accuracy, the accuracy of the five likeliest, the confusions and the worst mistakes as pictures."""
        from regard.evaluation.classification import baseline_notes, class_report, share_score, top_accuracy
        from regard.evaluation.metrics import Evaluation
        from regard.evaluation.support_vectors import support_vectors
        from regard.explain.confusion import draw_confusion
        from regard.explain.mistakes import draw_mistakes, worst_mistakes

        images, _ = self.held_out(files, split, self.classes)
        p_NK = self.probabilities(images.pixels_NHWC)
        report = class_report(images.labels_N, p_NK.argmax(-1), self.classes)
        scores = [*report.scores]
        if len(self.classes) > TOP:
            right = round(top_accuracy(images.labels_N, p_NK, TOP) / 100 * len(images))
            scores.insert(1, share_score("accuracy_top5", right, len(images)))
        worst = worst_mistakes(images, p_NK, self.classes)
        confusion = self.drawn(
            self.picture("confusion", files, split),
            lambda path: draw_confusion(report.counts_CC, self.classes, path),
        )
        mistakes = self.drawn(self.picture("mistakes", files, split), lambda path: draw_mistakes(worst, path))
        details = report.to_json() | {
            "confusion_picture": confusion,
            "mistakes_picture": mistakes,
            "mistakes": [mistake.to_json() for mistake in worst],
        }
        notes = [picture for picture in (confusion, mistakes) if picture]
        if baselines:
            with console.progress(0, "support vectors"):
                baseline = support_vectors(self.splits().train, images)
            details["baselines"] = [baseline.to_json()]
            notes = [*baseline_notes("On the raw pixels of the same images:", [baseline], report), "", *notes]
        outputs = [f"{name}\t{self.classes[n]}" for name, n in zip(images.names, p_NK.argmax(-1), strict=True)]
        return Evaluation(scores, len(images), "images", outputs, details, notes)

    def next_commands(self) -> list[str]:
        path, drawn = self.folder.path, any(hasattr(module, "trace") for module in self.model.modules())
        commands = [f"regard evaluate {path}", f"regard classify {path} {self.example}"]
        return [*commands, f"regard explain {path} {self.example} -o map.png"] if drawn else commands

    # ------------------------------------------------------------ a loaded run

    def classify(self, images: Sequence[NDArray[np.uint8] | Path | str] | Path | str) -> list[Guess | str]:
        """The class of each image, a file or [H, W] or [H, W, C]; where one cannot be read, a text that says why."""
        import numpy as np

        from regard.data.images import BadImage
        from regard.evaluation.classification import guesses

        images = [images] if isinstance(images, Path | str) else images
        reasons: list[str] = []  # why an image cannot be read; "" if it can
        pixels = []
        for image in images:
            try:
                pixels.append(self.read(image))
                reasons.append("")
            except BadImage as error:
                reasons.append(error.reason)
        named = iter(guesses(self.probabilities(np.stack(pixels)), self.classes) if pixels else [])
        return [reason or next(named) for reason in reasons]

    def subject(self, image: Path | str) -> Subject:
        """An image and its class, to trace."""
        from regard.inside import image_subjects

        pixels_HWC, image_CHW = self.looked_at(image)
        return image_subjects.image(
            self.model, image_CHW, self.classes, input_text=Path(image).name, picture_HWC=pixels_HWC
        )
