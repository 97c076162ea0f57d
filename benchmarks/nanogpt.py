"""tinyshakespeare on a CPU: Regard's recipe beside nanoGPT's own CPU recipe, in turn on the same machine.

    git clone https://github.com/karpathy/nanoGPT && cp DIR/input.txt nanoGPT/data/shakespeare_char/
    (cd nanoGPT/data/shakespeare_char && python prepare.py)
    python benchmarks/nanogpt.py --nanogpt nanoGPT --data DIR --rounds 3

Wall time is of the whole process. nanoGPT's loss is the mean of 20 sampled batches, as in its own recipe;
Regard's is over the whole of the last tenth. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CPU_RECIPE = ["config/train_shakespeare_char.py", "--device=cpu", "--compile=False", "--eval_iters=20"]
CPU_RECIPE += ["--log_interval=500", "--block_size=64", "--batch_size=12", "--n_layer=4", "--n_head=4", "--n_embd=128"]
CPU_RECIPE += ["--max_iters=2000", "--lr_decay_iters=2000", "--dropout=0.0"]


def nanogpt(folder: str) -> tuple[float, float]:
    started = time.perf_counter()
    command = [sys.executable, "train.py", *CPU_RECIPE]
    shown = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    seconds = time.perf_counter() - started
    return float(re.findall(r"val loss ([\d.]+)", shown)[-1]), seconds


def ours(data: str, seed: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as place:
        started = time.perf_counter()
        command = [sys.executable, "-m", "regard", "train", "shakespeare-cpu", f"seed={seed}", "--data", data]
        subprocess.run([*command, "--out", f"{place}/run"], capture_output=True, check=True)
        seconds = time.perf_counter() - started
        return json.loads(Path(place, "run", "summary.json").read_text())["metrics"]["loss"], seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    results = []
    print("round | nanoGPT loss | seconds | Regard loss | seconds")
    for number in range(1, options.rounds + 1):
        theirs, their_seconds = nanogpt(options.nanogpt)
        loss, seconds = ours(options.data, seed=number)
        results.append([theirs, round(their_seconds, 1), round(loss, 4), round(seconds, 1)])
        print(number, *results[-1], sep=" | ", flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
