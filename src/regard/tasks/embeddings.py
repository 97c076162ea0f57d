"""The embeddings task: from plain text to one vector for every word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.settings import Config
from regard.data.batch import DataState
from regard.data.cbow_batches import Lexicon, WordBatch, WordStream
from regard.data.word_vectors import WordVectors
from regard.hardware import Hardware
from regard.models.cbow import Cbow, negative_sampling_loss
from regard.tasks.common import draw_curves
from regard.tasks.running_text import prepare
from regard.training.folder import RunFolder


class EmbeddingsTask:
    """What the trainer needs to know of word vectors."""

    def __init__(self, config: Config, folder: RunFolder, hardware: Hardware):
        self.config, self.folder, self.hardware = config, folder, hardware
        self.settings = config.embeddings
        self.data = prepare(config, folder)
        self.lexicon = Lexicon.of(self.data.train, self.data.tokenizer, self.settings.minimum_count)
        self.stream = self._stream(self.data.train)

    def build(self) -> Cbow:
        return Cbow(len(self.lexicon), self.settings.width, self.settings.window)

    def architecture(self) -> dict[str, Any]:
        """Row i of the tables belongs to word i of vectors.txt; row 0 to none."""
        return {"architecture": "cbow", "words": len(self.lexicon), "window": self.settings.window}

    def size(self) -> str:
        return f"{self.lexicon.counts.sum():,} words · {len(self.lexicon) - 1:,} different ones"

    def batches(self, state: DataState) -> Iterator[tuple[WordBatch, DataState]]:
        return self.stream.batches(state)

    def loss(self, model: nn.Module, batch: WordBatch) -> Tensor:
        logits = model(batch.words_BS, batch.left_BT, batch.right_BT, batch.labels_BT, batch.wrong_BK)
        return negative_sampling_loss(logits, batch.labels_BT, batch.wrong_BK, self.settings.negatives)

    def validate(self, model: nn.Module, step: int) -> dict[str, float]:
        return self.measure(model, self.data.valid)

    def draw(self) -> None:
        draw_curves(self.folder)

    def test(self, model: nn.Module) -> dict[str, float]:
        """The loss on held-out text. The vectors themselves are written beside the model."""
        assert isinstance(model, Cbow)
        vectors = model.input.detach().float().cpu().numpy()
        WordVectors(self.lexicon.words[1:], vectors[1:]).write(self.folder.path / "vectors.txt")
        return self.measure(model, self.data.held_out)

    def next_commands(self) -> list[str]:
        return [
            f"regard embeddings {self.folder.path} --nearest {self.lexicon.words[1]}",
            f"regard train RECIPE --embeddings {self.folder.path / 'vectors.txt'}",
        ]

    @torch.inference_mode()
    def measure(self, model: nn.Module, ids: NDArray[Any]) -> dict[str, float]:
        """The mean loss of the guessed words; contexts and wrong words are drawn the same every time."""
        model.eval()
        total, targets = 0.0, 0
        for batch in self._stream(ids).one_epoch():
            with self.hardware.autocast():
                total += self.loss(model, batch.to(self.hardware.device)).item()
            targets += batch.targets
        return {"loss": total / max(targets, 1)}

    def _stream(self, ids: NDArray[Any]) -> WordStream:
        return WordStream(ids, self.lexicon, self.settings, self.config.seed)
