"""Writing text with and without the cache: how much faster, and whether it is the same text.

    python benchmarks/generation.py --tokens 1024

A model of GPT-2's shape (smaller; random weights write as slowly as trained ones) continues one token
greedily. Without the cache the whole text is read again for every token (but only the last position is
turned into logits). The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from regard.decoding.generate import generate
from regard.models.causal import Causal
from regard.settings import CausalModel, GenerationSettings


@torch.inference_mode()
def without_cache(model: Causal, tokens: int) -> tuple[list[int], float]:
    started, text = time.perf_counter(), [5]
    for _ in range(tokens):
        logits = model.to_logits(model.trunk(torch.tensor([text]))[0, -1])
        logits[:3] = -torch.inf  # the special tokens
        text.append(int(logits.argmax()))
    return text[1:], time.perf_counter() - started


def with_cache(model: Causal, tokens: int, temperature: float = 0.0) -> tuple[list[int], float]:
    started = time.perf_counter()
    settings = GenerationSettings(max_tokens=tokens, temperature=temperature)
    found = [w.token for w in generate(model, [[5]], settings, context=tokens + 2, end=2, never=(0, 1, 2))]
    return found, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    torch.manual_seed(1)
    settings = CausalModel(
        layers=4,
        width=256,
        heads=4,
        feedforward=1024,
        activation="gelu-tanh",
        positions="learned",
        max_positions=options.tokens + 2,
        norm="pre",
        dropout=0.0,
    )
    model = Causal(settings, 8000).eval()
    results = []
    print("round | with cache, s | without, s | ratio | same text")
    for number in range(1, options.rounds + 1):
        quick, quick_seconds = with_cache(model, options.tokens)
        slow, slow_seconds = without_cache(model, options.tokens)
        again, _ = with_cache(model, options.tokens, temperature=1.0)
        once_more, _ = with_cache(model, options.tokens, temperature=1.0)
        assert again == once_more, "the same seed wrote another text"
        row = [round(quick_seconds, 2), round(slow_seconds, 2), round(slow_seconds / quick_seconds, 2), quick == slow]
        results.append(row)
        print(number, *row, sep=" | ", flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
