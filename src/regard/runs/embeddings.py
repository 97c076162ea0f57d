"""Trained word vectors; and the vectors of the tokens of any other run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.settings import FileList
from regard.data.tokenizers import SPECIALS, TextTokenizer
from regard.data.word_vectors import WordVectors
from regard.errors import RegardError, UsageError
from regard.evaluation.metrics import Evaluation, Score
from regard.runs.base import Run
from regard.tasks.embeddings import EmbeddingsTask
from regard.training.checkpoint import read_tensors
from regard.training.folder import RunFolder

# Where each kind of model keeps the embedding of its tokens; of a translator, the target's comes last.
TABLES = {
    "trunk.embedding.table.weight": "tokenizer.json",
    "source_embedding.table.weight": "source_tokenizer.json",
    "target_embedding.table.weight": "target_tokenizer.json",
}


class EmbeddingsRun(Run):
    """`regard.load("runs/words").vectors.nearest("king")`"""

    def __init__(self, path: Path | str, device: str = "auto"):
        super().__init__(path, device)
        self.vectors = vectors_of(path)

    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        """The loss of guessing held-out words from those around them."""
        if files:
            raise UsageError(
                "Word vectors are scored on their own held-out text only.",
                "Other files may hold other words.",
                "Leave the files out.",
            )
        task = EmbeddingsTask(self.config, self.folder, self.hardware)
        ids = task.data.valid if split == "valid" else task.data.held_out
        metrics = task.measure(self._load(task.build()), ids)
        return Evaluation([Score(name, value, None, split) for name, value in metrics.items()], len(ids), "tokens")


def vectors_of(place: Path | str) -> WordVectors:
    """The vectors of a run, or of a file in word2vec's text form."""
    place = Path(place)
    if place.is_file():
        return WordVectors.read(place)
    folder = RunFolder.open(place)
    if (folder.path / "vectors.txt").is_file():
        return WordVectors.read(folder.path / "vectors.txt")
    weights = read_tensors(folder.model)
    for name, file in TABLES.items():
        path = folder.path / file if (folder.path / file).is_file() else folder.path / "tokenizer.json"
        if name in weights and path.is_file():
            return _of_table(weights[name].float().numpy(), TextTokenizer.load(path))
    raise RegardError(
        f"The run '{place}' has no word vectors.",
        "Its training is not finished, or its model embeds no words.",
        "Go on with `regard train ... --resume`, or give another run.",
    )


def _of_table(table: Any, tokenizer: TextTokenizer) -> WordVectors:
    """One vector a word: of ' king' and 'king', the one that comes first; nothing for spaces and single bytes."""
    row_of: dict[str, int] = {}
    for token in range(len(SPECIALS), tokenizer.size):
        piece = tokenizer.piece(token).strip()
        if piece and not (piece.startswith("<0x") and piece.endswith(">")):
            row_of.setdefault(piece, token)
    return WordVectors(list(row_of), table[list(row_of.values())])
