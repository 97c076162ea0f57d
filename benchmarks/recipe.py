"""A recipe, trained for several seeds and variants: how good, how fast.

    python benchmarks/recipe.py multi30k --data DIR --seeds 1,2,3
    python benchmarks/recipe.py shakespeare --data DIR --seeds 1,2,3,4,5
    python benchmarks/recipe.py digits --seeds 1,2,3
    python benchmarks/recipe.py trec --data DIR --variant "scratch:" --variant "tuned:--from=RUN,training.steps=300"
    python benchmarks/recipe.py debian --data DIR --seeds 1,2 --evaluate

A variant is NAME:override,override. `wall` is the seconds of the whole command: start, reading and tokenising or
decoding, compiling (nothing prepared or compiled is kept from one run to the next), training, and the final figures; it
means something only with --parallel 1. With --evaluate, what `regard evaluate` says of each run follows, with
something simpler beside it. For a language model the loss is also estimated as nanoGPT does it: the mean
over 200 batches of 64 rows taken at random places. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TIMES = ["wall", "train", "targets_per_second"]


def train(name: str, overrides: list[str], seed: int, options: argparse.Namespace, place: Path) -> dict:
    out = place / f"{name}-{seed}"
    command = [sys.executable, "-m", "regard", "train", options.recipe, "--out", str(out), "--data", options.data]
    command += [f"seed={seed}", *overrides]
    with tempfile.TemporaryDirectory() as fresh, (place / f"{name}-{seed}.log").open("w") as log:
        started = time.perf_counter()
        caches = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")
        environment = os.environ | dict.fromkeys(caches, fresh)
        code = subprocess.run(command, stdout=log, stderr=log, check=False, env=environment).returncode
        seconds = time.perf_counter() - started
    if code:
        print((place / f"{name}-{seed}.log").read_text()[-2000:], flush=True)
        return {"variant": name, "seed": seed, "failed": code}
    summary = json.loads((out / "summary.json").read_text())
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    speeds = sorted(value for record in records for key, value in record.items() if key.endswith("_per_second"))
    valid = [
        [record["step"], *(round(value, 4) for key, value in record.items() if key.startswith("valid_"))]
        for record in records
        if "valid_loss" in record
    ]
    result = {
        "variant": name,
        "seed": seed,
        "wall": round(seconds, 1),
        "train": summary["seconds"],
        "targets_per_second": speeds[len(speeds) // 2] if speeds else None,
        "metrics": {key: round(value, 4) for key, value in summary["metrics"].items()},
        "run": str(out),
        "valid": valid,
    }
    print(json.dumps(result), flush=True)
    if options.evaluate:
        print(scores(out), flush=True)
    shutil.rmtree(out / "checkpoints")
    return result


def scores(run: Path) -> str:
    """What `regard evaluate` says of a run, or why it says nothing."""
    command = [sys.executable, "-m", "regard", "evaluate", str(run), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else f"evaluate ended with {done.returncode}: {done.stderr[-1000:]}"


def sampled_loss(run: str) -> float:
    """nanoGPT's estimate: 200 batches of 64 rows at random places of the validation text."""
    import numpy as np
    import torch

    import regard
    from regard.data.running_text import divide_text
    from regard.data.text import text_source
    from regard.data.text_batches import next_tokens
    from regard.training.loss import cross_entropy

    model = regard.load(run)
    data = model.settings.data
    ids = divide_text(text_source(data.text, data), data, model.tokenizer).valid
    generator, losses = np.random.default_rng(1), []
    with torch.inference_mode():
        for _ in range(200):
            starts = generator.integers(0, len(ids) - model.context, 64)
            batch = next_tokens(ids, starts, model.context).to(model.hardware.device)
            with model.hardware.autocast():
                losses.append(cross_entropy(model.logits(batch), batch.labels).item())
    return sum(losses) / (200 * 64 * model.context)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--data", default=".", help="the folder with the recipe's files")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--variant", action="append", default=[])
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--evaluate", action="store_true", help="also run `regard evaluate`, with something simpler")
    parser.add_argument("--out", help="keep the run folders here")
    options = parser.parse_args()
    place = Path(options.out or tempfile.mkdtemp())
    place.mkdir(parents=True, exist_ok=True)
    jobs = []
    for variant in options.variant or ["recipe:"]:
        name, _, listed = variant.partition(":")
        jobs += [(name, [o for o in listed.split(",") if o], int(seed)) for seed in options.seeds.split(",")]
    with ThreadPoolExecutor(options.parallel) as pool:
        results = list(pool.map(lambda job: train(*job, options, place), jobs))
    for result in results:
        if "bits_per_byte" in result.get("metrics", {}):
            result["metrics"]["loss_sampled"] = round(sampled_loss(result["run"]), 4)
    names = list(dict.fromkeys(name for result in results for name in result.get("metrics", {})))
    print(" | ".join(["variant", "seed", *names, *TIMES]))
    for result in results:
        figures = {**result, **result.get("metrics", {})}
        print(" | ".join(str(figures.get(column, "-")) for column in ["variant", "seed", *names, *TIMES]))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
