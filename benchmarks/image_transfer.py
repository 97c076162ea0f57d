"""What a ViT trained on CIFAR-10 at 32 x 32 is worth for MNIST at 28 x 28: from scratch, and fine-tuned from it.

    python benchmarks/image_transfer.py --cifar DIR --mnist DIR --seeds 1,2,3,4

Each seed is trained from scratch for --steps, from scratch for a fifth of them, and from the CIFAR-10 run for a fifth
of them, with the recipe's rates and with half of them. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from transfer import train

DIGITS = [  # photographs may be mirrored and mixed, digits not
    "data.images=.",
    "images.size=28",
    "augmentation.flip=0.0",
    "augmentation.mixup=0.0",
    "augmentation.cutmix=0.0",
    "augmentation.operations=1",
    "augmentation.strength=0.4",
    "augmentation.crop=2",
    "training.ema=0.99",
]
HALF_RATES = ["training.learning_rate=0.001", "training.muon.learning_rate=0.01"]


def budget(steps: int) -> list[str]:
    return [f"training.steps={steps}", f"training.warmup={steps // 10}", f"training.validate_every={steps // 2}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar", type=Path, required=True)
    parser.add_argument("--mnist", type=Path, required=True)
    parser.add_argument("--pretraining", type=int, default=24_000, help="steps on CIFAR-10")
    parser.add_argument("--steps", type=int, default=1_000, help="steps from scratch on MNIST")
    parser.add_argument("--seeds", default="1,2,3,4")
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp())
    pretrained = train("cifar10", "cifar10", f"training.steps={options.pretraining}", place=place, data=options.cifar)
    results = [pretrained]
    tuned: dict[str, Any] = {"start_from": pretrained["run"]}
    fifth = budget(options.steps // 5)
    variants: list[tuple[str, list[str], dict[str, Any]]] = [
        ("scratch", budget(options.steps), {}),
        ("scratch-fifth", fifth, {}),
        ("tuned", fifth, tuned),
        ("tuned-half-rates", [*fifth, *HALF_RATES], tuned),
    ]
    for seed in options.seeds.split(","):
        for name, overrides, start in variants:
            name = f"{name}-{seed}"
            found = train(
                name, "cifar10", *DIGITS, f"seed={seed}", *overrides, place=place, data=options.mnist, **start
            )
            results.append(found)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
