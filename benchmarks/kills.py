"""Does a training that is killed again and again end with the same model?

    python benchmarks/kills.py --kills 20 [--seed 1]

A small model is trained twice on built-in sentences. The first training is left alone. The second gets
`kill -9` at random moments, from the first import to the last step; after each, the same command is given
again with --resume. Every second kill is aimed at a save: it comes as soon as the temporary folder of a
checkpoint appears. In the end the weights of the two runs must be the same bytes.

A kill counts as "during a save" only if it left a half-written checkpoint behind. The last line is JSON.
The exit code is 1 if the models differ, or if less than a quarter of the kills hit a save.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
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
layers = 1
width = 64
heads = 4
feedforward = 128
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


@dataclass(frozen=True)
class Command:
    """`regard train RECIPE --out OUT --resume`"""

    recipe: Path
    out: Path

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "regard", "train", str(self.recipe), "--out", str(self.out), "--resume"]
        # One thread, and a core left for watching.
        environment = os.environ | {"XDG_CACHE_HOME": str(self.recipe.parent / "cache"), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)

    def run(self) -> float:
        """To the end; the seconds it took."""
        started = time.perf_counter()
        process = self.start()
        _, stderr = process.communicate()
        if process.returncode:
            sys.exit(stderr.decode())
        return time.perf_counter() - started


@dataclass(frozen=True)
class Kill:
    seconds: float  # after the process was started
    step: int  # the newest saved
    during_save: bool  # it left a checkpoint half-written


def saved(out: Path) -> int:
    """The newest step that has a checkpoint."""
    return max((int(path.name.removeprefix("step-")) for path in out.glob("checkpoints/step-*")), default=0)


def half_saved(out: Path) -> set[tuple[str, int]]:
    """Checkpoints that are being written, or were when a kill came; the time tells a new one from a leftover."""
    found = set()
    for path in out.glob("checkpoints/.step-*.tmp"):
        try:
            found.add((path.name, path.stat().st_ctime_ns))
        except FileNotFoundError:  # renamed meanwhile: it is whole
            continue
    return found


def kill_once(command: Command, chance: random.Random, aimed: bool, kills_left: int, usual: float) -> Kill | None:
    """Start, kill, and tell when and where it hit; None if the training ended before."""
    out = command.out
    before, left_behind = saved(out), half_saved(out)
    # Never so far that nothing is left for the kills to come.
    furthest = before + max((STEPS - before) // (kills_left + 1), 1)
    delay, goal = chance.uniform(0, usual), chance.randint(before, furthest)
    process = command.start()
    started = time.perf_counter()
    while process.poll() is None:
        if aimed and saved(out) >= goal and half_saved(out) - left_behind:
            break
        if not aimed and (time.perf_counter() - started > delay or saved(out) >= furthest):
            break
        time.sleep(0.0002)
    process.kill()
    seconds = time.perf_counter() - started
    process.communicate()
    if process.returncode != -signal.SIGKILL:
        return None
    return Kill(seconds, saved(out), bool(half_saved(out) - left_behind))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as place:
        recipe = make_corpus(Path(place))
        undisturbed, killed = Command(recipe, Path(place, "undisturbed")), Command(recipe, Path(place, "killed"))
        usual = undisturbed.run()
        print("kill | seconds in | step saved | during a save")
        kills = []
        for number in range(1, options.kills + 1):
            kill = kill_once(killed, chance, number % 2 == 0, options.kills - number, usual)
            if kill is None:
                sys.exit(f"The training ended before kill {number}.")
            kills.append(kill)
            hit = "yes" if kill.during_save else "no"
            print(f"{number:>4} | {kill.seconds:>10.2f} | {kill.step:>10} | {hit:>13}", flush=True)
        killed.run()
        identical = sha256(undisturbed.out / "model.safetensors") == sha256(killed.out / "model.safetensors")
    hits = sum(kill.during_save for kill in kills)
    print(json.dumps({"kills": len(kills), "during_save": hits, "identical": identical}))
    sys.exit(0 if identical and 4 * hits >= len(kills) else 1)


if __name__ == "__main__":
    main()
