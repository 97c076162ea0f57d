"""How much memory do ten million sentence pairs need?

    python benchmarks/memory.py --pairs 10000000

Writes that many pairs to a temporary folder, learns a vocabulary, tokenises them into a cache, and draws
batches over the first windows of an epoch. Prints the time and the peak memory of each stage; the last
line is JSON. The limit that Regard keeps is 2 GiB.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

from regard.data.batch import DataState
from regard.data.pair_batches import PairStream, Rectangle
from regard.data.pairs import pair_splits
from regard.data.samples import english_german
from regard.data.tokenised import tokenise_pairs
from regard.recipes import resolve
from regard.tasks.translate import learn_tokenizers


def write_pairs(folder: Path, count: int) -> None:
    """Distinct pairs: 50,000 generated ones, each followed by numbers."""
    base = english_german.pairs(50_000, seed=1)
    with (folder / "train.en").open("w") as english, (folder / "train.de").open("w") as german:
        for number in range(count):
            source, target = base[number % len(base)]
            tail = number // len(base)
            english.write(f"{source} {tail}\n")
            german.write(f"{target} {tail}\n")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        stages: dict[str, dict[str, float]] = {}

        def stage(name: str, started: float) -> None:
            stages[name] = {"seconds": round(time.perf_counter() - started, 1), "peak_gib": round(peak(), 2)}
            print(f"{name:<12} {stages[name]['seconds']:>8} s   peak {stages[name]['peak_gib']} GiB", flush=True)

        started = time.perf_counter()
        write_pairs(folder, options.pairs)
        stage("write", started)
        files = 'data.train=["train.en", "train.de"]'
        settings = resolve(
            "transformer-base", [f"data.root={json.dumps(temporary)}", files, "data.valid=[]", "data.test=[]"]
        )
        source = pair_splits(settings.data)["train"]
        started = time.perf_counter()
        tokenizers = learn_tokenizers(settings.tokenizer, source)
        stage("vocabulary", started)
        started = time.perf_counter()
        pairs = tokenise_pairs(source, tokenizers.both, folder)
        stage("tokenise", started)
        started = time.perf_counter()
        tokenise_pairs(source, tokenizers.both, folder)
        stage("reuse", started)
        started = time.perf_counter()
        training = settings.training
        rectangle = Rectangle.fitting(pairs, training.tokens_per_batch, training.row_length, settings.data.max_length)
        batches = PairStream(pairs, rectangle, 1, settings.data.max_length).batches(DataState())
        for _ in range(100):
            next(batches)
        stage("100 batches", started)
        print(json.dumps({"pairs": len(pairs), "stages": stages, "peak_gib": round(peak(), 2)}))


if __name__ == "__main__":
    main()
