"""The synthetic task: a causal model learns made-up sequences, to see what its mixer can remember."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from regard.settings import Config, SyntheticSettings
from regard.data.batch import DataState
from regard.data.synthetic import SyntheticStream, chance, held_out, spell, vocabulary_size
from regard.data.text_batches import TextBatch
from regard.hardware import Hardware
from regard.models.causal import Causal
from regard.tasks.common import draw_curves
from regard.training.folder import RunFolder
from regard.training.loss import cross_entropy, training_loss

SHOWN = 5  # sequences in a sample


class SyntheticTask:
    """What the trainer needs to know of made-up sequences."""

    def __init__(self, config: Config, folder: RunFolder, hardware: Hardware):
        self.config, self.folder, self.hardware = config, folder, hardware
        self.settings = config.synthetic
        self.stream = SyntheticStream(self.settings, rows(config), config.seed)
        self.valid = held_out(self.settings, "valid")

    def build(self) -> Causal:
        return Causal(self.config.model, vocabulary_size(self.settings))

    def architecture(self) -> dict[str, Any]:
        return {
            "architecture": "causal",
            "vocabulary": vocabulary_size(self.settings),
            "synthetic": self.settings.model_dump(),
        }

    def size(self) -> str:
        settings = self.settings
        return (
            f"{settings.kind} · {settings.vocabulary} symbols · sequences of {settings.length:,} tokens · "
            f"chance {chance(settings):.3g} %"
        )

    def batches(self, state: DataState) -> Iterator[tuple[TextBatch, DataState]]:
        return self.stream.batches(state)

    def loss(self, model: nn.Module, batch: TextBatch) -> Tensor:
        settings = self.config.training
        return training_loss(lambda part: model(part.tokens_BT), batch, settings.label_smoothing, settings.consistency)

    def validate(self, model: nn.Module, step: int) -> dict[str, float]:
        loss, guesses_BT = read(model, self.valid, rows(self.config), self.hardware)
        self.folder.write_text(f"samples/step-{step}.txt", sample(self.settings, self.valid, guesses_BT))
        return figures(loss, guesses_BT, self.valid)

    def test(self, model: nn.Module) -> dict[str, float]:
        return measure(model, held_out(self.settings, "test"), self.config, self.hardware)

    def draw(self) -> None:
        draw_curves(self.folder)

    def next_commands(self) -> list[str]:
        return [
            f"regard evaluate {self.folder.path}",
            f"regard train {self.folder.path} seed={self.config.seed + 1} --out {self.folder.path}-again",
        ]


def rows(config: Config) -> int:
    """Sequences in a batch."""
    return config.training.tokens_per_batch // config.synthetic.length


def measure(model: nn.Module, batch: TextBatch, config: Config, hardware: Hardware) -> dict[str, float]:
    """The figures of held-out sequences."""
    return figures(*read(model, batch, rows(config), hardware), batch)


@torch.inference_mode()
def read(model: nn.Module, batch: TextBatch, at_once: int, hardware: Hardware) -> tuple[float, Tensor]:
    """The loss, summed, and the token that the model expects after each: [B, T]."""
    model.eval()
    total, guesses = 0.0, []
    for part in batch.split(-(-len(batch.labels_BT) // at_once)):
        on_device = part.to(hardware.device)
        with hardware.autocast():
            logits_BTW = model(on_device.tokens_BT)
        total += cross_entropy(logits_BTW, on_device.labels_BT, ignore=batch.nothing).item()
        guesses.append(logits_BTW.argmax(-1).cpu())
    return total, torch.cat(guesses)


def figures(loss: float, guesses_BT: Tensor, batch: TextBatch) -> dict[str, float]:
    """
    loss      mean, in nats a label
    accuracy  percent of the labels that are guessed
    whole     percent of the sequences of which every label is: those that would be written without a mistake
    """
    asked_BT = batch.labels_BT != batch.nothing
    wrong_BT = asked_BT & (guesses_BT != batch.labels_BT)
    return {
        "loss": loss / batch.targets,
        "accuracy": 100 * (1 - int(wrong_BT.sum()) / batch.targets),
        "whole": 100 * (1 - int(wrong_BT.any(1).sum()) / len(wrong_BT)),
    }


def sample(settings: SyntheticSettings, batch: TextBatch, guesses_BT: Tensor) -> str:
    """The first few sequences: what was read, what was expected, and what came."""

    def words(tokens: Tensor) -> str:
        return " ".join(spell(settings, token) for token in tokens.tolist())

    blocks = []
    for tokens_T, labels_T, guesses_T in zip(
        batch.tokens_BT[:SHOWN], batch.labels_BT[:SHOWN], guesses_BT[:SHOWN], strict=True
    ):
        asked_T = labels_T != batch.nothing
        blocks.append(
            f"read      {words(tokens_T)}\n"
            f"expected  {words(labels_T[asked_T])}\n"
            f"came      {words(guesses_T[asked_T])}\n"
        )
    return "\n".join(blocks)
