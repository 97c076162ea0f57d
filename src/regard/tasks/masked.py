"""The masked-language-model task: from plain text to a model that fills in what is hidden."""

from __future__ import annotations

import math
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.settings import Config
from regard.data.masked_batches import MaskedBatch, MaskedStream, Masking, in_order
from regard.data.text_batches import documents
from regard.data.tokenizers import END, PAD, START, TextTokenizer
from regard.hardware import Hardware
from regard.models.masked import Masked
from regard.tasks.running_text import RunningTextTask
from regard.training.folder import RunFolder
from regard.training.loss import cross_entropy


class MaskedTask(RunningTextTask[MaskedBatch]):
    """What the trainer needs to know of masked language models."""

    def __init__(self, config: Config, folder: RunFolder, hardware: Hardware):
        super().__init__(config, folder, hardware, starts=True)

    def make_stream(self) -> MaskedStream:
        masking = Masking(self.config.masking, self.data.tokenizer.size)
        length = self.config.training.row_length
        return MaskedStream(self.data.train, self.rows, length, self.config.seed, masking)

    def build(self) -> Masked:
        return Masked(self.config.model, vocabulary(self.data.tokenizer))

    def architecture(self) -> dict[str, Any]:
        size = vocabulary(self.data.tokenizer)
        return {"architecture": "masked", "vocabulary": size, "mask_id": size - 1, "start_id": START, "end_id": END}

    def logits(self, model: nn.Module, batch: MaskedBatch) -> Tensor:
        return logits(model, batch, self.config)

    def measure(self, model: nn.Module, ids: NDArray[Any]) -> dict[str, float]:
        return measure(model, ids, self.data.tokenizer, self.config, self.hardware)

    def next_commands(self) -> list[str]:
        return [
            f'regard fill {self.folder.path} "The [MASK] sat."',
            f"regard train trec --from {self.folder.path}",
        ]


def vocabulary(tokenizer: TextTokenizer) -> int:
    """The tokenizer's entries, and the mask after them."""
    return tokenizer.size + 1


def logits(model: nn.Module, batch: MaskedBatch, config: Config) -> Tensor:
    """[B, M, W]; documents that share a row do not see each other if the settings say so."""
    if config.data.documents == "together":
        return model(batch.tokens_BT, places_BM=batch.places_BM)
    return model(batch.tokens_BT, *documents(batch.tokens_BT), batch.places_BM)


@torch.inference_mode()
def measure(
    model: nn.Module, ids: NDArray[Any], tokenizer: TextTokenizer, config: Config, hardware: Hardware
) -> dict[str, float]:
    """Loss and perplexity of hidden tokens, and how many per cent of them are guessed at once."""
    model.eval()
    total, right, targets = 0.0, 0, 0
    training = config.training
    rows = max(1, training.tokens_per_batch // training.row_length)
    for batch in in_order(ids, rows, training.row_length, Masking(config.masking, tokenizer.size)):
        on_device = batch.to(hardware.device)
        with hardware.autocast():
            found = logits(model, on_device, config)
        total += cross_entropy(found, on_device.labels_BT, ignore=PAD).item()
        right += int(((found.argmax(-1) == on_device.labels_BT) & (on_device.labels_BT != PAD)).sum())
        targets += batch.targets
    loss = total / max(targets, 1)
    return {"loss": loss, "perplexity": math.exp(min(loss, 700)), "accuracy": 100 * right / max(targets, 1)}
