"""The image-classification task: from labelled images to a model that names the class of an image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.settings import Config
from regard.data.batch import DataState
from regard.data.image_batches import ImageBatch, ImageStream
from regard.data.image_cache import Images, must_have_classes
from regard.evaluation.classification import accuracy, top_accuracy
from regard.hardware import Hardware
from regard.models.swin import Swin
from regard.models.vision import VisionTransformer
from regard.tasks.common import draw_curves
from regard.tasks.images import Scale, prepare_images, prepare_scale, save_examples
from regard.training.augmentation import Augmentation
from regard.training.folder import RunFolder
from regard.training.loss import cross_entropy, mixed_cross_entropy

AT_ONCE = 1024  # images classified together
TOP = 5


class ImageClassificationTask:
    """What the trainer needs to know of classifying images."""

    def __init__(self, config: Config, folder: RunFolder, hardware: Hardware):
        self.config, self.folder, self.hardware = config, folder, hardware
        self.data = prepare_images(config, folder)
        must_have_classes(self.data)
        folder.write_json("labels.json", self.data.classes)
        self.scale = prepare_scale(config, folder, self.data.train)
        self.example = save_examples(folder, self.data)[0]
        self.to_scale = self.scale.on(hardware.device)
        self.augment = Augmentation(config.augmentation, config.images.height, config.images.width)
        self.stream = ImageStream(
            self.data.train, config.training.images_per_batch, config.seed, mixed=self.augment.mixes
        )

    def build(self) -> nn.Module:
        return image_classifier(self.config, len(self.data.classes))

    def architecture(self) -> dict[str, Any]:
        return {
            "architecture": "swin" if self.config.model.stages else "vit",
            "images": self.config.images.model_dump(),
            "classes": self.data.classes,
            "mean": self.scale.mean,
            "deviation": self.scale.deviation,
        }

    def size(self) -> str:
        images, count = self.config.images, len(self.data.train)
        colour = "colour" if images.colour else "grey"
        steps = -(-count // self.config.training.images_per_batch)
        return (
            f"{count:,} {colour} images of {images.height} x {images.width} · {len(self.data.classes)} classes · "
            f"an epoch is {steps:,} step{'s' * (steps > 1)}"
        )

    def batches(self, state: DataState) -> Iterator[tuple[ImageBatch, DataState]]:
        return self.stream.batches(state)

    def loss(self, model: nn.Module, batch: ImageBatch) -> Tensor:
        smoothing = self.config.training.label_smoothing
        if not self.augment.mixes:
            images_BCHW, _ = self.augment(batch.pixels_BHWC, batch.keys_B, None, None)
            return cross_entropy(model(self.to_scale(images_BCHW)), batch.labels_BT, smoothing, batch.nothing)
        images_BCHW, share_B = self.augment(batch.pixels_BHWC, batch.keys_B, batch.others_BHWC, batch.other_keys_B)
        logits_BK = model(self.to_scale(images_BCHW))
        return mixed_cross_entropy(logits_BK, batch.labels_BT[:, 0], batch.other_labels_B, share_B, smoothing)

    def validate(self, model: nn.Module, step: int) -> dict[str, float]:
        return self._measure(model, self.data.valid)

    def draw(self) -> None:
        draw_curves(self.folder)

    def test(self, model: nn.Module) -> dict[str, float]:
        return self._measure(model, self.data.test)

    def next_commands(self) -> list[str]:
        path, drawn = self.folder.path, self.config.model.mixer == "attention"
        commands = [f"regard evaluate {path}", f"regard classify {path} {self.example}"]
        return [*commands, f"regard explain {path} {self.example} -o map.png"] if drawn else commands

    def _measure(self, model: nn.Module, images: Images) -> dict[str, float]:
        return figures(probabilities(model, images.pixels_NHWC, self.scale, self.hardware), images.labels_N)


def image_classifier(config: Config, classes: int) -> VisionTransformer | Swin:
    """A ViT, or, where there are stages, a Swin Transformer."""
    images = config.images
    kind = Swin if config.model.stages else VisionTransformer
    return kind(config.model, images.height, images.width, images.channels, classes)


def figures(found_NK: NDArray[np.float32], labels_N: NDArray[np.int64]) -> dict[str, float]:
    """Loss in nats; accuracy, and of more than five classes that of the five likeliest, in percent."""
    right_N = found_NK[np.arange(len(labels_N)), labels_N]
    metrics = {
        "loss": float(-np.log(np.maximum(right_N, 1e-30)).mean()),
        "accuracy": accuracy(labels_N, found_NK.argmax(-1)),
    }
    if found_NK.shape[1] > TOP:
        metrics["accuracy_top5"] = top_accuracy(labels_N, found_NK, TOP)
    return metrics


@torch.inference_mode()
def probabilities(
    model: nn.Module, pixels_NHWC: NDArray[np.uint8], scale: Scale, hardware: Hardware
) -> NDArray[np.float32]:
    """Of every class for every image: [N, K]."""
    model.eval()
    to_scale, found = scale.on(hardware.device), []
    for start in range(0, len(pixels_NHWC), AT_ONCE):
        part_BHWC = torch.from_numpy(np.array(pixels_NHWC[start : start + AT_ONCE])).to(hardware.device)
        with hardware.autocast():
            logits_BK = model(to_scale.pixels(part_BHWC))
        found.append(logits_BK.float().softmax(-1).cpu().numpy())
    return np.concatenate(found)
