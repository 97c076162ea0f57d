"""The language-model task: from plain text to a model that continues it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.settings import Config
from regard.data.text_batches import NextTokenStream, TextBatch, documents, in_order
from regard.data.tokenizers import END, PAD, SPECIALS, START, TextTokenizer
from regard.decoding.generate import generate
from regard.hardware import Hardware
from regard.models.causal import Causal
from regard.tasks.running_text import RunningTextTask
from regard.training.folder import RunFolder
from regard.training.loss import cross_entropy


class LanguageTask(RunningTextTask[TextBatch]):
    """What the trainer needs to know of language models."""

    def __init__(self, config: Config, folder: RunFolder, hardware: Hardware):
        super().__init__(config, folder, hardware, starts=False)
        self.unseen = unseen(self.data.train, self.data.tokenizer.size)

    def make_stream(self) -> NextTokenStream:
        return NextTokenStream(self.data.train, self.rows, self.config.training.row_length, self.config.seed)

    def build(self) -> Causal:
        return Causal(self.config.model, self.data.tokenizer.size)

    def architecture(self) -> dict[str, Any]:
        return {
            "architecture": "causal",
            "vocabulary": self.data.tokenizer.size,
            "end_id": END,
            "unseen_ids": self.unseen,
        }

    def logits(self, model: nn.Module, batch: TextBatch) -> Tensor:
        return logits(model, batch, self.config)

    def measure(self, model: nn.Module, ids: NDArray[Any]) -> dict[str, float]:
        return measure(model, ids, self.data.tokenizer, self.config, self.hardware)

    def validate(self, model: nn.Module, step: int) -> dict[str, float]:
        assert isinstance(model, Causal)
        metrics = super().validate(model, step)
        self.folder.write_text(f"samples/step-{step}.txt", self._sample(model) + "\n")
        return metrics

    def next_commands(self) -> list[str]:
        return [
            f'regard generate {self.folder.path} --prompt "Once"',
            f"regard evaluate {self.folder.path}",
        ]

    def _sample(self, model: Causal) -> str:
        """How the model goes on after the first words of the validation text."""
        prompt = self.data.valid[:32].astype(int).tolist()
        settings = self.config.decoding.model_copy(update={"temperature": 0.8, "max_tokens": 100})
        found = generate(
            model,
            [prompt],
            settings,
            context=self.config.training.row_length,
            end=END,
            never=(PAD, START, *self.unseen),
            device=self.hardware.device,
        )
        tokens = [written.token for written in found]
        return " ⟶ ".join(self.data.tokenizer.decode([prompt, tokens]))


def unseen(ids: NDArray[Any], vocabulary: int) -> list[int]:
    """The ordinary tokens that do not occur, such as bytes that no character needed."""
    counts = np.zeros(vocabulary, np.int64)
    for start in range(0, len(ids), 1 << 24):
        counts += np.bincount(ids[start : start + (1 << 24)], minlength=vocabulary)
    return [int(token) for token in np.flatnonzero(counts == 0) if token >= len(SPECIALS)]


def logits(model: nn.Module, batch: TextBatch, config: Config) -> Tensor:
    """[B, T, W]; documents that share a row do not see each other if the settings say so."""
    if config.data.documents == "together":
        return model(batch.tokens_BT)
    return model(batch.tokens_BT, *documents(batch.tokens_BT))


@torch.inference_mode()
def measure(
    model: nn.Module, ids: NDArray[Any], tokenizer: TextTokenizer, config: Config, hardware: Hardware
) -> dict[str, float]:
    """Over every token but the first, each row of the context's length on its own.

    loss           mean, in nats a token
    perplexity     e to that
    bits_per_byte  all of it in bits, over the bytes that the predicted tokens stand for
    """
    model.eval()
    total, targets = 0.0, 0
    length = config.training.row_length
    for batch in in_order(ids, max(1, config.training.tokens_per_batch // length), length):
        on_device = batch.to(hardware.device)
        with hardware.autocast():
            total += cross_entropy(logits(model, on_device, config), on_device.labels_BT, ignore=PAD).item()
        targets += batch.targets
    size = int(tokenizer.byte_lengths()[np.asarray(ids[1:])].sum())
    loss = total / max(targets, 1)
    return {
        "loss": loss,
        "perplexity": math.exp(min(loss, 700)),
        "bits_per_byte": total / math.log(2) / max(size, 1),
    }
