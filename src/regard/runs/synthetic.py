"""A trained model of made-up sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.settings import FileList
from regard.data.synthetic import chance, held_out, vocabulary_size
from regard.errors import UsageError
from regard.evaluation.metrics import Evaluation, Score
from regard.models.causal import Causal
from regard.runs.base import Run
from regard.tasks.synthetic import measure


class SyntheticRun(Run):
    """`regard.load("runs/recall").evaluate().metrics["accuracy"]`"""

    def __init__(self, path: Path | str, device: str = "auto"):
        super().__init__(path, device)
        self.model = self._load(Causal(self.config.model, vocabulary_size(self.config.synthetic)))

    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        """Score the sequences that were kept for it: the same every time, and for every seed."""
        if files:
            raise UsageError(
                "A model of made-up sequences reads no files.",
                "It is scored on sequences that are made for it.",
                "Leave the files out.",
            )
        settings = self.config.synthetic
        batch = held_out(settings, split)
        level = chance(settings)
        what = {
            "loss": f"{split} · nats a label, over {batch.targets:,} labels",
            "accuracy": f"{split} · % of the labels; chance: {level:.2f}",
            "whole": f"{split} · % of the sequences with every label right",
        }
        found = measure(self.model, batch, self.config, self.hardware)
        scores = [Score(name, value, None, what[name]) for name, value in found.items()]
        details = {"chance": level, "kind": settings.kind, "length": settings.length, "vocabulary": settings.vocabulary}
        return Evaluation(scores, settings.test_sequences, "sequences", details=details)
