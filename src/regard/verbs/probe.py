"""`regard probe`: how well a linear classifier can read the class of an image from each layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from regard import console
from regard.data.image_cache import Images
from regard.errors import RegardError
from regard.evaluation.probe import commonest, probe
from regard.explain.probe import draw_probe
from regard.runs import open_run


def probe_layers(
    run: Path, train: int, test: int, output: Path | None, data: Path | None, device: str
) -> dict[str, Any]:
    """The accuracy of every layer, and a picture of them."""
    model: Any = open_run(run, device)
    if data is not None:
        model.moved(data)
    splits = model.splits()
    learned = _labelled(splits.train, train, model.config.seed)
    scored = _labelled(splits.test, test, model.config.seed)
    _must_have_classes(run, learned, scored)
    with console.progress(0, "linear classifiers"):
        accuracies = probe(
            model.layer_features(learned.pixels_NHWC),
            learned.labels_N,
            model.layer_features(scored.pixels_NHWC),
            scored.labels_N,
        )
    guessing = commonest(learned.labels_N, scored.labels_N)
    output = output or model.folder.plots / "probe.png"
    try:
        draw_probe(accuracies, guessing, output, f"A linear classifier on each layer of {model.folder.path.name}")
    except OSError as error:
        raise RegardError(f"Cannot write '{output}'.", f"{error}", "Choose a writable place with -o.") from None
    return {
        "run": str(run),
        "train_images": len(learned),
        "test_images": len(scored),
        "commonest_class": guessing,
        "layers": [{"layer": layer, "accuracy": accuracy} for layer, accuracy in enumerate(accuracies)],
        "best_layer": int(np.argmax(accuracies)),
        "picture": str(output.resolve()),
    }


def table(found: dict[str, Any]) -> str:
    """The same for people, a line a layer."""
    lines = [
        f"Linear classifiers on the mean of each layer's positions: {found['train_images']:,} images to learn from, "
        f"{found['test_images']:,} to score",
        "",
        f"{'layer':<16}{'accuracy, %':>12}",
    ]
    for each in found["layers"]:
        name = str(each["layer"]) if each["layer"] else "0 (embedding)"
        best = "   best" if each["layer"] == found["best_layer"] else ""
        lines.append(f"{name:<16}{each['accuracy']:>12.2f}{best}")
    lines += [f"{'commonest class':<16}{found['commonest_class']:>12.2f}", "", found["picture"]]
    return "\n".join(lines)


def _labelled(images: Images, most: int, seed: int) -> Images:
    """At most so many of the images that have a label, drawn at random but always the same."""
    numbers = np.flatnonzero(images.labels_N >= 0)
    return images.take(np.sort(np.random.default_rng(seed).permutation(numbers)[:most]))


def _must_have_classes(run: Path, learned: Images, scored: Images) -> None:
    classes = len(np.unique(learned.labels_N))
    if classes < 2 or not len(scored):
        why = "None of them has a label." if not classes else "They are all of one class."
        raise RegardError(
            f"The images of '{run}' have no classes to tell apart.",
            why if classes < 2 else "No test image has a label.",
            "Use images in a folder for each class, or with labels in a .csv.",
        )
