"""How large is the file of `regard explore -o`, and what does it leave out?

    python benchmarks/explore_size.py                   # 256 and 512 tokens × 12 layers × 12 heads; minutes on a CPU
    python benchmarks/explore_size.py --quick           # seconds: a narrow model, few tokens

A language model after one step of training looks almost alike everywhere, a trained one at a few places. So it is also
measured with queries scaled up; the mean of the largest weight of a row is told. The page must stay below 5 MB for 256
tokens and below 16 MB for 512; ends with 1 if one does not. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import regard
from regard.explore import recording
from regard.explore.session import Session
from regard.layers.attention import Attention

LIMITS = {256: 5_000_000, 512: 16_000_000}
LETTERS = "etaoin shrdlu cmfwyp "


def text(characters: int, seed: int) -> str:
    """Every character is a token."""
    return "".join(random.Random(seed).choices(LETTERS, k=characters))


def make(width: int, heads: int, length: int, folder: Path) -> Any:
    """A run with weights that are hardly trained."""
    (folder / "text.txt").write_text(text(40 * length, 1))
    shape = [f"model.width={width}", f"model.heads={heads}", f"model.feedforward={4 * width}", "model.layers=12"]
    shape += ["tokenizer.kind=character", "model.positions=rotary", "data.text=text.txt", "model.query_key_norm=false"]
    once = ["training.steps=1", "training.validate_every=1", f"training.row_length={2 * length}"]
    once += [f"training.tokens_per_batch={2 * length}"]
    return regard.load(regard.train("shakespeare-cpu", *shape, *once, out=folder / "run", data=folder))


@torch.no_grad()
def sharpen(model: nn.Module, by: float) -> None:
    """Scores are multiplied by this."""
    for module in model.modules():
        if isinstance(module, Attention):
            rows = module.to_qkv.weight.shape[0] // 3
            module.to_qkv.weight[:rows] *= by


def largest(task: Any, tokens: int) -> float:
    """The mean share of the weight of a row that is on one position, over the second half of the rows."""
    trace = task.trace(text(tokens, 2))
    shares = [part.attention().weights_BHTS.amax(-1) for part in trace.parts() if part.attends]
    return float(torch.stack([share[..., share.shape[-1] // 2 :].mean() for share in shares]).mean())


def measured(task: Any, tokens: int, folder: Path) -> dict[str, Any]:
    began = time.perf_counter()
    session = Session([task], {"text": text(tokens, 2)})
    page = folder / "page.html"
    left_out = recording.write_page(session, page)
    found = {"tokens": tokens, "bytes": page.stat().st_size, "left_out": left_out}
    found["largest_weight"] = largest(task, tokens)
    session.close()
    return found | {"seconds": time.perf_counter() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a narrow model and few tokens")
    parser.add_argument("--work", type=float, default=recording.WORK, help="multiplications to spend on changes")
    options = parser.parse_args()
    recording.WORK = options.work
    width, lengths = (96, (64,)) if options.quick else (768, (256, 512))
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        task = make(width, 12, max(lengths), folder)
        for peaked in (False, True):
            while peaked and largest(task, max(lengths)) < 0.5:
                sharpen(task.model, 2)
            for tokens in lengths:
                row = measured(task, tokens, folder)
                rows.append(row)
                print(
                    f"{tokens} tokens, largest weight of a row {row['largest_weight']:.2f}: "
                    f"{row['bytes'] / 1e6:.2f} MB in {row['seconds']:.0f} s"
                )
                for line in row["left_out"]:
                    print(f"    {line}")
    held = all(row["bytes"] < LIMITS.get(row["tokens"], LIMITS[256]) for row in rows)
    print(json.dumps({"held": held, "rows": rows}))
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
