"""Embeddings: plain text in, a vector for every word out (CBOW, word2vec)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.errors import RegardError
from regard.settings import EmbeddingSettings, FileList, RunningTextSettings, TrainingSettings
from regard.tasks.running_text import RunningText
from regard.tasks.task import About, must_have_no_files
from regard.training.folder import RunFolder

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.cbow_batches import Lexicon, WordBatch, WordStream
    from regard.data.tokenizers import TextTokenizer
    from regard.data.word_vectors import WordVectors
    from regard.evaluation.metrics import Evaluation
    from regard.models.cbow import Cbow

VECTORS = "vectors.txt"
# Where each kind of model has the embedding of its tokens; of a translator, the target's comes last.
TABLES = {
    "trunk.embedding.table.weight": "tokenizer.json",
    "source_embedding.table.weight": "source_tokenizer.json",
    "target_embedding.table.weight": "target_tokenizer.json",
}


@dataclass(frozen=True)
class _Known:
    """What is read back from config.json."""

    words: int


class EmbeddingsTaskSettings(RunningTextSettings):
    BATCH: ClassVar[str] = "embeddings.words_per_batch"

    embeddings: EmbeddingSettings = EmbeddingSettings()
    training: TrainingSettings = TrainingSettings()

    @property
    def width(self) -> int:
        return self.embeddings.width


class Embeddings(RunningText[EmbeddingsTaskSettings]):
    """`regard.load("runs/words").vectors.nearest("king")`"""

    about = About(
        noun="a set of word vectors",
        verb="embeddings",
        metrics=("loss",),
        starter="words",
        advice="Edit data.text; the rest works as it is for some 1 to 1,000 MB of text.",
    )
    Settings = EmbeddingsTaskSettings

    model: Cbow
    words: int  # with a vector, and one that stands for none

    # ------------------------------------------------------------ from data to a model

    def prepare(self) -> None:
        super().prepare()
        self.lexicon = self._lexicon(self.ids.train)
        self.words = len(self.lexicon)
        self.stream = self._stream(self.ids.train)

    def _lexicon(self, train: NDArray[Any]) -> Lexicon:
        from regard.data.cbow_batches import Lexicon

        return Lexicon.from_text(train, self.tokenizer, self.settings.embeddings.minimum_count)

    def _stream(self, ids: NDArray[Any]) -> WordStream:
        from regard.data.cbow_batches import WordStream

        return WordStream(ids, self.lexicon, self.settings.embeddings, self.settings.seed)

    def restore(self) -> None:
        super().restore()
        self.vectors = word_vectors(self.folder.path)
        self.words = len(self.vectors.words) + 1
        if self.folder.read_json("config.json", _Known).words != self.words:
            raise RegardError(
                f"config.json in '{self.folder.path}' does not fit the run.",
                f"{VECTORS} has {len(self.vectors.words):,} words; `words` is to be one more.",
                "Restore the file that was changed, or train again.",
            )

    def build(self) -> Cbow:
        from regard.models.cbow import Cbow

        return Cbow(self.words, self.settings.embeddings.width, self.settings.embeddings.window)

    def architecture(self) -> dict[str, Any]:
        """Row i of the tables belongs to word i of vectors.txt; row 0 to none."""
        return {"architecture": "cbow", "words": self.words, "window": self.settings.embeddings.window}

    def describe(self) -> str:
        return f"{self.lexicon.counts.sum():,} words · {len(self.lexicon) - 1:,} different ones"

    # ------------------------------------------------------------ training and scoring

    def loss(self, batch: WordBatch) -> Tensor:
        from regard.models.cbow import negative_sampling_loss

        logits = self.model(batch.words_BS, batch.left_BT, batch.right_BT, batch.labels, batch.wrong_BK)
        return negative_sampling_loss(logits, batch.labels, batch.wrong_BK, self.settings.embeddings.negatives)

    def measure(self, ids: NDArray[Any]) -> dict[str, float]:
        """The mean loss of the guessed words; contexts and wrong words are drawn the same every time."""
        from regard.training.measure import mean_loss

        return {"loss": mean_loss(self.model, self._stream(ids).in_order(), self.loss, self.hardware, self.processes)}

    def measured_how(self) -> str:
        return "nats per guessed word"

    def test(self) -> dict[str, float]:
        """The loss on held-out text. The vectors themselves are written beside the model."""
        from regard.data.word_vectors import WordVectors

        vectors = self.model.input.detach().float().cpu().numpy()
        self.folder.write_bytes(VECTORS, WordVectors(self.lexicon.words[1:], vectors[1:]).to_bytes())
        return super().test()

    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        must_have_no_files(
            files, "Word vectors are scored on their own held-out text only.", "Other files may hold other words."
        )
        from regard.data.running_text import text_fingerprints

        self.lexicon = self._lexicon(self._divided().train)
        if len(self.lexicon) != self.words or self._changed(text_fingerprints(self.settings.data), "train"):
            raise RegardError(
                f"The training data of '{self.folder.path}' has changed since the run was trained.",
                "Which words have a vector, and which row is whose, follows from it.",
                f"Restore the data. The vectors themselves are in '{self.folder.path / VECTORS}'.",
            )
        return super().evaluate(files, split)

    def next_commands(self) -> list[str]:
        return [
            f"regard embeddings {self.folder.path} --nearest {self.lexicon.words[1]}",
            f"regard train RECIPE --embeddings {self.folder.path / VECTORS}",
        ]


# ---------------------------------------------------------------- the vectors of any run


def word_vectors(source: Path | str) -> WordVectors:
    """The vectors of a run of any task, or of a file in word2vec's text form."""
    from regard.data.tokenizers import TextTokenizer
    from regard.data.word_vectors import WordVectors
    from regard.training.checkpoint import read_weights

    source = Path(source)
    if source.is_file():
        return WordVectors.read(source)
    folder = RunFolder.open(source)
    if (folder.path / VECTORS).is_file():
        return WordVectors.read(folder.checked(VECTORS))
    weights = read_weights(folder)
    for name, own in TABLES.items():
        file = own if (folder.path / own).is_file() else "tokenizer.json"
        if name in weights and (folder.path / file).is_file():
            return _vectors_of_words(weights[name].float().numpy(), TextTokenizer.load(folder.checked(file)))
    raise RegardError(
        f"The run '{source}' has no word vectors.",
        "Its training is not finished, or its model embeds no words.",
        "Continue it with `regard train ... --resume`, or give another run.",
    )


def _vectors_of_words(table: Any, tokenizer: TextTokenizer) -> WordVectors:
    """One vector per word: of ' king' and 'king', the one that comes first; nothing for spaces and single bytes."""
    from regard.data.tokenizers import SPECIALS
    from regard.data.word_vectors import WordVectors

    row_of: dict[str, int] = {}
    for token in range(len(SPECIALS), tokenizer.size):
        piece = tokenizer.piece(token).strip()
        if piece and not (piece.startswith("<0x") and piece.endswith(">")):
            row_of.setdefault(piece, token)
    return WordVectors(list(row_of), table[list(row_of.values())])
