"""What share of a training batch is padding?

    python benchmarks/padding.py --recipe multi30k --data DIR

Draws two epochs of batches as training does and counts the positions that hold nothing. Beside it, the
same sentences one to a row in batches sorted by length, as bucketing does. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from regard.data.batch import DataState
from regard.data.pair_batches import PairStream, Rectangle
from regard.data.pairs import pair_splits
from regard.data.tokenised import tokenise_pairs
from regard.run import read_recipe
from regard.tasks.translate import learn_tokenizers


def bucketed(lengths: np.ndarray, tokens: int) -> float:
    """Padding when sentences are sorted by length and each batch is as wide as its longest."""
    ordered = np.sort(lengths)
    width = 0
    start = 0
    while start < len(ordered):
        count = 1
        while start + count < len(ordered) and (count + 1) * ordered[start + count] <= tokens:
            count += 1
        width += count * int(ordered[start + count - 1])
        start += count
    return 1 - float(ordered.sum()) / width


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="multi30k")
    parser.add_argument("--data", required=True)
    options = parser.parse_args()
    settings = read_recipe(options.recipe, data=options.data)
    source = pair_splits(settings.data)["train"]
    tokenizers = learn_tokenizers(settings.tokenizer, source)
    with tempfile.TemporaryDirectory() as cache:
        pairs = tokenise_pairs(source, tokenizers.both, Path(cache))
        training = settings.training
        rectangle = Rectangle.fitting(pairs, training.tokens_per_batch, training.row_length, settings.data.max_length)
        shares = []
        for batch, state in PairStream(pairs, rectangle, settings.seed, settings.data.max_length).batches(DataState()):
            if state.epoch == 2:
                break
            shares.append(batch.padding)
        sorted_by_length = bucketed(pairs.target.lengths + 1, training.tokens_per_batch)
    print(f"{len(shares)} batches of {rectangle}: mean {np.mean(shares):.2%}, worst {max(shares):.2%} padding")
    print(f"target side alone, one sentence a row, sorted by target length: {sorted_by_length:.2%}")
    print(json.dumps({"packed_mean": float(np.mean(shares)), "packed_worst": max(shares), "sorted": sorted_by_length}))


if __name__ == "__main__":
    main()
