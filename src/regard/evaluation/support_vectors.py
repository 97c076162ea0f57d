"""Support vectors on raw pixels: the baseline that an image model has to beat.

Each pixel is a feature, from 0 to 1; the kernel is a Gaussian whose width follows from the data, C = 10.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from regard.data.image_cache import Images
from regard.evaluation.classification import Baseline, accuracy, macro_f1

MOST = 5_000  # images to train on, and to test on: the time grows with the square


def support_vectors(train: Images, test: Images) -> Baseline:
    """Trained on the same images or, where there are many, on some of them."""
    from sklearn.svm import SVC

    started = time.perf_counter()
    (x_NF, y_N), (test_NF, true_N) = _features(train), _features(test)
    predicted_N = SVC(C=10.0, gamma="scale").fit(x_NF, y_N).predict(test_NF)
    subset = "" if len(train) <= MOST else f", {MOST:,} images"
    return Baseline(
        f"support vectors{subset}",
        accuracy(true_N, predicted_N),
        macro_f1(true_N, predicted_N),
        time.perf_counter() - started,
        x_NF.shape[1],
    )


def _features(images: Images) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The pixels of each image in one row, and the labels; of many images a few, drawn with a fixed seed."""
    drawn = np.random.default_rng(0).permutation(len(images))[:MOST]
    taken = images.take(np.sort(drawn))
    pixels_NF: NDArray[np.float32] = taken.pixels_NHWC.reshape(len(taken), -1).astype(np.float32)
    return pixels_NF / np.float32(255), taken.labels_N
