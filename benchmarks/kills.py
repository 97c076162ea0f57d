"""Does a training that is killed again and again end with the same model?

    python benchmarks/kills.py --kills 20 [--seed 1]

A small model is trained twice on built-in sentences. The first training is left alone. The second gets
`kill -9` at random moments; after each, the same command is given again with --resume. At least every
second kill is aimed at a save: it comes as soon as the temporary folder of a checkpoint appears. In the
end the weights of the two runs must be the same bytes.

A kill counts as "during a save" only if it left a half-written checkpoint behind. The last line is JSON.
The exit code is 1 if the models differ, or if less than a quarter of the kills hit a save.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from regard.data.samples import english_german
from regard.files import sha256

STEPS = 60
RECIPE = f"""
[data]
train = ["train.en", "train.de"]
valid = ["valid.en", "valid.de"]
test = ["valid.en", "valid.de"]
max_length = 64
[tokenizer]
vocabulary = 600
[model]
layers = 2
width = 128
heads = 4
feedforward = 256
norm = "pre"
[training]
steps = {STEPS}
tokens_per_batch = 1024
row_length = 64
schedule = "constant"
learning_rate = 0.003
warmup = 10
validate_every = 15
validate_bleu = false
save_every = 3
average_checkpoints = 3
log_every = 5
[decoding]
beam = 1
"""


def make_corpus(folder: Path) -> Path:
    pairs = english_german.pairs(1_040, seed=5)
    for name, part in (("train", pairs[:1000]), ("valid", pairs[1000:])):
        for side, language in enumerate(("en", "de")):
            (folder / f"{name}.{language}").write_text("".join(pair[side] + "\n" for pair in part), encoding="utf-8")
    recipe = folder / "kills.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    return recipe


def start(recipe: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "regard", "train", str(recipe), "--out", str(out), "--resume"]
    environment = os.environ | {"XDG_CACHE_HOME": str(recipe.parent / "cache")}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, stderr = process.communicate()
    if process.returncode:
        sys.exit(stderr.decode())


def saved(out: Path) -> int:
    """The newest step that has a checkpoint."""
    return max((int(path.name.removeprefix("step-")) for path in out.glob("checkpoints/step-*")), default=0)


def half_saved(out: Path) -> set[tuple[str, int]]:
    """Checkpoints that are being written, or were when a kill came. A new one has a new number on the disk."""
    found = set()
    for path in out.glob("checkpoints/.step-*.tmp"):
        try:
            found.add((path.name, path.stat().st_ino))
        except FileNotFoundError:  # renamed meanwhile: it is whole
            continue
    return found


def kill_once(
    recipe: Path, out: Path, chance: random.Random, aimed: bool, kills_left: int
) -> tuple[float, bool] | None:
    """Start, kill, and tell how many seconds in, and whether a save was hit; None if it finished before."""
    left_behind = half_saved(out)
    before = saved(out)
    # Never so far that nothing is left for the kills to come.
    furthest = before + max((STEPS - before) // (kills_left + 1), 1)
    delay = chance.uniform(0.0, 0.3)
    process = start(recipe, out)
    started = time.perf_counter()
    first_save = 0.0
    while process.poll() is None:
        if half_saved(out) - left_behind:
            if aimed:
                break
            first_save = first_save or time.perf_counter()
        # Not aimed: some time after the first save of this process, or as far as it may go.
        if not aimed and ((first_save and time.perf_counter() - first_save > delay) or saved(out) > furthest):
            break
    process.kill()
    moment = time.perf_counter() - started
    process.communicate()
    if process.returncode >= 0:
        return None
    return moment, bool(half_saved(out) - left_behind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as place:
        recipe = make_corpus(Path(place))
        undisturbed, killed = Path(place, "undisturbed"), Path(place, "killed")
        finish(start(recipe, undisturbed))
        print("kill | seconds in | step saved | during a save")
        hits = []
        for number in range(1, options.kills + 1):
            found = kill_once(recipe, killed, chance, aimed=number % 2 == 0, kills_left=options.kills - number)
            if found is None:
                sys.exit(f"The training ended before kill {number}.")
            moment, hit = found
            hits.append(hit)
            print(f"{number:>4} | {moment:>10.2f} | {saved(killed):>10} | {'yes' if hit else 'no'}", flush=True)
        finish(start(recipe, killed))
        identical = sha256(undisturbed / "model.safetensors") == sha256(killed / "model.safetensors")
    print(json.dumps({"kills": len(hits), "during_save": sum(hits), "identical": identical}))
    sys.exit(0 if identical and 4 * sum(hits) >= len(hits) else 1)


if __name__ == "__main__":
    main()
