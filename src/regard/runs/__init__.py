"""Trained runs, loaded and ready to use: one kind for each task."""

from __future__ import annotations

from pathlib import Path

from regard.runs.base import Run
from regard.training.folder import RunFolder


def open_run(path: Path | str, device: str = "auto") -> Run:
    """The run in this folder, as what its task makes of it."""
    task = RunFolder.open(path).read_config().task
    # Imported one by one: each brings only what it needs.
    if task == "translate":
        from regard.runs.translation import TranslationRun

        return TranslationRun(path, device)
    if task == "language":
        from regard.runs.language import LanguageRun

        return LanguageRun(path, device)
    if task == "masked":
        from regard.runs.masked import MaskedRun

        return MaskedRun(path, device)
    if task == "classify-text":
        from regard.runs.classification import ClassificationRun

        return ClassificationRun(path, device)
    if task == "classify-image":
        from regard.runs.images import ImageClassificationRun

        return ImageClassificationRun(path, device)
    if task == "pixels":
        from regard.runs.pixels import PixelRun

        return PixelRun(path, device)
    if task == "synthetic":
        from regard.runs.synthetic import SyntheticRun

        return SyntheticRun(path, device)
    from regard.runs.embeddings import EmbeddingsRun

    return EmbeddingsRun(path, device)
