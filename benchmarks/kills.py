"""Does a training that is killed again and again end with the same model?

    python benchmarks/kills.py --kills 20 --seed 1

Trains a tiny translator once without interruption. Then trains it again, kills it with `kill -9` at
random moments, some of them during a save, and gives the same command with --resume after each. Compares
the two final models byte for byte. The last line is JSON; the exit code is 1 if they differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from regard.data.samples import english_german

RECIPE = """
task = "translate"
[data]
train = ["train.tsv"]
valid = ["valid.tsv"]
test = ["valid.tsv"]
max_length = 32
[tokenizer]
vocabulary = 600
dropout = 0.1
[model]
layers = 2
width = 64
heads = 4
feedforward = 256
norm = "pre"
[training]
steps = 240
tokens_per_batch = 1024
row_length = 64
schedule = "constant"
learning_rate = 0.003
warmup = 10
validate_every = 12
save_every = 2
average_checkpoints = 5
[decoding]
beam = 1
"""


def digest(run: Path) -> str:
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


def saved(run: Path) -> int:
    """The newest step saved."""
    names = [path.name for path in (run / "checkpoints").glob("step-*")]
    return max((int(name.removeprefix("step-")) for name in names), default=0)


def saving(run: Path) -> bool:
    return any((run / "checkpoints").glob(".step-*.tmp"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    dice = random.Random(options.seed)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pairs = english_german.pairs(2_040, seed=1)
        for name, part in (("train", pairs[:2000]), ("valid", pairs[2000:])):
            (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in part))
        recipe = folder / "tiny.toml"
        recipe.write_text(RECIPE)

        def command(run: Path) -> list[str]:
            return [sys.executable, "-m", "regard", "train", str(recipe), "--out", str(run), "--resume"]

        whole, killed = folder / "whole", folder / "killed"
        subprocess.run(command(whole), env=environment, check=True, capture_output=True)
        kills = during_save = 0
        while kills < options.kills:
            process = subprocess.Popen(
                command(killed), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            # Every other time wait for a save to begin; else for some steps, or for nothing at all.
            wanted = dice.choice(["save", "save", "steps", "start"])
            before, patience = saved(killed), time.perf_counter() + dice.uniform(0.5, 6.0)
            more = dice.randint(0, 4)
            while process.poll() is None:
                if wanted == "save" and saving(killed) and dice.random() < 0.5:
                    break
                if wanted == "steps" and saved(killed) >= before + more and saved(killed) > 0:
                    time.sleep(dice.uniform(0, 0.2))
                    break
                if wanted == "start" and time.perf_counter() > patience:
                    break
                time.sleep(0.0005)
            if process.poll() is not None:
                break  # finished before it could be killed
            in_save = saving(killed)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            during_save += in_save
            print(f"kill {kills:>2}: step {saved(killed):>3}{', during a save' if in_save else ''}", flush=True)
        subprocess.run(command(killed), env=environment, check=True, capture_output=True)
        identical = digest(whole) == digest(killed)
    seconds = round(time.perf_counter() - started)
    print(f"{kills} kills, {during_save} during a save: {'identical' if identical else 'DIFFERENT'} ({seconds} s)")
    print(json.dumps({"kills": kills, "during_save": during_save, "identical": identical, "seconds": seconds}))
    sys.exit(0 if identical else 1)


if __name__ == "__main__":
    main()
