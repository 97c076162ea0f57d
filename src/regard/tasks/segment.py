"""Segment images: images with masks in, a model that names the class of every pixel out (ViT, Segmenter, Swin).

Shapes: N, B images · H × W pixels that all images are brought to · h × w pixels of an image itself · K classes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.errors import RegardError
from regard.settings import (
    FileList,
    MaskData,
    MovingAugmentation,
    PatchTaskSettings,
    Problem,
    SegmentationModel,
    SegmentationTraining,
)
from regard.tasks.images import SCALE, PictureTask
from regard.tasks.task import About

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.image_cache import ImageSplits
    from regard.data.mask_batches import MaskBatch
    from regard.data.mask_cache import MaskedImages
    from regard.evaluation.metrics import Evaluation
    from regard.inside.subject import Subject
    from regard.models.segmenter import SegmentingSwin, SegmentingViT

VALUES = "mask_values.json"
LOGITS_AT_ONCE = 1 << 24
DRAWN = 12  # images in the picture of an evaluation


class SegmentSettings(PatchTaskSettings):
    SELECT: ClassVar[tuple[str, ...]] = ("loss", "miou", "accuracy")

    data: MaskData = MaskData()
    augmentation: MovingAugmentation = MovingAugmentation()
    model: SegmentationModel = SegmentationModel()
    training: SegmentationTraining = SegmentationTraining()

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        data = self.data
        if len(set(data.values)) != len(data.values):
            yield Problem("data.values names a number twice", "name each class once")
        if data.ignore in data.values:
            yield Problem(f"data.values and data.ignore both name {data.ignore}", "leave it out of one of them")
        if data.values and data.classes and len(data.values) != len(data.classes):
            yield Problem(
                f"data.classes names {len(data.classes)} classes, and data.values {len(data.values)} numbers",
                "name as many",
            )
        if self.model.head == "class-tokens" and self.model.mixer != "attention":
            yield Problem(
                f'model.head = "class-tokens" lets classes attend, which model.mixer = "{self.model.mixer}" does not',
                'use model.head = "linear", or model.mixer = "attention"',
            )


@dataclass(frozen=True)
class Segmentation:
    """The mask of an image in its own size, the numbers as in the masks trained on; and the share of each class."""

    mask_hw: NDArray[np.uint8]
    shares: dict[str, float]


class Segment(PictureTask[SegmentSettings]):
    """`regard.load("runs/scenes-segment").segment(["photo.jpg"])[0].mask_hw`"""

    about = About(
        noun="a segmenter of images",
        verb="segment",
        metrics=("miou", "accuracy", "loss"),
        starter="scenes-segment",
        advice='Set data.sample="" and data.images to a folder of images and masks; then images.size and model.patch.',
    )
    Settings = SegmentSettings
    starts_from = ("segment", "classify-image")
    handed_on = (SCALE,)  # the weights expect it

    model: SegmentingViT | SegmentingSwin
    classes: list[str]
    values: list[int]

    # ------------------------------------------------------------ from data to a model

    @classmethod
    def check_files(cls, settings: SegmentSettings) -> None:
        from regard.data.image_masks import check_mask_sources

        check_mask_sources(settings.data)

    @classmethod
    def examine(cls, settings: SegmentSettings) -> tuple[dict[str, Any], list[str]]:
        from regard.data.survey import survey_masks

        return survey_masks(settings.data, settings.images)

    def splits(self) -> ImageSplits:
        from regard.data.mask_cache import mask_splits

        return mask_splits(self.settings.data, self.settings.images)

    def prepare(self) -> None:
        from regard.data.augmentation import Augmentation
        from regard.data.mask_batches import MaskStream

        super().prepare()
        train: Any = self.images.train
        self.folder.write_json("labels.json", self.images.classes)
        self.folder.write_json(VALUES, train.values)
        self.measure_scale()
        self.restore()
        settings = self.settings
        self.augment = Augmentation(settings.augmentation, settings.images.height, settings.images.width)
        self.stream = MaskStream(train, settings.training.images_per_batch, settings.seed)

    def restore(self) -> None:
        from regard.data.labelled import check_labels

        path = self.folder.path
        self.classes = check_labels(self.folder.read_json("labels.json", list[str]), path / "labels.json")
        self.values = self.folder.read_json(VALUES, list[int])
        if len(self.values) != len(self.classes) or not all(0 <= value < 256 for value in self.values):
            raise RegardError(
                f"'{path / VALUES}' has not one number for each class.",
                f"The classes are {', '.join(self.classes[:20])}.",
                "Restore the file, or train again.",
            )
        self.restore_scale()

    def build(self) -> SegmentingViT | SegmentingSwin:
        """A ViT, or, where there are stages, a Swin Transformer."""
        from regard.models.segmenter import SegmentingSwin, SegmentingViT

        images, model = self.settings.images, self.settings.model
        kind = SegmentingSwin if model.stages else SegmentingViT
        return kind(model, images.height, images.width, images.channels, len(self.classes))

    def architecture(self) -> dict[str, Any]:
        return {
            "architecture": "swin-segmenter" if self.settings.model.stages else "vit-segmenter",
            "images": self.settings.images.model_dump(),
            "classes": self.classes,
            "values": self.values,
            "mean": self.scale.mean,
            "deviation": self.scale.deviation,
        }

    def describe(self) -> str:
        images, count = self.settings.images, len(self.images.train)
        steps = -(-count // self.settings.training.images_per_batch)
        return (
            f"{count:,} images of {images.height} x {images.width} with masks · {len(self.classes)} classes · "
            f"an epoch is {steps:,} step{'s' * (steps > 1)}"
        )

    # ------------------------------------------------------------ training and scoring

    def loss(self, batch: MaskBatch) -> Tensor:
        """Over the pixels whose class is known and still in the image after it has moved."""
        from regard.data.geometry import move_masks
        from regard.training.loss import cross_entropy

        images_BCHW, _ = self.augment(batch.pixels_BHWC, batch.keys_B)
        labels_BHW = move_masks(batch.labels.long(), self.augment.motion(batch.keys_B), batch.nothing)
        logits_BHWK = self.model(self.scaled(images_BCHW))
        return cross_entropy(logits_BHWK, labels_BHW, self.settings.training.label_smoothing, batch.nothing)

    def _parts(self, pixels_NHWC: NDArray[np.uint8]) -> list[slice]:
        """So many images at a time."""
        images = self.settings.images
        at_once = max(1, LOGITS_AT_ONCE // (images.height * images.width * len(self.classes)))
        return [slice(start, start + at_once) for start in range(0, len(pixels_NHWC), at_once)]

    def _logits(self, pixels_BHWC: NDArray[np.uint8]) -> Tensor:
        """Of every pixel: float32 [B, H, W, K]."""
        import numpy as np
        import torch

        self.model.eval()
        on_device_BHWC = torch.from_numpy(np.array(pixels_BHWC)).to(self.hardware.device)
        with torch.inference_mode(), self.hardware.autocast():
            logits_BHWK: Tensor = self.model(self.scaled.pixels(on_device_BHWC))
        return logits_BHWK.float()

    def guess(self, pixels_NHWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The class of every pixel: [N, H, W]."""
        import numpy as np

        parts = (self._logits(pixels_NHWC[part]) for part in self._parts(pixels_NHWC))
        return np.concatenate([logits_BHWK.argmax(-1).byte().cpu().numpy() for logits_BHWK in parts])

    def _counted(self, images: MaskedImages) -> tuple[NDArray[np.int64], float]:
        """How many pixels of each class were taken for each, image by image; and the mean loss in nats."""
        import numpy as np
        import torch

        from regard.data.mask_cache import NOTHING
        from regard.evaluation.segmentation import pixel_counts
        from regard.training.loss import cross_entropy

        def of_part(part: slice) -> NDArray[np.float64]:
            """The loss of some images, and then all their counts."""
            logits_BHWK, true_BHW = self._logits(images.pixels_NHWC[part]), images.classes(part)
            labels_BHW = torch.from_numpy(true_BHW).to(logits_BHWK.device).long()
            loss = cross_entropy(logits_BHWK, labels_BHW, ignore=NOTHING).item()
            counts_BKK = pixel_counts(true_BHW, logits_BHWK.argmax(-1).byte().cpu().numpy(), len(self.classes))
            return np.concatenate([[loss], counts_BKK.ravel()])

        parts = self.processes.each(self._parts(images.pixels_NHWC), of_part)
        counts = np.concatenate([part[1:] for part in parts]).astype(np.int64)
        total = sum(float(part[0]) for part in parts)
        return counts.reshape(-1, len(self.classes), len(self.classes)), total / max(int(counts.sum()), 1)

    def validate(self, step: int) -> dict[str, float]:
        return self._measure(self.images.valid)

    def test(self) -> dict[str, float]:
        return self._measure(self.images.test)

    def _measure(self, images: Any) -> dict[str, float]:
        """Mean IoU and the share of right pixels in percent, and the loss in nats."""
        from regard.evaluation.segmentation import mask_metrics

        return mask_metrics(*self._counted(images))

    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        """Mean IoU and pixel accuracy, every class, the mean mask as a baseline, and some masks as a picture."""
        import numpy as np

        from regard.evaluation.metrics import Evaluation
        from regard.evaluation.segmentation import mask_report, mean_iou, mean_mask, pixel_accuracy, pixel_counts
        from regard.explain.mask_drawing import save_comparison

        images = self._held_out(files, split)
        counts_NKK, _ = self._counted(images)
        report = mask_report(counts_NKK, self.classes)
        some = images.take(np.unique(np.linspace(0, len(images) - 1, DRAWN).astype(np.int64)))
        guessed_NHW = np.array(self.values, np.uint8)[self.guess(some.pixels_NHWC)]
        picture = self.drawn(
            self.picture("masks", files, split),
            lambda path: save_comparison(np.array(some.pixels_NHWC), np.array(some.masks_NHW), guessed_NHW, path),
        )
        train: Any = self.splits().train
        everywhere_NHW = np.broadcast_to(mean_mask(train, len(self.classes)), images.masks_NHW.shape)
        counts_KK = pixel_counts(images.classes(slice(None)), everywhere_NHW, len(self.classes)).sum(0)
        baseline = {"name": "mean mask", "miou": mean_iou(counts_KK), "accuracy": pixel_accuracy(counts_KK)}
        details = report.to_json() | {"masks_picture": picture, "baselines": [baseline]}
        beside = f"miou {baseline['miou']:.2f}, accuracy {baseline['accuracy']:.2f}"
        notes = ["", *report.table(), "", f"Mean mask, the most frequent class of every place: {beside}."]
        notes += ["", picture] if picture else []
        return Evaluation(report.scores, len(images), "images", details=details, notes=notes)

    def _held_out(self, files: FileList | None, split: str) -> MaskedImages:
        """The images to score, with masks of the classes of the run."""
        from regard.data.mask_cache import masked_images

        if files:
            paths = [Path(str(name)).resolve() for name in files]
            return masked_images(paths, self.settings.data, self.settings.images, self.values)
        splits = self.splits()
        self.notice_change(splits.fingerprints, split)
        images: Any = getattr(splits, split)
        if images.values != self.values:
            raise RegardError(
                f"The classes of the masks are not those of '{self.folder.path}' any more.",
                f"Their numbers are now {', '.join(map(str, images.values[:20]))}.",
                "Restore the masks, or name others: regard evaluate RUN FOLDER.",
            )
        return images  # type: ignore[no-any-return]

    def next_commands(self) -> list[str]:
        path = self.folder.path
        return [f"regard evaluate {path}", f"regard segment {path} {self.example} -o masks"]

    # ------------------------------------------------------------ a loaded run

    def segment(self, images: Sequence[NDArray[np.uint8] | Path | str] | Path | str) -> list[Segmentation | str]:
        """The mask of each image, a file or [h, w] or [h, w, C]; where one cannot be read, a text that says why."""
        from regard.data.images import BadImage

        found: list[Segmentation | str] = []
        for image in [images] if isinstance(images, Path | str) else images:
            try:
                found.append(self._segmented(image))
            except BadImage as error:
                found.append(error.reason)
        return found

    def subject(self, image: Path | str) -> Subject:
        """An image and the class with the highest mean logit over its pixels, to trace."""
        from regard.inside import image_subjects

        pixels_HWC, image_CHW = self.looked_at(image)
        return image_subjects.image(
            self.model, image_CHW, self.classes, input_text=Path(image).name, picture_HWC=pixels_HWC
        )

    def _segmented(self, image: NDArray[np.uint8] | Path | str) -> Segmentation:
        """Classes are chosen in the size of the image itself, from logits in between those of the model's pixels."""
        import numpy as np

        from regard.data.image_masks import unfit
        from regard.data.images import fit_pixels, read_with_size

        settings = self.settings.images
        if isinstance(image, Path | str):
            pixels_HWC, size = read_with_size(Path(image), settings)
        else:
            pixels_HWC, size = fit_pixels(image, settings), (image.shape[1], image.shape[0])
        logits_KHW = self._logits(pixels_HWC[None])[0].permute(2, 0, 1).contiguous().cpu().numpy()
        class_hw = np.concatenate(
            [part_Krw.argmax(0).astype(np.uint8) for part_Krw in unfit(logits_KHW, size, settings)]
        )
        counts_K = np.bincount(class_hw.ravel(), minlength=len(self.classes))
        shares = {label: float(count / class_hw.size) for label, count in zip(self.classes, counts_K, strict=True)}
        return Segmentation(np.array(self.values, np.uint8)[class_hw], shares)
