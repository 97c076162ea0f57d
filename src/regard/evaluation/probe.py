"""Linear probes: how well a class can be read from each layer by a linear classifier alone.

    accuracy_l = share of test images with  argmax_c (w_c · f_l(image) + b_c) = class,    f_l the features of layer l

The features are standardised, and the classifier is a logistic regression; the model itself is not changed.

Shapes: N images · D features, of a layer · B images of a batch · T positions
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

ITERATIONS = 300


@contextmanager
def means_of_layers(layers: Iterable[nn.Module]) -> Iterator[list[Tensor]]:
    """A list to which a forward pass adds the mean over positions, [B, D], of what each layer gives, [B, T, D]."""
    means: list[Tensor] = []
    handles = [layer.register_forward_hook(lambda *call: means.append(call[-1].float().mean(1))) for layer in layers]
    try:
        yield means
    finally:
        for handle in handles:
            handle.remove()


def features_of_layers(batches: Iterable[Sequence[Tensor]]) -> list[NDArray[np.float32]]:
    """The means of many batches, each a list over layers, joined: [N, D] for each layer."""
    found = [[mean_BD.float().cpu().numpy() for mean_BD in means] for means in batches]
    return [np.concatenate(of_layer) for of_layer in zip(*found, strict=True)]


def probe(
    train_ND_by_layer: Sequence[NDArray[np.float32]],
    train_labels_N: NDArray[np.int64],
    test_ND_by_layer: Sequence[NDArray[np.float32]],
    test_labels_N: NDArray[np.int64],
) -> list[float]:
    """The accuracy on the test images of a classifier of each layer's features, in percent."""
    return [
        _accuracy(train_ND, train_labels_N, test_ND, test_labels_N)
        for train_ND, test_ND in zip(train_ND_by_layer, test_ND_by_layer, strict=True)
    ]


def commonest(labels_N: NDArray[np.int64], test_labels_N: NDArray[np.int64]) -> float:
    """The accuracy of always naming the class that is commonest in training, in percent."""
    classes, counts = np.unique(labels_N, return_counts=True)
    return 100 * float((test_labels_N == classes[counts.argmax()]).mean())


def _accuracy(
    train_ND: NDArray[np.float32],
    train_labels_N: NDArray[np.int64],
    test_ND: NDArray[np.float32],
    test_labels_N: NDArray[np.int64],
) -> float:
    from sklearn.exceptions import ConvergenceWarning  # here: scikit-learn takes a second
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=ITERATIONS))
    # One thread: these are small products, in which many threads mostly wait for each other.
    with threadpool_limits(1), warnings.catch_warnings():
        # What is left to gain after so many steps does not show in the accuracy.
        warnings.simplefilter("ignore", ConvergenceWarning)
        classifier.fit(train_ND, train_labels_N)
    return 100 * float((classifier.predict(test_ND) == test_labels_N).mean())
