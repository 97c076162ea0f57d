"""One picture of a probe: the accuracy of a linear classifier over the depth of the layer that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot as plt

from regard.explain.plots import save


def draw_probe(accuracies: Sequence[float], guessing: float, path: Path, title: str) -> None:
    """Accuracies in percent, that of the embedding (layer 0) first; `guessing` is what no look at the image gives."""
    figure, axis = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
    axis.plot(range(len(accuracies)), accuracies, marker="o", label="linear classifier")
    axis.axhline(guessing, color="grey", linestyle="--", label="always the commonest class")
    best = max(range(len(accuracies)), key=lambda layer: accuracies[layer])
    axis.annotate(
        f"{accuracies[best]:.1f}", (best, accuracies[best]), xytext=(0, 6), textcoords="offset points", ha="center"
    )
    axis.set_xlabel("layer (0: embedding)")
    axis.set_ylabel("accuracy, %")
    axis.set_xticks(range(len(accuracies)))
    axis.set_ylim(0, 105)
    axis.set_title(title, fontsize=10)
    axis.grid(alpha=0.3)
    axis.legend()
    save(figure, path)
