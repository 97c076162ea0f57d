"""What runs over running text share: finding the text that they are scored on."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from regard.settings import FileList
from regard.data.shards import cache_folder, tokenise_text
from regard.data.text import TextSource
from regard.errors import RegardError
from regard.evaluation.metrics import Evaluation, Score
from regard.runs.base import Run
from regard.tasks.running_text import divide, fingerprints
from regard.tasks.same_data import notice_change


class TextRun(Run):
    starts = False  # whether documents begin with <start>

    def __init__(self, path: Path | str, device: str = "auto"):
        super().__init__(path, device)
        self.tokenizer = self._tokenizer()

    @abstractmethod
    def measure(self, ids: NDArray[Any]) -> dict[str, float]:
        """The figures of a text."""

    @abstractmethod
    def how(self, what: str) -> str:
        """What the figures are of."""

    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        """Score held-out text: the run's own, or the files given."""
        ids, what = self._held_out(files, split)
        if len(ids) < 2:
            raise RegardError("There is nothing to score.", f"The {what} text is empty.", "Name another file.")
        scores = [Score(name, value, None, self.how(what)) for name, value in self.measure(ids).items()]
        return Evaluation(scores, len(ids), "tokens")

    def _held_out(self, files: FileList | None, split: str) -> tuple[NDArray[Any], str]:
        data = self.config.data
        if files:
            names = [name for item in files for name in ([item] if isinstance(item, str) else item)]
            source = TextSource.of(names, data.model_copy(update={"root": "."}))
            return tokenise_text(source, self.tokenizer, cache_folder(data.cache), self.starts), ", ".join(names)
        text = TextSource.of(data.text, data)
        notice_change(self.folder, fingerprints(self.config, text), split)
        parts = divide(self.config, text, self.tokenizer, self.starts)
        if split == "valid" or not len(parts.test):
            return parts.valid, "valid"
        return parts.test, "test"
