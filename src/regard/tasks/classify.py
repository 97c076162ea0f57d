"""The text-classification task: from labelled texts to a model that names the class of a text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard import console
from regard.settings import Config
from regard.data.batch import DataState
from regard.data.labelled import LabelledSource, labels_of, splits
from regard.data.labelled_batches import LabelledBatch, LabelledRows, LabelledStream, in_order
from regard.data.shards import LabelledShards, cache_folder, tokenise_labelled
from regard.data.tokenizers import END, START, TextTokenizer, train_tokenizer
from regard.errors import RegardError
from regard.evaluation.classification import accuracy, macro_f1
from regard.hardware import Hardware
from regard.models.classifier import Classifier
from regard.tasks.common import draw_curves
from regard.tasks.same_data import remember_data
from regard.training.folder import RunFolder
from regard.training.loss import training_loss


@dataclass(frozen=True)
class PreparedLabelled:
    tokenizer: TextTokenizer
    classes: list[str]
    train: LabelledShards
    valid: LabelledShards
    test: LabelledShards


def prepare(config: Config, folder: RunFolder) -> PreparedLabelled:
    """Read and check all data; learn the tokenizer where the run has none yet."""
    sources = splits(config.data)
    remember_data(folder, {name: source.fingerprint for name, source in sources.items()})
    classes = labels_of(sources["train"])
    folder.write_json("labels.json", classes)
    path = folder.path / "tokenizer.json"
    if path.exists():
        tokenizer = TextTokenizer.load(path)
    else:
        tokenizer = learn_tokenizer(config, sources["train"])
        folder.write_text("tokenizer.json", tokenizer.to_json())
    cache = cache_folder(config.data.cache)
    shards = {name: tokenise_labelled(source, tokenizer, classes, cache) for name, source in sources.items()}
    for name in ("valid", "test"):
        if not len(shards[name]):
            raise RegardError(
                f"The {name} data is empty.",
                "No labelled text is left for it.",
                "Check the files named in [data]; with few texts, name a file for it or raise data.held_out.",
            )
    return PreparedLabelled(tokenizer, classes, **shards)


def learn_tokenizer(config: Config, source: LabelledSource) -> TextTokenizer:
    texts = (example.text for example in itertools.islice(source, config.tokenizer.sample_lines))
    return train_tokenizer(texts, config.tokenizer)


class ClassificationTask:
    """What the trainer needs to know of classifying texts."""

    def __init__(self, config: Config, folder: RunFolder, hardware: Hardware):
        self.config, self.folder, self.hardware = config, folder, hardware
        self.data = prepare(config, folder)
        self.stream = LabelledStream(self.data.train, shape(config), config.seed, config.data.max_length)
        longer = int((self.data.train.texts.lengths > config.data.max_length - 2).sum())
        if longer:
            console.warn(
                f"{longer:,} of {len(self.data.train):,} training texts are longer than data.max_length = "
                f"{config.data.max_length} tokens; only their beginning is read."
            )

    def build(self) -> Classifier:
        return Classifier(self.config.model, self.data.tokenizer.size, len(self.data.classes))

    def architecture(self) -> dict[str, Any]:
        return {
            "architecture": "classifier",
            "vocabulary": self.data.tokenizer.size,
            "classes": self.data.classes,
            "start_id": START,
            "end_id": END,
        }

    def size(self) -> str:
        classes = len(self.data.classes)
        return f"{len(self.data.train):,} texts · {classes} classes · vocabulary {self.data.tokenizer.size:,}"

    def batches(self, state: DataState) -> Iterator[tuple[LabelledBatch, DataState]]:
        return self.stream.batches(state)

    def loss(self, model: nn.Module, batch: LabelledBatch) -> Tensor:
        settings = self.config.training
        return training_loss(lambda rows: logits(model, rows), batch, settings.label_smoothing, settings.consistency)

    def validate(self, model: nn.Module, step: int) -> dict[str, float]:
        return self._measure(model, self.data.valid)

    def draw(self) -> None:
        draw_curves(self.folder)

    def test(self, model: nn.Module) -> dict[str, float]:
        return self._measure(model, self.data.test)

    def next_commands(self) -> list[str]:
        return [
            f"regard evaluate {self.folder.path}",
            f'echo "A text." | regard classify {self.folder.path}',
        ]

    def _measure(self, model: nn.Module, texts: LabelledShards) -> dict[str, float]:
        found = probabilities(model, texts, self.config, self.hardware)
        right = found[np.arange(len(texts)), texts.classes]
        guessed, count = found.argmax(-1), len(self.data.classes)
        return {
            "loss": float(-np.log(np.maximum(right, 1e-30)).mean()),
            "accuracy": accuracy(texts.classes, guessed),
            "macro_f1": macro_f1(texts.classes, guessed, count),
        }


def shape(config: Config) -> LabelledRows:
    training = config.training
    rows = training.tokens_per_batch // training.row_length
    at_end = config.model.pooling == "last"
    return LabelledRows(rows, training.row_length, at_end, apart=not config.packed)


def logits(model: nn.Module, batch: LabelledBatch) -> Tensor:
    return model(batch.tokens_BT, batch.segments_BT, batch.positions_BT)


@torch.inference_mode()
def probabilities(model: nn.Module, texts: LabelledShards, config: Config, hardware: Hardware) -> NDArray[np.float32]:
    """Of every class for every text: [texts, classes]."""
    model.eval()
    found: NDArray[np.float32] | None = None
    for batch, numbers in in_order(texts, shape(config), config.data.max_length):
        on_device = batch.to(hardware.device)
        with hardware.autocast():
            every_BTC = logits(model, on_device)
        p = every_BTC[on_device.labels_BT != batch.nothing].float().softmax(-1).cpu().numpy()
        if found is None:
            found = np.zeros((len(texts), p.shape[-1]), np.float32)
        found[numbers] = p
    assert found is not None
    return found
