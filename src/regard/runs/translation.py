"""A trained translator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.settings import FileList
from regard.data.pairs import PairSource, file_groups, not_empty, splits
from regard.decoding.translate import Translation, Translator
from regard.errors import RegardError
from regard.evaluation.metrics import Evaluation
from regard.runs.base import Run
from regard.tasks.same_data import notice_change
from regard.tasks.translate import Tokenizers, build, evaluate, make_translator


class TranslationRun(Run):
    """`regard.load("runs/demo").translate(["The dog sleeps."])`"""

    def __init__(self, path: Path | str, device: str = "auto"):
        super().__init__(path, device)
        tokenizers = Tokenizers.load(self.folder.path)
        if tokenizers is None:
            raise self._unfinished()
        self.tokenizers = tokenizers
        self.model = self._load(build(self.config.model, tokenizers))

    def translate(
        self,
        sentences: Sequence[str] | str,
        *,
        prefixes: Sequence[str] | None = None,
        seed: int = 1,
        **decoding: Any,
    ) -> list[str]:
        """The best translation of each sentence. Keywords override [decoding]: beam=1, temperature=0.8 …"""
        sentences = [sentences] if isinstance(sentences, str) else sentences
        return [found[0].text for found in self.translations(sentences, prefixes=prefixes, seed=seed, **decoding)]

    def translations(
        self,
        sentences: Sequence[str],
        *,
        prefixes: Sequence[str] | None = None,
        seed: int = 1,
        first_row: int = 0,
        **decoding: Any,
    ) -> list[list[Translation]]:
        """All hypotheses of each sentence with their scores, best first."""
        return self.translator(**decoding).translate(sentences, prefixes=prefixes, seed=seed, first_row=first_row)

    def translator(self, **decoding: Any) -> Translator:
        return make_translator(self._with("decoding", **decoding), self.model, self.tokenizers, self.hardware)

    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        """Translate held-out data and score it: the run's own, or the files given. Options are of [decoding]."""
        if files:
            groups = file_groups(files, ".", "the test data")
            for path in (path for group in groups for path in group):
                if not path.is_file():
                    raise RegardError(f"The file '{path}' is missing.", "It was named as test data.", "Check the path.")
            source = PairSource("test", self.config.data.model_copy(update={"sample": ""}), groups)
        else:
            source = splits(self.config.data)[split]
            notice_change(self.folder, {split: source.fingerprint}, split)
        pairs = list(not_empty(source))
        if not pairs:
            raise RegardError(
                "There is nothing to score.",
                f"The {split} data has no pair with text on both sides.",
                "Name other files.",
            )
        translations, scores = evaluate(self.translator(**options), pairs)
        return Evaluation(scores, len(pairs), "sentences", outputs=translations)
