"""Does a sharded training learn what a replicated one learns, and what does each process hold?

    python benchmarks/sharded.py [--recipe demo] [--steps 50] [--processes 2] [--quick] [a.b=c …]

The same training three times: one process; several, each with a whole model; several, each with a part. Compared are
the losses of all steps. Then the checkpoint of the sharded one is continued by one process, and again by several, and
each time what was saved in parts must be the same numbers put together. The peak of the memory of each process is what
the system says. Prints a table; the last line is JSON; the exit code is 1 if losses differ by more than 1e-6.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from regard.training.checkpoint import Checkpoints

MOST = 1e-6  # by which losses may differ, relatively
PEAK = """
import atexit, os, resource
if "RANK" in os.environ or os.environ.get("ALONE"):
    peak = lambda: open(os.environ["PEAKS"] + os.environ.get("RANK", "0"), "w").write(
        str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    )
    leave = os._exit
    os._exit = lambda code: (peak(), leave(code))
"""


def train(folder: Path, name: str, options: argparse.Namespace, *words: str) -> dict[str, Any]:
    """A training, its losses by step, and the peak memory of each of its processes in bytes."""
    out, site = folder / name, folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(PEAK)
    peaks = folder / f"{name}.peak."
    environment = os.environ | {"PYTHONPATH": str(site), "PEAKS": str(peaks)}
    if "--processes" not in words:
        environment |= {"ALONE": "1"}
    settings = ["training.micro_batches=4", "system.threads=1", "training.log_every=1", *options.settings]
    command = [sys.executable, "-m", "regard", "train", options.recipe, *settings, *words, "--out", str(out)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = {record["step"]: record["loss"] for record in records if "loss" in record}
    found = [int(path.read_text()) for path in sorted(folder.glob(f"{name}.peak.*"))]
    return {"losses": losses, "peaks": found, "out": out}


def difference(one: dict[int, float], other: dict[int, float]) -> float:
    assert one.keys() == other.keys()
    return max(abs(one[step] - other[step]) / abs(one[step]) for step in one)


def put_together(out: Path, step: int) -> bool:
    """Whether the parts of a checkpoint are, row by row, the final weights that were written of it."""
    whole = load_file(out / "model.safetensors")
    saved = Checkpoints(out / "checkpoints", 1, 2, print).load(step).weights
    return whole.keys() == saved.keys() and all(torch.equal(whole[name], saved[name]) for name in whole)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--recipe", default="demo")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="8 steps")
    options = parser.parse_args()
    steps = 8 if options.quick else options.steps
    several = ["--processes", str(options.processes)]
    last = [f"training.validate_every={steps}", f"training.save_every={steps}", "training.average_checkpoints=1"]
    with tempfile.TemporaryDirectory() as name:
        folder, length = Path(name), f"training.steps={steps}"
        alone = train(folder, "alone", options, length, *last)
        replicated = train(folder, "replicated", options, length, *last, *several)
        sharded = train(folder, "sharded", options, length, *last, "training.shard=true", *several)
        together = {steps: put_together(sharded["out"], steps)}
        for more, words in ((2, []), (3, ["training.shard=true", *several])):
            train(folder, "sharded", options, f"training.steps={steps * more}", *last, *words, "--resume")
            together[steps * more] = put_together(sharded["out"], steps * more)
        result = {
            "steps": steps,
            "processes": options.processes,
            "replicated_difference": difference(alone["losses"], replicated["losses"]),
            "sharded_difference": difference(alone["losses"], sharded["losses"]),
            "same_when_put_together": together,
            "peaks": {
                run: found["peaks"]
                for run, found in (("alone", alone), ("replicated", replicated), ("sharded", sharded))
            },
        }
    print(f"{'':<14}{'largest difference of a loss':>30}   peak of each process, MiB")
    for run, largest in (
        ("alone", 0.0),
        ("replicated", result["replicated_difference"]),
        ("sharded", result["sharded_difference"]),
    ):
        listed = "  ".join(f"{peak / 2**20:,.0f}" for peak in result["peaks"][run])
        print(f"{run:<14}{largest:>30.2e}   {listed}")
    print("put together, the parts are the whole: " + ", ".join(f"step {step} {ok}" for step, ok in together.items()))
    print(json.dumps(result))
    return int(result["sharded_difference"] > MOST or not all(together.values()))


if __name__ == "__main__":
    sys.exit(main())
