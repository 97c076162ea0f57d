"""How long does a user wait for a whole command? Start, imports, loading, the work itself, the end.

    python benchmarks/whole_commands.py                                     # small runs, trained now
    python benchmarks/whole_commands.py --translator RUN --language RUN     # runs that are there
    python benchmarks/whole_commands.py --importtime                        # also what is slow to import
    python benchmarks/whole_commands.py --quick                             # each command once

Each command is a process of its own. Cold means that the caches of Regard, torch.compile and Triton are empty; warm,
that the same command has just run. `bare` is Python with torch imported, below which nothing that needs torch can be.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measured import show, shown
from regard.data.samples import english_german

CACHES = ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
SLOWEST = 15
IMPORT = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| (\s*)(\S+)")


def run(command: list[str], caches: Path, given: str = "", python: tuple[str, ...] = ()) -> tuple[float, str]:
    """Seconds of a command with its caches here, and what it wrote to standard error."""
    environment = os.environ | dict.fromkeys(CACHES, str(caches))
    started = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, *python, *command], input=given, capture_output=True, text=True, env=environment, check=False
    )
    seconds = time.perf_counter() - started
    if ended.returncode:
        sys.exit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    return seconds, ended.stderr


def slowest_imports(command: list[str], caches: Path, given: str) -> list[tuple[str, float]]:
    """The modules that take longest to import, all that they import counted, in seconds."""
    _, told = run(command, caches, given, python=("-X", "importtime"))
    found = [(name, int(total) / 1e6) for _, total, _, name in IMPORT.findall(told)]
    return sorted(found, key=lambda each: -each[1])[:SLOWEST]


def small_runs(folder: Path, device: str) -> tuple[str, str]:
    """A translator and a language model, trained for a few steps on built-in sentences."""
    pairs = english_german.pairs(2_000, seed=1)
    (folder / "text.txt").write_text("".join(source + "\n" for source, _ in pairs), encoding="utf-8")
    few = ["training.steps=40", "training.validate_every=40", "training.validate_bleu=false"]
    commands = {
        "translator": ["demo", *few, "training.tokens_per_batch=1024"],
        "language": ["shakespeare-cpu", *few[:2], "data.text=text.txt", "training.warmup=5", "--data", str(folder)],
    }
    for name, command in commands.items():
        print(f"training a small {name}", flush=True)
        run(["-m", "regard", "train", *command, f"system.device={device}", "--out", str(folder / name)], folder / "c")
    return str(folder / "translator"), str(folder / "language")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--translator", help="the run of a translator of English")
    parser.add_argument("--language", help="the run of a language model")
    parser.add_argument("--pairs", help="a .tsv file to evaluate the translator on, instead of built-in sentences")
    parser.add_argument("--sentences", type=int, default=1000, help="built-in sentences to evaluate on")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=5, help="of the warm command")
    parser.add_argument("--importtime", action="store_true", help=f"show the {SLOWEST} slowest imports of each command")
    parser.add_argument("--quick", "--tiny", action="store_true", help="few sentences, one round")
    options = parser.parse_args()
    if options.quick:
        options.sentences, options.rounds = 20, 1
    results: dict[str, Any] = {}
    imports: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        translator, language = options.translator, options.language
        if not (translator and language):
            trained = small_runs(folder, options.device)
            translator, language = translator or trained[0], language or trained[1]
        pairs = options.pairs or str(folder / "pairs.tsv")
        if not options.pairs:
            lines = [f"{source}\t{target}\n" for source, target in english_german.pairs(options.sentences, seed=9)]
            Path(pairs).write_text("".join(lines), encoding="utf-8")
        on, count = ["--device", options.device], len(Path(pairs).read_text(encoding="utf-8").splitlines())
        commands = {
            "bare: import torch": (["-c", "import torch"], ""),
            "regard --help": (["-m", "regard", "--help"], ""),
            "translate, one sentence": (["-m", "regard", "translate", translator, *on], "The old farmer sleeps.\n"),
            f"evaluate, {count:,} sentences": (["-m", "regard", "evaluate", translator, pairs, *on], ""),
            "generate, 100 tokens": (
                ["-m", "regard", "generate", language, "--prompt", "The old", "--max-tokens", "100", *on],
                "",
            ),
        }
        show("command", "cold, s", "warm, s", "lowest", "highest")
        for name, (command, given) in commands.items():
            caches = folder / f"caches-{len(results)}"
            cold, _ = run(command, caches, given)
            warm = [run(command, caches, given)[0] for _ in range(options.rounds)]
            results[name] = {"cold": round(cold, 2), "warm": [round(seconds, 2) for seconds in warm]}
            show(name, shown(cold), shown(statistics.median(warm)), shown(min(warm)), shown(max(warm)))
            if options.importtime:
                imports[name] = slowest_imports(command, caches, given)
    for name, slowest in imports.items():
        print(f"\n{name}: the slowest imports, with all that they import, s")
        for module, seconds in slowest:
            show(f"{seconds:.3f}", module)
    median = {name: round(statistics.median(result["warm"]), 2) for name, result in results.items()}
    line = {"question": "whole_commands", "warm_median": median, "commands": results}
    print(json.dumps(line | ({"imports": imports} if imports else {})))


if __name__ == "__main__":
    main()
