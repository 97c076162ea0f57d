"""Linear probing: accuracy of a linear classifier for each layer that it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.explain.figures import save


def draw_probe(result: dict[str, Any], path: Path, title: str) -> None:
    """The result of `evaluation.probe.probe_layers`: one point per layer, the embedding first."""
    accuracies = [layer["accuracy"] for layer in result["layers"]]
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    axis = figure.subplots()
    axis.plot(range(len(accuracies)), accuracies, marker="o", label="linear classifier")
    axis.axhline(result["commonest_class"], color="grey", linestyle="--", label="always the most frequent class")
    best = result["best_layer"]
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
