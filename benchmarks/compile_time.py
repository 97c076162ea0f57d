"""How long does it take to compile a block for the first time, what of it is what, and what makes it shorter?

    python benchmarks/compile_time.py [--recipe shakespeare] [--data-seconds 4] [--rounds 1] [--tiny]

The blocks of a recipe's model are compiled as in a training: one forward and backward pass. Every variant runs in a
process of its own with an empty cache, after `--data-seconds` in which a training would read its data; "kept" runs once
more with what the first run has kept. `first` is what a training waits for. --tiny is for a CPU.
The last line is JSON.
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
from typing import Any

# Variables of the environment, and settings of torch's compiler.
VARIANTS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "as it is": ({}, {}),
    "compiler loaded when needed": ({"REGARD_COMPILER_AHEAD": "0"}, {}),
    "one process": ({"TORCHINDUCTOR_COMPILE_THREADS": "1"}, {}),
    "4 processes": ({"TORCHINDUCTOR_COMPILE_THREADS": "4"}, {}),
    "8 processes": ({"TORCHINDUCTOR_COMPILE_THREADS": "8"}, {}),
    "no kernels tried against each other": ({}, {"triton.autotune_pointwise": False}),
    "wait for the processes": ({"WAIT_FOR_POOL": "1"}, {}),
}
TINY = ["model.layers=2", "model.width=16", "model.heads=2", "model.feedforward=32", "training.tokens_per_batch=512"]


def measure(recipe: str, overrides: list[str], data_seconds: float, config: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: the seconds of each phase."""
    seconds: dict[str, Any] = {}
    before = time.perf_counter()

    def phase(name: str) -> None:
        nonlocal before
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds[name] = round(time.perf_counter() - before, 3)
        before = time.perf_counter()

    import torch

    phase("import torch")
    from regard.hardware import Hardware
    from regard.models.causal import Causal
    from regard.run import read_recipe
    from regard.training.compiling import compiler_ahead
    from regard.training.graph import Backward
    from regard.training.loss import cross_entropy

    phase("import regard")
    settings = read_recipe(recipe, overrides)
    hardware = Hardware.choose(settings.system.model_copy(update={"compile": "yes"}))
    torch.zeros(1, device=hardware.device)
    phase("start the device")
    with compiler_ahead(True):
        time.sleep(data_seconds)
    phase("data")
    torch.manual_seed(1)
    model = Causal(settings.model, 512).to(hardware.device)
    phase("model")
    if os.environ.get("WAIT_FOR_POOL"):
        from torch._inductor.async_compile import AsyncCompile

        AsyncCompile.wait_pool_ready()
        phase("processes")
    rows = max(1, settings.training.tokens_per_batch // settings.training.row_length)
    tokens = torch.randint(1, 500, (rows, settings.training.row_length + 1), device=hardware.device)
    scale = torch.tensor(1e-4, device=hardware.device)
    backward = Backward(model, lambda batch: cross_entropy(model(batch[:, :-1]), batch[:, 1:]), hardware)
    import torch._dynamo.utils
    import torch._inductor.config as compiler

    for name, value in config.items():
        set_setting(compiler, name, value)
    phase("load the compiler")
    backward.compute(tokens, scale)
    phase("first")
    backward.compute(tokens, scale)
    phase("second")
    names, values = torch._dynamo.utils.compile_times(repr="csv", aggregate=True)
    parts = {name: float(value) for name, value in zip(names, values, strict=True)}
    longest = sorted(parts, key=lambda name: -parts[name])[:8]
    return seconds | {"compiled": backward.compiled, "longest": {name: parts[name] for name in longest}}


def set_setting(config: Any, name: str, value: Any) -> None:
    *sections, last = name.split(".")
    for section in sections:
        config = getattr(config, section)
    setattr(config, last, value)


def run(options: argparse.Namespace, variant: str, cache: str) -> dict[str, Any]:
    environment, config = VARIANTS[variant]
    command = [sys.executable, __file__, "--child", json.dumps(config), "--recipe", options.recipe]
    command += ["--data-seconds", str(options.data_seconds), *(["--tiny"] if options.tiny else [])]
    folders = {"TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton"}
    started = time.perf_counter()
    done = subprocess.run(command, env=os.environ | folders | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout.splitlines()[-1]) | {"whole": round(time.perf_counter() - started, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="shakespeare", help="of a language model")
    parser.add_argument("--data-seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child is not None:
        overrides = TINY if options.tiny else []
        print(json.dumps(measure(options.recipe, overrides, options.data_seconds, json.loads(options.child))))
        return
    if options.tiny:
        options.variants, options.data_seconds = ["as it is"], 0.0
    results: dict[str, list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        for variant in options.variants:
            with tempfile.TemporaryDirectory(prefix="compile_time") as cache:
                for name in (variant, f"{variant}, kept"):
                    result = run(options, variant, cache)
                    results.setdefault(name, []).append(result)
                    print(f"{name}: {json.dumps(result)}", flush=True)
    print()
    for name, found in results.items():
        firsts = [result["first"] for result in found if "first" in result]
        print(f"{name:50} first {statistics.median(firsts):6.2f} s" if firsts else f"{name:50} failed")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
