"""Scores of masks, from how many pixels of each class were taken for each class.

    IoU of a class = right / (truly of it + taken for it − right)          the area shared, of the area of both
    mean IoU       = the mean over the classes that occur, true or predicted
    accuracy       = the share of pixels that are right

Pixels that count for nothing are in none of these. Intervals are of other test images of the same kind: images are
drawn again and again from those that there are (bootstrap).

Shapes: N images · H × W pixels · K classes · S samples
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.mask_cache import NOTHING, MaskedImages
from regard.errors import RegardError
from regard.evaluation.metrics import Score

SAMPLES = 1000
MOST_COUNTS = 50_000_000  # numbers; of more, no interval is computed
MOST_MASKS = 20_000  # training masks that the mean mask is taken from
AT_ONCE = 256

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class ClassIou:
    """In percent; None where no pixel is of the class or taken for it. `share`: of the true pixels."""

    label: str
    iou: float | None
    recall: float | None
    share: float


@dataclass(frozen=True)
class MaskReport:
    scores: list[Score]
    classes: list[ClassIou]

    def to_json(self) -> dict[str, Any]:
        return {"classes": [asdict(each) for each in self.classes]}

    def table(self) -> list[str]:
        """Class by class, as lines for people."""
        width = max(len("class"), *(min(len(each.label), 24) for each in self.classes))
        lines = [f"  {'class':<{width}}     IoU  recall  of all pixels"]
        for each in self.classes:
            numbers = [f"{value:6.1f}" if value is not None else "     –" for value in (each.iou, each.recall)]
            lines.append(f"  {each.label[:24]:<{width}}  {numbers[0]}  {numbers[1]}  {each.share:11.1f} %")
        return lines


def pixel_counts(true_NHW: NDArray[np.uint8], guessed_NHW: NDArray[np.uint8], classes: int) -> Counts:
    """How many pixels of each class (rows) were taken for each (columns), image by image: [N, K, K]."""
    counts_NKK = np.zeros((len(true_NHW), classes, classes), np.int64)
    for counts_KK, true_HW, guessed_HW in zip(counts_NKK, true_NHW, guessed_NHW, strict=True):
        real_HW = true_HW != NOTHING
        both = true_HW[real_HW].astype(np.int64) * classes + guessed_HW[real_HW]
        counts_KK += np.bincount(both, minlength=classes * classes).reshape(classes, classes)
    return counts_NKK


def ious(counts_KK: NDArray[Any]) -> NDArray[np.float64]:
    """Of every class, nan where it does not occur; of many tables at once, [..., K]."""
    right = np.diagonal(counts_KK, axis1=-2, axis2=-1)
    either = counts_KK.sum(-1) + counts_KK.sum(-2) - right
    return np.divide(right, either, out=np.full(right.shape, np.nan), where=either > 0)


def mean_iou(counts_KK: NDArray[Any]) -> float:
    """In percent."""
    return 100 * float(np.nanmean(ious(counts_KK)))


def pixel_accuracy(counts_KK: NDArray[Any]) -> float:
    """In percent."""
    return 100 * float(np.trace(counts_KK) / max(counts_KK.sum(), 1))


def mask_metrics(counts_NKK: Counts, loss: float) -> dict[str, float]:
    counts_KK = counts_NKK.sum(0)
    return {"miou": mean_iou(counts_KK), "accuracy": pixel_accuracy(counts_KK), "loss": loss}


def mask_report(counts_NKK: Counts, labels: Sequence[str]) -> MaskReport:
    """Mean IoU and pixel accuracy with their intervals, and every class."""
    counts_KK = counts_NKK.sum(0)
    total = int(counts_KK.sum())
    if not total:
        raise RegardError(
            "There is nothing to score.", "No pixel of these masks has a class.", "Check the masks, or data.ignore."
        )
    intervals = _intervals(counts_NKK)
    signature = f"images:{len(counts_NKK)}|pixels:{total}|interval:bootstrap95"
    true_K, iou_K = counts_KK.sum(1), ious(counts_KK)
    classes = [
        ClassIou(
            label,
            100 * float(iou_K[k]) if np.isfinite(iou_K[k]) else None,
            100 * float(counts_KK[k, k] / true_K[k]) if true_K[k] else None,
            100 * float(true_K[k] / total),
        )
        for k, label in enumerate(labels)
    ]
    scores = [
        Score("miou", mean_iou(counts_KK), intervals[0], signature),
        Score("accuracy", pixel_accuracy(counts_KK), intervals[1], signature),
    ]
    return MaskReport(scores, classes)


def _intervals(counts_NKK: Counts) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """In which mean IoU and accuracy lie for 95 % of the samples."""
    images, classes = counts_NKK.shape[:2]
    if images < 2 or max(images, SAMPLES) * classes * classes > MOST_COUNTS:
        return None, None
    drawn_SN = np.random.default_rng(1).multinomial(images, np.full(images, 1 / images), SAMPLES)
    sampled_SKK = (drawn_SN @ counts_NKK.reshape(images, -1)).reshape(SAMPLES, classes, classes)
    mean_S = 100 * np.nanmean(ious(sampled_SKK), axis=-1)
    right_S = 100 * np.trace(sampled_SKK, axis1=1, axis2=2) / np.maximum(sampled_SKK.sum((1, 2)), 1)
    low_high = [tuple(np.percentile(values_S, [2.5, 97.5]).tolist()) for values_S in (mean_S, right_S)]
    return low_high[0], low_high[1]


def mean_mask(train: MaskedImages, classes: int) -> NDArray[np.uint8]:
    """The baseline: for every place the class that is most frequent there in training masks, [H, W]."""
    counts_KHW = np.zeros((classes, *train.masks_NHW.shape[1:]), np.int64)
    chosen = np.unique(np.linspace(0, len(train) - 1, MOST_MASKS).astype(np.int64))
    for start in range(0, len(chosen), AT_ONCE):
        classes_NHW = train.classes(chosen[start : start + AT_ONCE])
        for number in range(classes):
            counts_KHW[number] += (classes_NHW == number).sum(0)
    return counts_KHW.argmax(0).astype(np.uint8)
