"""What does prompt lookup gain? Greedy text with and without it, one at a time, in the same minute.

    python benchmarks/lookup.py                                 # GPT-2, 124 million parameters; bfloat16 on a GPU
    python benchmarks/lookup.py --model RUN --text FILE         # a trained model that continues parts of a text
    python benchmarks/lookup.py --tiny                          # seconds on a CPU

What is gained depends on how much a text repeats itself; a random GPT-2 soon goes round in circles, so its texts do.
Hence the last column but two: how quick it would be if no guess were right. The texts with and without lookup are
compared: on a CPU in float32 they must be identical, or the script ends with 1. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

import regard
from gpt2_decoding import NO_END, agreement, random_model
from measured import device_named, in_turn, machine, ratio, show, shown
from regard.decoding.engines import Engines
from regard.decoding.generate import GeneratedToken, generate
from regard.models.causal import Causal
from regard.settings import GenerationSettings


def written(
    engines: Engines, prompts: list[list[int]], tokens: int, context: int, lookup: int
) -> list[list[GeneratedToken]]:
    """What is written after each prompt, one after the other."""
    settings = GenerationSettings(max_tokens=tokens, lookup=lookup)
    return [
        list(generate(engines.source, [prompt], settings, context=context, end=NO_END, engines=engines))
        for prompt in prompts
    ]


def random_texts(options: Any) -> tuple[Causal, list[list[int]], int]:
    """A model without training, prompts, and how many positions it has."""
    context = options.prompt + options.tokens + 1
    model = random_model(options.tiny, context)
    return model, torch.randint(3, model.to_logits.out_features, (options.prompts, options.prompt)).tolist(), context


def real_texts(options: Any) -> tuple[Causal, list[list[int]], int]:
    """A trained model, and prompts from all over a text."""
    run = regard.load(options.model, device="cpu")
    ids = run.tokenizer.encode([options.text.read_text(encoding="utf-8")])[0]
    every = max(1, (len(ids) - options.prompt) // options.prompts)
    prompts = [ids[start : start + options.prompt] for start in range(0, every * options.prompts, every)]
    return run.model, prompts, run.context


def told(
    texts: list[list[GeneratedToken]], plain: list[list[GeneratedToken]], seconds: list[float], before: list[float]
) -> dict[str, Any]:
    """Of texts with lookup, beside the same without it."""
    found, expected = ([[token.token for token in text] for text in each] for each in (texts, plain))
    passes = sum(not token.same_pass for text in texts for token in text)
    tokens, taken = sum(map(len, found)), statistics.median(seconds)
    same, common = agreement(found, expected)
    return {
        "tokens_per_second": round(tokens / taken, 1),
        "quicker_by": ratio(seconds, before),
        "tokens_a_pass": round(tokens / passes, 2),
        "microseconds_a_pass": round(1e6 * taken / passes),
        "if_none_were_right": round(statistics.median(before) / tokens / (taken / passes), 3),
        "identical": same,
        "common": common,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto", help="auto: bfloat16 on a GPU, else float32")
    parser.add_argument("--model", help="a run of a language model, instead of random weights")
    parser.add_argument("--text", type=Path, help="what the prompts of --model are taken from")
    parser.add_argument("--lookups", default="3,7,15", help="how many tokens are guessed at a time")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=256, help="tokens to write after it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="a small model and few tokens")
    options = parser.parse_args()
    if (options.model is None) != (options.text is None):
        parser.error("--model and --text go together")
    if options.tiny:
        options.lookups, options.prompts, options.prompt, options.tokens, options.rounds = "3,7", 4, 12, 40, 2
    device = device_named(options.device)
    half = options.dtype == "bfloat16" or (options.dtype == "auto" and device.type == "cuda")
    precision = torch.bfloat16 if half else torch.float32
    torch.manual_seed(1)
    model, prompts, context = real_texts(options) if options.model else random_texts(options)
    engines = Engines(model.to(device), device, precision)

    run = partial(written, engines, prompts, options.tokens, context)
    contenders = {"none": partial(run, lookup=0)}
    contenders |= {number: partial(run, lookup=int(number)) for number in options.lookups.split(",")}
    seconds, texts = in_turn(contenders, options.rounds, device, unmeasured=2 if device.type == "cuda" else 1)
    titles = "guesses", "tokens/s", "quicker by", "tokens a pass", "µs a pass", "if none were right"
    show(*titles, "identical texts", "tokens before a difference")
    results = {}
    for name, of_rounds in seconds.items():
        found = results[name] = told(texts[name], texts["none"], of_rounds, seconds["none"])
        speeds = shown(found["tokens_per_second"]), found["quicker_by"]["median"], found["tokens_a_pass"]
        costs = found["microseconds_a_pass"], found["if_none_were_right"]
        show(name, *speeds, *costs, f"{found['identical']} of {len(prompts)}", f"{found['common']:.0f}")
    differs = any(found["identical"] < len(prompts) for found in results.values())
    exact = device.type == "cpu" and precision == torch.float32
    if exact and differs:
        print("On a CPU in float32 the texts must be identical, and are not.")
    print(json.dumps({"question": "lookup", **machine(device), "precision": str(precision), "guesses": results}))
    sys.exit(1 if exact and differs else 0)


if __name__ == "__main__":
    main()
