"""Linear probes: how well a class can be read from each layer by a linear classifier alone.

    accuracy_l = share of test images with  argmax_c (w_c · f_l(image) + b_c) = class,    f_l the features of layer l

The features are standardised, and the classifier is a logistic regression; the model itself is not changed.

Shapes: N images · D features, of a layer · B images of a batch · T positions
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.image_cache import Images
from regard.errors import RegardError
from regard.tables import text_table

ITERATIONS = 300

Features = Sequence[NDArray[np.float32]]  # of each layer: [N, D]


def probe_layers(
    features_of: Callable[[NDArray[np.uint8]], Features],
    train: Images,
    test: Images,
    seed: int,
    most_train: int = 5000,
    most_test: int = 5000,
) -> dict[str, Any]:
    """The accuracy of a classifier of each layer, embedding first, and that of always naming the commonest class."""
    train, test = _labelled(train, most_train, seed), _labelled(test, most_test, seed)
    _must_have_classes(train, test)
    accuracies = probe(features_of(train.pixels_NHWC), train.labels_N, features_of(test.pixels_NHWC), test.labels_N)
    return {
        "train_images": len(train),
        "test_images": len(test),
        "commonest_class": commonest(train.labels_N, test.labels_N),
        "layers": [{"layer": layer, "accuracy": accuracy} for layer, accuracy in enumerate(accuracies)],
        "best_layer": int(np.argmax(accuracies)),
    }


def probe_table(result: dict[str, Any]) -> str:
    """The result of `probe_layers` for people, one line per layer."""
    rows = [
        [
            str(each["layer"]) if each["layer"] else "0 (embedding)",
            f"{each['accuracy']:.2f}",
            "best" if each["layer"] == result["best_layer"] else "",
        ]
        for each in result["layers"]
    ]
    rows.append(["commonest class", f"{result['commonest_class']:.2f}", ""])
    return (
        f"Linear classifiers on the mean of each layer's positions, trained on {result['train_images']:,} images, "
        f"tested on {result['test_images']:,}\n\n" + text_table(["layer", "accuracy, %", ""], rows, "<><")
    )


@torch.inference_mode()
def layer_features(layers: Iterable[nn.Module], passes: Iterable[object]) -> list[NDArray[np.float32]]:
    """The mean over positions of what each layer gives, [N, D], while each of `passes` runs the model on a batch."""
    features: list[list[NDArray[np.float32]]] = []
    handles = []

    def watch(layer: nn.Module) -> None:
        means: list[NDArray[np.float32]] = []
        features.append(means)
        handles.append(layer.register_forward_hook(lambda *call: means.append(_mean(call[-1]))))

    try:
        for layer in layers:
            watch(layer)
        for _ in passes:
            pass
    finally:
        for handle in handles:
            handle.remove()
    return [np.concatenate(means) for means in features]


def _mean(output_BTD: Tensor) -> NDArray[np.float32]:
    return output_BTD.float().mean(1).cpu().numpy()


def probe(
    train_ND_by_layer: Features,
    train_labels_N: NDArray[np.int64],
    test_ND_by_layer: Features,
    test_labels_N: NDArray[np.int64],
) -> list[float]:
    """The accuracy on the test images of a classifier of each layer's features, in percent."""
    from sklearn.exceptions import ConvergenceWarning  # here: scikit-learn takes a second
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    accuracies = []
    # One thread: these are small products, in which many threads mostly wait for each other.
    with threadpool_limits(1), warnings.catch_warnings():
        # What is left to gain after the last iteration does not show in the accuracy.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for train_ND, test_ND in zip(train_ND_by_layer, test_ND_by_layer, strict=True):
            classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=ITERATIONS))
            classifier.fit(train_ND, train_labels_N)
            accuracies.append(100 * float((classifier.predict(test_ND) == test_labels_N).mean()))
    return accuracies


def commonest(train_labels_N: NDArray[np.int64], test_labels_N: NDArray[np.int64]) -> float:
    """The accuracy of always naming the class that is commonest in training, in percent."""
    classes, counts = np.unique(train_labels_N, return_counts=True)
    return 100 * float((test_labels_N == classes[counts.argmax()]).mean())


def _labelled(images: Images, most: int, seed: int) -> Images:
    """At most this many of the images that have a label, drawn at random but always the same."""
    numbers = np.flatnonzero(images.labels_N >= 0)
    return images.take(np.sort(np.random.default_rng(seed).permutation(numbers)[:most]))


def _must_have_classes(train: Images, test: Images) -> None:
    classes = len(np.unique(train.labels_N))
    if classes > 1 and len(test):
        return
    why = "No test image has a label." if classes > 1 else "They are all of one class."
    raise RegardError(
        "The images have no classes to tell apart.",
        why if classes else "None of them has a label.",
        "Use images in a folder for each class, or with labels in a .csv.",
    )
