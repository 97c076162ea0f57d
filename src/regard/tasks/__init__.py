"""Tasks: what joins data, model and scores. The trainer knows none of them."""

from __future__ import annotations

from typing import Any

from regard.settings import Task


def task_class(task: Task) -> Any:
    """What the trainer trains; imported one by one, since each brings only what it needs."""
    if task == "translate":
        from regard.tasks.translate import TranslationTask

        return TranslationTask
    if task == "language":
        from regard.tasks.language import LanguageTask

        return LanguageTask
    if task == "masked":
        from regard.tasks.masked import MaskedTask

        return MaskedTask
    if task == "classify-text":
        from regard.tasks.classify import ClassificationTask

        return ClassificationTask
    if task == "classify-image":
        from regard.tasks.classify_image import ImageClassificationTask

        return ImageClassificationTask
    if task == "pixels":
        from regard.tasks.pixels import PixelTask

        return PixelTask
    if task == "synthetic":
        from regard.tasks.synthetic import SyntheticTask

        return SyntheticTask
    from regard.tasks.embeddings import EmbeddingsTask

    return EmbeddingsTask
