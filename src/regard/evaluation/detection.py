"""Average precision of found boxes, by pycocotools, in percent.

A box is right if it overlaps with a true box of its class that no surer box has taken. AP50: by half of their union;
AP: the mean of that from 50 % to 95 % in steps of 5. Precision is averaged over recall, then over the classes that
occur.

Shapes: K classes · O overlaps · R recalls · M boxes of an image · 4: x0, y0, x1, y1
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.boxes import Boxes
from regard.errors import RegardError


@dataclass(frozen=True)
class Found:
    """A box that was found in an image: what is in it, how sure that is, and where, in pixels."""

    label: str
    score: float
    box: tuple[float, float, float, float]  # x0, y0, x1, y1

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"box": [round(corner, 2) for corner in self.box]}


@dataclass(frozen=True)
class ClassPrecision:
    """One class: AP and AP50 in percent, None where no true box is of it; and how many true boxes are."""

    label: str
    ap: float | None
    ap50: float | None
    count: int


@dataclass(frozen=True)
class DetectionReport:
    ap: float
    ap50: float
    classes: tuple[ClassPrecision, ...]
    boxes: int
    images: int

    @property
    def signature(self) -> str:
        return f"boxes:{self.boxes}|images:{self.images}|pycocotools"


def average_precision(
    true: Boxes,
    found: Sequence[Sequence[Found]],
    sizes: Sequence[tuple[int, int]],
    classes: Sequence[str],
    most: int = 100,
) -> DetectionReport:
    """Of what was found in each image, at most so many boxes of it."""
    if not len(true.classes_X):
        raise RegardError(
            "There is nothing to score.",
            "The images have no boxes.",
            "Check the file of boxes, or raise data.held_out.",
        )
    number_of = {label: number for number, label in enumerate(classes)}
    truth: list[dict[str, Any]] = []
    for image in range(len(true)):
        for corners_4, kind in zip(*true.of(image), strict=True):
            truth.append(_entry(image, int(kind), corners_4.tolist()) | {"id": len(truth) + 1, "iscrowd": 0})
    guessed = [
        _entry(image, number_of[box.label], box.box) | {"score": box.score}
        for image, boxes in enumerate(found)
        for box in boxes
    ]
    precision_ORK = _precision(truth, guessed, sizes, len(classes), most)
    counts = np.bincount(true.classes_X, minlength=len(classes))
    scores = []
    for kind, label in enumerate(classes):
        ap, ap50 = (_mean(part) for part in (precision_ORK[..., kind], precision_ORK[0, :, kind]))
        scores.append(ClassPrecision(label, ap, ap50, int(counts[kind])))
    ap, ap50 = _mean(precision_ORK), _mean(precision_ORK[0])
    return DetectionReport(ap or 0.0, ap50 or 0.0, tuple(scores), len(truth), len(true))


def precision_notes(report: DetectionReport) -> list[str]:
    """The scores of every class, as lines for people."""
    widest = max(len(each.label) for each in report.classes)

    def shown(value: float | None) -> str:
        return f"{value:6.2f}" if value is not None else "     –"

    return [""] + [
        f"  {each.label:<{widest}}   AP50 {shown(each.ap50)}   AP {shown(each.ap)}   {each.count:,} boxes"
        for each in report.classes
    ]


def _entry(image: int, kind: int, corners: Sequence[float]) -> dict[str, Any]:
    x0, y0, x1, y1 = map(float, corners)
    box = [x0, y0, x1 - x0, y1 - y0]
    return {"image_id": image + 1, "category_id": kind + 1, "bbox": box, "area": box[2] * box[3]}


def _precision(
    truth: list[dict[str, Any]],
    guessed: list[dict[str, Any]],
    sizes: Sequence[tuple[int, int]],
    classes: int,
    most: int,
) -> NDArray[np.float64]:
    """[O, R, K]; -1 for a class without a true box."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does
        gold = COCO()
        gold.dataset = {
            "info": {},
            "images": [{"id": n + 1, "width": width, "height": height} for n, (width, height) in enumerate(sizes)],
            "annotations": truth,
            "categories": [{"id": kind + 1, "name": str(kind)} for kind in range(classes)],
        }
        gold.createIndex()
        if guessed:
            evaluation = COCOeval(gold, gold.loadRes(guessed), "bbox")
        else:  # which `loadRes` does not take
            nothing = COCO()
            nothing.dataset = gold.dataset | {"annotations": []}
            nothing.createIndex()
            evaluation = COCOeval(gold, nothing, "bbox")
        evaluation.params.maxDets = [most]
        evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e10]], ["all"]
        evaluation.evaluate()
        evaluation.accumulate()
    precision: NDArray[np.float64] = evaluation.eval["precision"][..., 0, 0]
    return precision


def _mean(precision: NDArray[np.float64]) -> float | None:
    counted = precision[precision > -1]
    return 100 * float(counted.mean()) if counted.size else None
