"""A trained model, loaded from its run folder and ready to use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.config import Config, FileList, validate
from regard.data.pairs import PairSource, file_groups, not_empty, splits
from regard.decoding.translate import Translation, Translator
from regard.errors import RegardError
from regard.evaluation.metrics import Score
from regard.hardware import Hardware
from regard.models.seq2seq import Seq2Seq
from regard.tasks.translate import Tokenizers, build, evaluate, make_translator
from regard.training.checkpoint import load_weights, read_tensors
from regard.training.folder import RunFolder


class Run:
    """`regard.load("runs/demo").translate(["The dog sleeps."])`"""

    def __init__(self, path: Path | str, device: str = "auto"):
        self.folder = RunFolder.open(path)
        self.config: Config = self.folder.read_config()
        tokenizers = Tokenizers.load(self.folder.path)
        if tokenizers is None:
            raise RegardError(
                f"The run '{path}' has no tokenizer yet.",
                "Training stopped before it was made.",
                "Go on with `regard train ... --resume`.",
            )
        self.tokenizers = tokenizers
        self.hardware = Hardware.choose(self._with("system", device=device).system)
        self.model: Seq2Seq = build(self.config.model, tokenizers)
        try:
            load_weights(self.model, read_tensors(self.folder.model))
        except ValueError as error:
            raise RegardError(
                f"The weights in '{path}' do not fit its config.toml.",
                f"{error}",
                "Restore the file that was changed.",
            ) from None
        self.model.to(self.hardware.device).eval()

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

    def _with(self, section: str, **changes: Any) -> Config:
        """The run's config with some settings of a section changed, and checked again."""
        tree = self.config.model_dump()
        tree[section] |= changes
        return validate(tree)

    def evaluate(
        self, files: FileList | None = None, split: str = "test", **decoding: Any
    ) -> tuple[list[str], list[Score]]:
        """Translate held-out data and score it: the run's own, or the files given."""
        if files:
            groups = file_groups(files, ".", "the test data")
            for path in (path for group in groups for path in group):
                if not path.is_file():
                    raise RegardError(f"The file '{path}' is missing.", "It was named as test data.", "Check the path.")
            source = PairSource("test", self.config.data.model_copy(update={"sample": ""}), groups)
        else:
            source = splits(self.config.data)[split]
        pairs = list(not_empty(source))
        if not pairs:
            raise RegardError(
                "There is nothing to score.",
                f"The {split} data has no pair with text on both sides.",
                "Name other files.",
            )
        return evaluate(self.translator(**decoding), pairs)
