"""Multi30k English→German: how good, how fast. Trains the recipe for several seeds and variants.

    python benchmarks/multi30k.py --data DIR --seeds 1,2,3
    python benchmarks/multi30k.py --data DIR --variant "wide:model.width=256" --variant "plain:" --parallel 2

A variant is NAME:override,override. Wall time is of the whole process: start, tokenising, compiling,
training, and translating the test set; it means something only with --parallel 1. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TRAIN = "import sys, regard; regard.train(sys.argv[1], *sys.argv[4:], out=sys.argv[2], data=sys.argv[3])"


def train(name: str, overrides: list[str], seed: int, options: argparse.Namespace, place: Path) -> dict:
    out = place / f"{name}-{seed}"
    command = [
        sys.executable,
        "-c",
        TRAIN,
        options.recipe,
        str(out),
        options.data,
        f"seed={seed}",
        *overrides,
    ]
    started = time.perf_counter()
    with (place / f"{name}-{seed}.log").open("w") as log:
        code = subprocess.run(command, stdout=log, stderr=log, check=False, env=os.environ).returncode
    seconds = time.perf_counter() - started
    if code:
        print((place / f"{name}-{seed}.log").read_text()[-2000:], flush=True)
        return {"variant": name, "seed": seed, "failed": code}
    summary = json.loads((out / "summary.json").read_text())
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    speeds = sorted(record["tokens_per_second"] for record in records if "tokens_per_second" in record)
    valid = [
        (r["step"], round(r["valid_loss"], 4), round(r.get("valid_bleu", 0), 2)) for r in records if "valid_loss" in r
    ]
    result = {
        "variant": name,
        "seed": seed,
        "wall": round(seconds, 1),
        "train": summary["seconds"],
        "tokens_per_second": speeds[len(speeds) // 2],
        **{key: round(value, 3) for key, value in summary["metrics"].items()},
    }
    print(json.dumps(result), valid[-1], min(valid, key=lambda v: v[1]), flush=True)
    return result | {"valid": valid}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--recipe", default="multi30k")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--variant", action="append", default=[])
    parser.add_argument("--parallel", type=int, default=1)
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
    columns = [
        "variant",
        "seed",
        "bleu_lowercase",
        "bleu",
        "chrf",
        "loss",
        "wall",
        "train",
        "tokens_per_second",
    ]
    print(" | ".join(columns))
    for result in results:
        print(" | ".join(str(result.get(column, "-")) for column in columns))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
