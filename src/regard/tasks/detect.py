"""Detect: images with boxes in, a model that finds objects and names them out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard import console
from regard.data.box_sources import check_box_sources
from regard.errors import RegardError, UsageError
from regard.settings import (
    BoxData,
    DetectionSettings,
    DetectorModel,
    FileList,
    ImageTraining,
    MovingAugmentation,
    PatchTaskSettings,
    Problem,
)
from regard.tasks.images import PictureTask
from regard.tasks.task import About

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.box_batches import BoxBatch
    from regard.data.boxes import BoxedImages, BoxSplits
    from regard.data.image_cache import Images, ImageSplits
    from regard.data.images import Size
    from regard.decoding.suppression import Candidates
    from regard.evaluation.detection import DetectionReport, Found
    from regard.evaluation.metrics import Evaluation
    from regard.inside.subject import Subject
    from regard.models.detector import Detector

AT_ONCE = 128  # images looked at together
SURE = 0.3  # from this score on a box is shown
SCORED = 0.01  # from this score on a box counts in an evaluation, where all boxes are ordered by their scores
DRAWN = 12  # images of an evaluation


class DetectSettings(PatchTaskSettings):
    SELECT: ClassVar[tuple[str, ...]] = ("loss", "ap50", "ap")

    data: BoxData = BoxData()
    augmentation: MovingAugmentation = MovingAugmentation()
    model: DetectorModel = DetectorModel()
    detection: DetectionSettings = DetectionSettings()
    training: ImageTraining = ImageTraining()

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        if self.model.stages:
            yield Problem("a detector reads from one grid of patches, and model.stages (Swin) has several", "use []")
        if self.data.sample and self.data.boxes:
            yield Problem("data.sample has its own boxes", "leave data.boxes empty")

    def remarks(self) -> list[str]:
        idle = {"dense": ["queries"], "set": ["cells"]}[self.model.head]
        fields = type(self.model).model_fields
        return super().remarks() + [
            f'model.{name} has no effect with model.head = "{self.model.head}".'
            for name in idle
            if getattr(self.model, name) != fields[name].default
        ]


class Detect(PictureTask[DetectSettings]):
    """`regard.load("runs/scenes-detect").detect(["street.jpg"])`"""

    about = About(
        noun="a detector",
        verb="detect",
        metrics=("ap50", "ap", "loss"),
        starter="scenes-detect",
        advice="Edit data.sample, data.images and data.boxes, images.size and model.patch.",
    )
    Settings = DetectSettings
    reads = "images"

    model: Detector
    boxes: BoxSplits
    classes: list[str]

    # ------------------------------------------------------------ from data to a model

    @classmethod
    def check_files(cls, settings: DetectSettings) -> None:
        check_box_sources(settings.data)

    @classmethod
    def examine(cls, settings: DetectSettings) -> tuple[dict[str, Any], list[str]]:
        from regard.data.survey import survey_boxes

        return survey_boxes(settings.data, settings.images)

    def prepare(self) -> None:
        from regard.data.augmentation import Augmentation
        from regard.data.box_batches import BoxStream
        from regard.data.boxes import boxes_left_out

        super().prepare()
        for name, part in (("validation", self.boxes.valid), ("test", self.boxes.test)):
            if not len(part.given.classes_X):
                raise RegardError(
                    f"There are no boxes for the {name}.",
                    f"None of its {len(part):,} images has one.",
                    "Raise data.held_out, or name images with boxes for it (data.valid, data.test).",
                )
        if skipped := self.boxes.skipped:
            self.folder.write_text("skipped_boxes.txt", "".join(line + "\n" for line in skipped))
            console.warn(f"{boxes_left_out(skipped)}. All are named in the run's skipped_boxes.txt.")
        self.folder.write_json("labels.json", self.boxes.classes)
        self.measure_scale()
        self.restore()
        settings = self.settings
        self.augment = Augmentation(settings.augmentation, settings.images.height, settings.images.width)
        self.stream = BoxStream(self.boxes.train, settings.training.images_per_batch, settings.seed)

    def splits(self) -> ImageSplits:
        from regard.data.boxes import box_splits

        images, self.boxes = box_splits(self.settings.data, self.settings.images)
        return images

    def restore(self) -> None:
        from regard.data.labelled import check_labels

        labels = self.folder.read_json("labels.json", list[str])
        self.classes = check_labels(labels, self.folder.path / "labels.json", fewest=1)
        self.restore_scale()

    def build(self) -> Detector:
        from regard.models.detector import make_detector

        images = self.settings.images
        return make_detector(self.settings.model, images.height, images.width, images.channels, len(self.classes))

    def architecture(self) -> dict[str, Any]:
        return {
            "architecture": f"vit-{self.settings.model.head}-detector",
            "images": self.settings.images.model_dump(),
            "classes": self.classes,
            "mean": self.scale.mean,
            "deviation": self.scale.deviation,
        }

    def describe(self) -> str:
        images, train = self.settings.images, self.boxes.train
        steps = -(-len(train) // self.settings.training.images_per_batch)
        return (
            f"{len(train):,} images of {images.height} x {images.width} · {len(train.given.classes_X):,} boxes · "
            f"{len(self.classes)} class{'es' * (len(self.classes) > 1)} · an epoch is {steps:,} step{'s' * (steps > 1)}"
        )

    # ------------------------------------------------------------ training and scoring

    @property
    def captured(self) -> bool:
        """The matching of a set is computed by the CPU."""
        return self.settings.model.head == "dense"

    def loss(self, batch: BoxBatch) -> Tensor:
        from regard.data.geometry import move_boxes

        images = self.settings.images
        images_BCHW, _ = self.augment(batch.pixels_BHWC, batch.keys_B)
        boxes_BM4, there_BM = move_boxes(
            batch.boxes_BM4,
            batch.labels != batch.nothing,
            self.augment.motion(batch.keys_B),
            images.height,
            images.width,
        )
        return self._loss(self.scaled(images_BCHW), batch.labels.masked_fill(~there_BM, batch.nothing), boxes_BM4)

    def _loss(self, images_BCHW: Tensor, classes_BM: Tensor, boxes_BM4: Tensor) -> Tensor:
        from regard.models.detector import DenseDetector, SetDetector
        from regard.training.box_loss import dense_loss, set_loss

        logits_BLK, found_BL4 = self.model(images_BCHW)
        if isinstance(self.model, DenseDetector):
            cells = self.model.centres_L2, self.model.cell_2
            return dense_loss(logits_BLK, found_BL4, *cells, classes_BM, boxes_BM4)
        assert isinstance(self.model, SetDetector)
        return set_loss(logits_BLK, found_BL4, self.model.size_4, classes_BM, boxes_BM4)

    def _plain_loss(self, batch: BoxBatch) -> Tensor:
        """Of images as they are."""
        return self._loss(self.scaled.pixels(batch.pixels_BHWC), batch.labels, batch.boxes_BM4)

    def validate(self, step: int) -> dict[str, float]:
        return self._measure(self.boxes.valid)

    def test(self) -> dict[str, float]:
        return self._measure(self.boxes.test)

    def _measure(self, boxed: BoxedImages) -> dict[str, float]:
        """Loss per object; AP and AP50 in percent."""
        report = self._report(boxed, self._found(boxed.images, SCORED))
        return {"loss": self._mean_loss(boxed), "ap50": report.ap50, "ap": report.ap}

    def _mean_loss(self, boxed: BoxedImages) -> float:
        import numpy as np

        from regard.data.box_batches import box_batch
        from regard.training.measure import mean_loss

        numbers_N, most = np.arange(len(boxed)), max(1, boxed.seen.most)
        batches = (
            box_batch(boxed, part_B, np.zeros(len(part_B), np.int64), most)
            for part_B in np.split(numbers_N, range(AT_ONCE, len(boxed), AT_ONCE))
        )
        return mean_loss(self.model, batches, self._plain_loss, self.hardware, self.processes)

    def _report(self, boxed: BoxedImages, found: Sequence[Sequence[Found]]) -> DetectionReport:
        from regard.evaluation.detection import average_precision

        assert boxed.images.sizes_N2 is not None
        sizes = [(int(width), int(height)) for width, height in boxed.images.sizes_N2]
        return average_precision(boxed.given, found, sizes, self.classes, self.settings.detection.most)

    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        """AP and AP50, of every class too; and some images with what was found and what is there."""
        import json

        from regard.evaluation.detection import precision_notes
        from regard.evaluation.metrics import Evaluation, Score

        boxed = self._held_out(files, split)
        found = self._found(boxed.images, SCORED)
        report = self._report(boxed, found)
        scores = [
            Score("ap50", report.ap50, None, report.signature),
            Score("ap", report.ap, None, report.signature),
            Score("loss", self._mean_loss(boxed), None, "per object"),
        ]
        sure = [[box for box in boxes if box.score >= SURE] for boxes in found]
        picture = self.drawn(self.picture("boxes", files, split), lambda path: self._draw(boxed, sure, path))
        details = {"classes": [asdict(each) for each in report.classes], "boxes_picture": picture}
        notes = [*precision_notes(report), *(["", picture] if picture else [])]
        outputs = [
            json.dumps({"image": name, "found": [box.to_json() for box in boxes]})
            for name, boxes in zip(boxed.images.names, sure, strict=True)
        ]
        return Evaluation(scores, len(boxed), "images", outputs, details, notes)

    def _draw(self, boxed: BoxedImages, found: Sequence[Sequence[Found]], path: Path) -> None:
        from regard.explain.boxes import draw_beside_truth

        draw_beside_truth(boxed, found, self.classes, DRAWN, self.settings.images, path)

    def _held_out(self, files: FileList | None, split: str) -> BoxedImages:
        from regard.data.box_sources import sources_to_test
        from regard.data.boxes import boxed_images, boxes_left_out
        from regard.data.image_cache import images_to_test

        if not files:
            splits = self.splits()
            self.notice_change(splits.fingerprints, split)
            images: Images = getattr(splits, split)
            return boxed_images(images, self.settings.images, self.classes, split)[0]
        data, size = self.settings.data, self.settings.images
        sources = sources_to_test([Path(str(name)).resolve() for name in files], data)
        boxed, skipped = boxed_images(images_to_test(sources, data, size, []), size, self.classes)
        if skipped:
            console.warn(f"{boxes_left_out(skipped)}.")
        return boxed

    def next_commands(self) -> list[str]:
        path = self.folder.path
        return [f"regard evaluate {path}", f"regard detect {path} {self.example} -o found"]

    # ------------------------------------------------------------ a loaded run

    def detect(
        self, images: Sequence[NDArray[np.uint8] | Path | str] | Path | str, threshold: float = SURE
    ) -> list[list[Found] | str]:
        """What is in each image, a file or [H, W] or [H, W, C], the surest first, in pixels of that image.

        Where an image cannot be read, a text that says why.
        """
        import numpy as np

        from regard.data.image_cache import Images
        from regard.data.images import BadImage

        if not 0 <= threshold <= 1:
            raise UsageError(
                f"A threshold of {threshold:g} finds all or nothing.", "Scores are from 0 to 1.", f"Use {SURE}."
            )
        images = [images] if isinstance(images, Path | str) else images
        reasons: list[str] = []  # why an image cannot be read; "" if it can
        pixels, sizes = [], []
        for image in images:
            try:
                pixels_HWC, size = self.read_with_size(image)
                pixels.append(pixels_HWC)
                sizes.append(size)
                reasons.append("")
            except BadImage as error:
                reasons.append(error.reason)
        names, labels_N = [""] * len(pixels), np.full(len(pixels), -1)
        read = Images(np.stack(pixels), labels_N, names, np.array(sizes)) if pixels else None
        found = iter(self._found(read, threshold) if read is not None else [])
        return [reason or next(found) for reason in reasons]

    def subject(self, image: Path | str, box: int = 1) -> Subject:
        """An image and one of the boxes that are found in it, to trace: counted from 1, the surest first."""
        from regard.inside import image_subjects

        pixels_HWC, image_CHW = self.looked_at(image)
        found = self._proposals(image_CHW, self.read_with_size(image)[1])
        if box not in range(1, len(found) + 1):
            usable = f"1 to {len(found)}, the surest first" if len(found) > 1 else "1"
            raise UsageError(f"There is no box {box}.", f"{len(found)} can be explained here.", f"Use {usable}.")
        about = {"input_text": Path(image).name, "picture_HWC": pixels_HWC}
        return image_subjects.detected(self.model, image_CHW, self.classes, found, box - 1, **about)

    def _proposals(self, image_CHW: Tensor, size: Size) -> list[tuple[int, int]]:
        """Proposal and class of each box that is found in an image of this size; if none is sure, of the surest."""
        boxes_P4, scores_P, classes_P, kept_P, proposals_P = (
            each_BP[0].float().cpu().numpy() for each_BP in self._proposed(image_CHW[None])
        )
        _, there_P = self._in_own_pixels(boxes_P4, size)
        kept_P = kept_P > 0
        chosen_P = kept_P & there_P & (scores_P >= SURE)
        at_P = chosen_P.nonzero()[0] if chosen_P.any() else kept_P.nonzero()[0][:1]
        return [(int(proposals_P[at]), int(classes_P[at])) for at in at_P]

    def draw_found(self, image: Path | str, found: Sequence[Found], path: Path) -> None:
        """The image with what was found in it, as a PNG."""
        from regard.data.images import Form, read_image, read_with_size
        from regard.explain.boxes import colours_of, draw_boxes
        from regard.explain.image_grid import save_picture

        _, (width, height) = read_with_size(Path(image), Form(1, 1, True, "stretch"))
        whole_HWC = read_image(Path(image), Form(height, width, True, "stretch"))
        save_picture(draw_boxes(whole_HWC, found, colours_of(self.classes)), path)

    def _found(self, images: Images, threshold: float) -> list[list[Found]]:
        """In each image, in its own pixels."""
        import numpy as np

        from regard.evaluation.detection import Found

        assert images.sizes_N2 is not None
        listed: list[list[Found]] = []
        firsts = range(0, len(images.pixels_NHWC), AT_ONCE)
        for part_BP7 in self.processes.each(firsts, lambda first: self._candidates(images.pixels_NHWC, first)):
            for proposed_P7 in part_BP7:
                boxes_P4, (scores_P, classes_P, kept_P) = proposed_P7[:, :4], proposed_P7[:, 4:].T
                width, height = map(int, images.sizes_N2[len(listed)])
                own_P4, there_P = self._in_own_pixels(boxes_P4, (width, height))
                listed.append(
                    [
                        Found(self.classes[int(classes_P[at])], float(scores_P[at]), tuple(own_P4[at].tolist()))
                        for at in np.flatnonzero((kept_P > 0) & there_P & (scores_P >= threshold))
                    ]
                )
        return listed

    def _in_own_pixels(self, boxes_P4: NDArray[np.float32], size: Size) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Boxes in pixels of an image of this size, cut at its edges; and whether anything of each is in it."""
        from regard.data.boxes import cut_at_edges, place_back
        from regard.data.images import placement

        own_P4 = cut_at_edges(place_back(boxes_P4, placement(size, self.settings.images)), *size)
        return own_P4, (own_P4[:, 0] < own_P4[:, 2]) & (own_P4[:, 1] < own_P4[:, 3])

    def _candidates(self, pixels_NHWC: NDArray[np.uint8], first: int) -> NDArray[np.float32]:
        """What is proposed for some images, from the first on: boxes, scores, classes, and which to keep, [B, P, 7]."""
        import numpy as np
        import torch

        part_BHWC = torch.from_numpy(np.array(pixels_NHWC[first : first + AT_ONCE])).to(self.hardware.device)
        with torch.inference_mode():
            boxes_BP4, *others, _ = self._proposed(self.scaled.pixels(part_BHWC))
            return torch.cat([boxes_BP4.float(), torch.stack([one.float() for one in others], -1)], -1).cpu().numpy()

    def _proposed(self, images_BCHW: Tensor) -> Candidates:
        """What is proposed for some images, scaled as the model's input is."""
        import torch

        from regard.decoding.suppression import found

        settings = self.settings.detection
        self.model.eval()
        with torch.inference_mode(), self.hardware.autocast():
            logits_BLK, boxes_BL4 = self.model(images_BCHW)
            scores_BLK = self.model.scores(logits_BLK)
        with torch.inference_mode():
            overlap = settings.overlap if self.model.suppresses else None
            return found(boxes_BL4, scores_BLK, settings.most, overlap)
