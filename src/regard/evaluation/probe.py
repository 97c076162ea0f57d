"""Linear probes: how well a class can be read from each layer by a linear classifier alone.

    accuracy_l = share of test images with  argmax_c (w_c · f_l(image) + b_c) = class,    f_l the features of layer l

The features are standardised, and the classifier is a logistic regression; the model itself is not changed. Of a
position in a game, every square of the board has a class of its own, and so a classifier.

Shapes: N images, or positions of games · D features, of a layer · B images of a batch · T positions · S squares
C classes
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
    if "squares" in result:
        what = f"Linear classifiers of every square on each layer, trained on {result['train_positions']:,} positions"
        tested = result["test_positions"]
    else:
        what = f"Linear classifiers on the mean of each layer's positions, trained on {result['train_images']:,} images"
        tested = result["test_images"]
    return f"{what}, tested on {tested:,}\n\n" + text_table(["layer", "accuracy, %", ""], rows, "<><")


def _mean(output_BTD: Tensor) -> Tensor:
    return output_BTD.float().mean(1)


@torch.inference_mode()
def layer_features(
    layers: Iterable[nn.Module], passes: Iterable[object], read: Callable[[Tensor], Tensor] = _mean
) -> list[NDArray[np.float32]]:
    """What is read of each layer's output, [N, D], while each of `passes` runs the model on a batch.

    `read` makes [B, D] of [B, T, D]; unless another is given, the mean over positions.
    """
    features: list[list[NDArray[np.float32]]] = []
    handles = []

    def watch(layer: nn.Module) -> None:
        means: list[NDArray[np.float32]] = []
        features.append(means)
        handles.append(layer.register_forward_hook(lambda *call: means.append(read(call[-1]).float().cpu().numpy())))

    try:
        for layer in layers:
            watch(layer)
        for _ in passes:
            pass
    finally:
        for handle in handles:
            handle.remove()
    return [np.concatenate(means) for means in features]


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


def probe_squares(
    train_ND_by_layer: Features,
    train_labels_NS: NDArray[np.int64],
    test_ND_by_layer: Features,
    test_labels_NS: NDArray[np.int64],
    device: torch.device,
) -> dict[str, Any]:
    """The accuracy of the classifiers of all squares, for each layer; and of each square, for the best layer."""
    right_LS = [
        100 * (_read_squares(train_ND, train_labels_NS, test_ND, device) == test_labels_NS).mean(0)
        for train_ND, test_ND in zip(train_ND_by_layer, test_ND_by_layer, strict=True)
    ]
    best = int(np.argmax([right_S.mean() for right_S in right_LS]))
    squares = range(train_labels_NS.shape[1])
    return {
        "train_positions": len(train_labels_NS),
        "test_positions": len(test_labels_NS),
        "commonest_class": float(np.mean([commonest(train_labels_NS[:, s], test_labels_NS[:, s]) for s in squares])),
        "layers": [{"layer": layer, "accuracy": float(right_S.mean())} for layer, right_S in enumerate(right_LS)],
        "best_layer": best,
        "squares": right_LS[best].tolist(),
    }


def _read_squares(
    train_ND: NDArray[np.float32],
    train_labels_NS: NDArray[np.int64],
    test_ND: NDArray[np.float32],
    device: torch.device,
) -> NDArray[np.int64]:
    """The class of each square in the test positions: [N, S].

    The same regression as above, ½‖w‖² + Σ cross-entropy, of all squares in one product: one by one they would take
    many times as long.
    """
    mean_D, deviation_D = train_ND.mean(0), train_ND.std(0)
    deviation_D = np.where(deviation_D > 0, deviation_D, 1)
    x_ND = torch.from_numpy((train_ND - mean_D) / deviation_D).to(device)
    labels_NS = torch.from_numpy(train_labels_NS).to(device)
    squares, classes = labels_NS.shape[1], int(labels_NS.max()) + 1
    weight_DX = torch.zeros(x_ND.shape[1], squares * classes, device=device, requires_grad=True)
    bias_X = torch.zeros(squares * classes, device=device, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight_DX, bias_X], max_iter=ITERATIONS, history_size=20, line_search_fn="strong_wolfe"
    )

    def objective() -> Tensor:
        optimizer.zero_grad()
        logits_NSC = (x_ND @ weight_DX + bias_X).view(-1, squares, classes)
        total = 0.5 * weight_DX.square().sum()
        total = total + nn.functional.cross_entropy(logits_NSC.flatten(0, 1), labels_NS.flatten(), reduction="sum")
        loss = total / labels_NS.numel()  # so that a step of 1 is about right
        loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(objective)  # type: ignore[arg-type]
    with torch.inference_mode():
        unseen_ND = torch.from_numpy((test_ND - mean_D) / deviation_D).to(device)
        logits_NSC = (unseen_ND @ weight_DX + bias_X).view(-1, squares, classes)
        guessed_NS: NDArray[np.int64] = logits_NSC.argmax(-1).cpu().numpy()
    return guessed_NS


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
