"""Is the memory of a training what was predicted before its first step?

    python benchmarks/memory_prediction.py                      # small models on a CPU; the recipes themselves on a GPU
    python benchmarks/memory_prediction.py --cases gpt2 cifar10 --set system.compile=yes

Trains a few steps of each recipe on made-up data, each in a process of its own, and prints what was predicted beside
the peak of its steps: on a GPU of torch's allocator, on a CPU of the whole process. `growth` is the same without what
was there before the first step. Exits with 1 if a prediction is off by more than 15 %; compiled models, for which it is
an upper bound, only if it is too low. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

TOLERANCE = 0.15
STEPS = 4
PAIRS = [f'data.{split}=["{split}.en", "{split}.de"]' for split in ("train", "valid", "test")]
PAIRS += ["training.validate_bleu=false", "decoding.beam=1"]
TEXT = ["data.text=text.txt", "data.held_out=0.01"]
SMALL = ["model.layers=3", "model.width=256", "model.heads=4", "model.feedforward=1024"]
FEW = ["training.tokens_per_batch=8192", "tokenizer.vocabulary=4000", "training.micro_batches=1"]
# Of each case the recipe, its data, and what makes it small enough for a CPU.
CASES: dict[str, tuple[str, Sequence[str], Sequence[str]]] = {
    "transformer-base": ("transformer-base", PAIRS, [*SMALL, *FEW]),
    "transformer-rdrop": ("multi30k", PAIRS, [*SMALL, *FEW]),
    "gpt2": ("gpt2-124m", [*TEXT, "training.tokens_per_batch=65536", "training.micro_batches=1"], [*SMALL, *FEW]),
    "gpt2-in-pieces": ("gpt2-124m", TEXT, [*SMALL, *FEW, "training.micro_batches=4"]),
    "shakespeare": ("shakespeare", TEXT, [*SMALL, "training.tokens_per_batch=8192"]),
    "bert-small": ("bert-small", TEXT, [*SMALL, *FEW]),
    "hyena": ("shakespeare", [*TEXT, "model.mixer=hyena"], [*SMALL, "training.tokens_per_batch=8192"]),
    "gru": ("shakespeare", [*TEXT, "model.mixer=gru"], [*SMALL, "training.tokens_per_batch=8192"]),
    "cifar10": ("cifar10", ["data.images=pictures"], ["training.images_per_batch=128"]),
}


def write_data(folder: Path, small: bool) -> None:
    """Text of random words, so many that a vocabulary of 50,257 is reached; pairs; and pictures."""
    choose = random.Random(1)
    kinds, lines = (6_000, 4_000) if small else (60_000, 40_000)
    words = ["".join(choose.choices("abcdefghijklmnopqrstuvwxyz", k=choose.randint(2, 9))) for _ in range(kinds)]

    def sentence() -> str:
        return " ".join(choose.choices(words, k=choose.randint(5, 40)))

    (folder / "text.txt").write_text("".join(sentence() + "\n" for _ in range(lines)))
    for split, count in {"train": lines // 2, "valid": 20, "test": 20}.items():
        for side in ("en", "de"):
            (folder / f"{split}.{side}").write_text("".join(sentence() + "\n" for _ in range(count)))
    noise = np.random.default_rng(1)
    for kind in ("one", "other"):
        for split in ("train", "test"):
            place = folder / "pictures" / split / kind
            place.mkdir(parents=True)
            for number in range(600 if split == "train" else 10):
                Image.fromarray(noise.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(place / f"{number}.png")


def trained(name: str, folder: Path, small: bool, changes: Sequence[str]) -> dict[str, float | str]:
    recipe, data, for_cpu = CASES[name]
    few = [f"training.steps={STEPS}", f"training.validate_every={STEPS}", "training.save_every=0"]
    command = [sys.executable, "-m", "regard", "train", recipe, *data, *(for_cpu if small else ()), *few, *changes]
    command += ["--out", str(folder / "runs" / name), "--data", str(folder), "--json"]
    done = subprocess.run([*command, f"data.cache={folder / 'cache'}"], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"case": name, "failed": done.stderr.strip().splitlines()[-3] if done.stderr.strip() else "no message"}
    summary = json.loads(done.stdout)
    predicted, measured = summary["predicted_memory_bytes"], summary["steps_memory_bytes"]
    present = summary["memory_before_bytes"]
    return {
        "case": name,
        "predicted_gib": round(predicted / 2**30, 3),
        "measured_gib": round(measured / 2**30, 3),
        "ratio": round(predicted / measured, 3),
        "growth": round((predicted - present) / max(1, measured - present), 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--set", nargs="*", default=[], help="settings for all of them: system.compile=yes …")
    options = parser.parse_args()
    gpu = torch.cuda.is_available()
    compiled = "system.compile=yes" in options.set
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        write_data(Path(temporary), small=not gpu)
        print(f"{'case':<20} {'predicted':>10} {'measured':>10} {'ratio':>7} {'growth':>7}")
        for name in options.cases:
            row = trained(name, Path(temporary), not gpu, options.set)
            rows.append(row)
            print(f"{name:<20} " + " ".join(f"{value:>9}" for value in list(row.values())[1:]), flush=True)
    off = [
        row["case"]
        for row in rows
        if "failed" in row
        or float(row["ratio"]) < 1 - TOLERANCE
        or (float(row["ratio"]) > 1 + TOLERANCE and not compiled)
    ]
    device = torch.cuda.get_device_name() if gpu else "cpu"
    print(json.dumps({"device": device, "compiled": compiled, "cases": rows, "off": off}))
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
