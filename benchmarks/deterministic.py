"""Does a training on a GPU give the same bytes every time, and what does that cost?

    python benchmarks/deterministic.py --data DIR [--steps 200] [--cost] [--kinds]

DIR holds multi30k/ and tinyshakespeare/ (and trec/ for --kinds). `shakespeare` and `multi30k` are trained twice with
`system.deterministic=true`, and a third time with three `kill -9`, each followed by --resume: all three models must
be the same bytes. They are also trained twice without it, to see whether that would have differed.

--cost alternates trainings with and without, and compares their median speed.
--kinds trains every task and mixer twice, briefly, in one process each.
The last line is JSON; the exit code is 1 if any bytes differ.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from regard.files import sha256
from regard.training.folder import RunFolder

ON = "system.deterministic=true"
OFF = "system.deterministic=false"
RECIPES = {"shakespeare": "tinyshakespeare", "multi30k": "multi30k"}
OFTEN = ["training.validate_every=10", "training.save_every=10", "training.log_every=1"]
TEXT = ["data.text=tinyshakespeare/input.txt"]
KINDS = {
    "language": ["shakespeare", *TEXT],
    "language, documents apart": ["shakespeare", *TEXT, 'data.documents="apart"'],
    "hyena": ["shakespeare", *TEXT, "model.mixer=hyena"],
    "local": ["shakespeare", *TEXT, "model.mixer=local"],
    "gru": ["shakespeare", *TEXT, "model.mixer=gru"],
    "lstm": ["shakespeare", *TEXT, "model.mixer=lstm"],
    "masked": ["bert-small", *TEXT],
    "embeddings": ["words", *TEXT],
    "translate": ["multi30k", "data.root=multi30k", "training.consistency=0"],
    "translate, gru": ["multi30k", "data.root=multi30k", "model.mixer=gru", "model.cross=additive"],
    "classify-image": ["digits"],
    "swin": ["digits", "model.stages=[1,1]", "model.window=2", "model.positions=none", "model.pooling=mean"],
    "pixels": ["digits-pixels"],
    "synthetic": ["reverse"],
}


def command(recipe: Sequence[str], out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "regard", "train", *recipe, *more, "--out", str(out), "--resume"]


def train(recipe: Sequence[str], out: Path, *more: str, folder: Path | None = None) -> str:
    """The digest of the trained model."""
    done = subprocess.run(command(recipe, out, *more), capture_output=True, text=True, cwd=folder, check=False)
    if done.returncode:
        return f"failed: {done.stderr[-600:]}"
    return sha256(out / "model.safetensors")


def train_killed(recipe: Sequence[str], out: Path, *more: str, at: Sequence[int]) -> str:
    """The same with kills as soon as these steps are logged."""
    for step in at:
        process = subprocess.Popen(
            command(recipe, out, *more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ
        )
        while process.poll() is None and _step(out) < step:
            time.sleep(0.01)
        if process.poll() is not None:
            return f"ended before the kill at step {step}"
        process.kill()
        process.wait()
    return train(recipe, out, *more)


def _step(out: Path) -> int:
    return max((record["step"] for record in RunFolder(out).read_metrics()), default=0)


def same_bytes(name: str, data: Path, place: Path, steps: int) -> dict[str, object]:
    recipe = [name, "--data", str(data / RECIPES[name])]
    more = [f"training.steps={steps}", "training.validate_every=40", "training.save_every=20", "training.log_every=1"]
    more += ["system.compile=yes", "training.warmup=20"]
    kills = [steps // 4 + 3, steps // 2 + 7, 3 * steps // 4 + 9]
    digests = {
        "first": train(recipe, place / f"{name}-1", *more, ON),
        "second": train(recipe, place / f"{name}-2", *more, ON),
        "killed": train_killed(recipe, place / f"{name}-3", *more, ON, at=kills),
    }
    without = {train(recipe, place / f"{name}-{number}", *more, OFF) for number in (4, 5)}
    return {"same": len(set(digests.values())) == 1, "digests": digests, "same without": len(without) == 1}


def kinds(data: Path, place: Path) -> dict[str, object]:
    def twice(item: tuple[str, list[str]]) -> tuple[str, object]:
        name, recipe = item
        more = ["training.steps=20", *OFTEN, ON]
        digests = [train(recipe, place / f"{name.replace(' ', '')}-{number}", *more, folder=data) for number in (1, 2)]
        return name, True if digests[0] == digests[1] and "failed" not in digests[0] else digests

    with ThreadPoolExecutor(6) as pool:
        return dict(pool.map(twice, KINDS.items()))


def cost(name: str, data: Path, place: Path, repeats: int) -> dict[str, object]:
    """Percent that the median speed of later steps falls."""
    recipe = [name, "--data", str(data / RECIPES[name])]
    more = ["training.steps=600", "training.validate_every=600", "training.save_every=600", "training.log_every=50"]
    more.append("system.compile=yes")
    speeds: dict[str, list[float]] = {ON: [], OFF: []}
    for number in range(repeats):
        for setting in (OFF, ON):
            out = place / f"cost-{name}-{setting[-5:].strip('=')}-{number}"
            train(recipe, out, *more, setting)
            seen = [r["tokens_per_second"] for r in RunFolder(out).read_metrics() if "tokens_per_second" in r]
            speeds[setting].append(statistics.median(seen[3:]))
    ratio = statistics.median(speeds[OFF]) / statistics.median(speeds[ON]) - 1
    return {"percent": round(100 * ratio, 1), "with": speeds[ON], "without": speeds[OFF]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--kinds", action="store_true")
    parser.add_argument("--cost", type=int, default=0, metavar="REPEATS")
    options = parser.parse_args()
    data = options.data.resolve()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        with ThreadPoolExecutor(2) as pool:
            both = pool.map(lambda name: same_bytes(name, data, place, options.steps), RECIPES)
            result: dict[str, object] = dict(zip(RECIPES, both, strict=True))
        right = all(found["same"] for found in result.values())  # type: ignore[index]
        print(json.dumps(result, indent=2), flush=True)
        if options.kinds:
            result["kinds"] = found = kinds(data, place)
            right = right and all(each is True for each in found.values())
            print(json.dumps(found, indent=2), flush=True)
        if options.cost:
            result["cost"] = {name: cost(name, data, place, options.cost) for name in RECIPES}
            print(json.dumps(result["cost"], indent=2), flush=True)
    print(json.dumps(result))
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
