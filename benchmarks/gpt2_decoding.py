"""How quickly does GPT-2 write? Regard beside `transformers`, with the same weights, in the same minute.

    python benchmarks/gpt2_decoding.py                          # 124 million parameters; bfloat16 on a GPU
    python benchmarks/gpt2_decoding.py --model RUN --batches 1
    python benchmarks/gpt2_decoding.py --tiny                   # seconds on a CPU

Both continue the same random prompts greedily, by the same number of tokens. Before that, the logits of the prompts are
compared in float32, and after it the texts: on a CPU in float32 they must be identical, or the script ends with 1.
`transformers` runs with its dynamic cache, its static one, and the static one compiled (on a GPU, as its documentation
recommends); Regard is compared with the quickest of them. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import regard
from measured import best, device_named, exact_float32, in_turn, left_out, machine, ratio, show, shown
from peers import gpt2
from regard.decoding.engines import Engines
from regard.decoding.generate import generate
from regard.models.causal import Causal
from regard.run import read_recipe
from regard.settings import CausalModel, GenerationSettings

NO_END = -1  # the id of no token: every text has the same length


def ours(engines: Engines, prompts_NT: Tensor, tokens: int) -> list[list[int]]:
    """The tokens that Regard writes after each prompt."""
    settings = GenerationSettings(max_tokens=tokens, temperature=0.0)
    context = prompts_NT.shape[1] + tokens + 1
    texts: list[list[int]] = [[] for _ in prompts_NT]
    found = generate(engines.source, prompts_NT.tolist(), settings, context=context, end=NO_END, engines=engines)
    for written in found:
        texts[written.row].append(written.token)
    return texts


def theirs(model: Any, prompts_NT: Tensor, tokens: int, **how: Any) -> list[list[int]]:
    """The tokens that `transformers` writes after each prompt."""
    found_NL = model.generate(
        prompts_NT,
        attention_mask=torch.ones_like(prompts_NT),
        do_sample=False,
        max_new_tokens=tokens,
        pad_token_id=0,
        **how,
    )
    return found_NL[:, prompts_NT.shape[1] :].tolist()


def ways(device: torch.device) -> dict[str, dict[str, Any]]:
    """How `transformers` can be run."""
    found: dict[str, dict[str, Any]] = {
        "dynamic cache": {},
        "static cache": {"cache_implementation": "static", "disable_compile": True},
    }
    if device.type == "cuda":  # elsewhere it does not compile by itself
        found["static cache, compiled"] = {"cache_implementation": "static"}
    return found


def agreement(ours: list[list[int]], theirs: list[list[int]]) -> tuple[int, float]:
    """How many texts are identical, and how many tokens are the same before the first that is not, on average."""
    common = [
        next((place for place, (a, b) in enumerate(zip(mine, other, strict=True)) if a != b), len(mine))
        for mine, other in zip(ours, theirs, strict=True)
    ]
    return sum(a == b for a, b in zip(ours, theirs, strict=True)), statistics.fmean(common)


def random_model(tiny: bool, positions: int) -> Causal:
    """GPT-2 as the recipe has it, with random weights."""
    settings: CausalModel = read_recipe("gpt2-124m").model
    vocabulary = 50257
    if tiny:
        settings = settings.model_copy(update={"layers": 2, "width": 64, "heads": 4, "feedforward": 256})
        vocabulary = 503
    settings = settings.model_copy(update={"max_positions": max(settings.max_positions, positions)})
    model = Causal(settings, vocabulary).eval()
    with torch.no_grad():  # also biases and norms, which start at 0 and 1: or a comparison would not see them
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.02)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto", help="auto: bfloat16 on a GPU, else float32")
    parser.add_argument("--model", help="a run of GPT-2's shape, instead of random weights")
    parser.add_argument("--batches", default="1,64")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=256, help="tokens to write after it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="a small model and few tokens")
    options = parser.parse_args()
    if options.tiny:
        options.batches, options.prompt, options.tokens, options.rounds = "1,4", 5, 12, 2
    device = device_named(options.device)
    half = options.dtype == "bfloat16" or (options.dtype == "auto" and device.type == "cuda")
    precision = torch.bfloat16 if half else torch.float32
    torch.manual_seed(1)
    loaded = regard.load(options.model, device="cpu").model if options.model else None
    model: Causal = (loaded or random_model(options.tiny, options.prompt + options.tokens + 1)).to(device)
    try:
        peer = gpt2(model)
    except ImportError as error:
        left_out("transformers", error)
        peer = None
    sizes = [int(size) for size in options.batches.split(",")]
    words = model.to_logits.out_features
    prompts = torch.randint(3, words, (max(sizes), options.prompt), device=device)
    apart = None
    if peer is not None:
        with torch.inference_mode(), exact_float32():
            rows = prompts[:4]
            apart = float((model(rows) - peer(rows).logits).abs().max())
        print(f"logits of the prompts in float32: at most {apart:.2g} apart")
        peer = peer.to(precision)
    engines = Engines(model, device, precision)

    show("batch", "who", "tokens/s", "Regard is quicker by", "identical texts", "tokens before a difference")
    ratios, texts, identical = {}, {}, True
    for size in sizes:
        batch = prompts[:size]
        run_ours = partial(ours, engines, batch, options.tokens)
        contenders: dict[str, Callable[[], object]] = {"Regard": run_ours}
        for name, how in ways(device).items() if peer is not None else ():
            contenders[name] = partial(theirs, peer, batch, options.tokens, **how)
        seconds, written = in_turn(contenders, options.rounds, device, unmeasured=2 if device.type == "cuda" else 1)
        quickest = best(seconds, [name for name in contenders if name != "Regard"])
        for name, of_rounds in seconds.items():
            same, common = agreement(written["Regard"], written[name])
            identical = identical and same == size
            speed = size * options.tokens / statistics.median(of_rounds)
            against = ratio(seconds["Regard"], of_rounds)
            show(size, name, shown(speed), against["median"], f"{same} of {size}", f"{common:.0f}")
            texts[f"{name}, batch {size}"] = {"tokens_per_second": round(speed, 1), "identical": same, "common": common}
        if quickest:
            ratios[f"batch {size}"] = {"peer": quickest, **ratio(seconds["Regard"], seconds[quickest])}
    exact = device.type == "cpu" and precision == torch.float32
    if exact and not identical:
        print("On a CPU in float32 the texts must be identical, and are not.")
    result = {"logits_apart": apart, "precision": str(precision), "speeds": texts, "ratios": ratios}
    print(json.dumps({"question": "gpt2_decoding", **machine(device), **result}))
    sys.exit(1 if exact and not identical else 0)


if __name__ == "__main__":
    main()
