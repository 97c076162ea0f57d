"""Hyena against fused attention on a GPU, and its decoding against the naive cache: how fast, how exact.

    python benchmarks/hyena.py                        # on a GPU: forward + backward against attention, and decoding
    python benchmarks/hyena.py --lengths 1024,2048    # on a CPU: decoding is the interesting part

Forward + backward: one layer, batch 1, width 768, 12 heads, bfloat16, compiled and captured in a CUDA graph, as the
trainer runs it; the median of `--rounds` replays, in turn, with the spread. Exactness: the long convolution and its
gradients in float32 against float64. Decoding: all tokens from the first to `--positions`, one layer, three ways:

    tiled    exact, as `regard generate` does it
    naive    exact, one sum over all inputs so far for every token (the cache is the inputs)
    whole    exact, the whole prefix through `forward` for every token (every 64th is timed)

The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch

from regard.config import ModelSettings
from regard.evaluation.cost import NaiveConvolution
from regard.layers.attention import Attention
from regard.layers.context import Context
from regard.layers.convolution import long_convolution
from regard.layers.hyena import Hyena
from regard.layers.streaming import TiledConvolution


def settings(width: int, length: int, mixer: str) -> ModelSettings:
    return ModelSettings(
        width=width, heads=max(1, width // 64), positions="none", mixer=mixer, hyena_filter_length=length
    )


def whole(length: int, device: str) -> Context:
    return Context.of(None, torch.arange(length, device=device)[None], causal=True)


def captured(layer: torch.nn.Module, width: int, length: int):
    """Forward and backward of one sequence as a CUDA graph."""
    layer.compile(dynamic=False)
    x = torch.randn(1, length, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn_like(x)
    context = whole(length, "cuda")

    def run() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            y = layer(x, context)
        y.backward(gradient)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.cuda.graph(graph):
        run()
    return graph, torch.cuda.max_memory_allocated() - before


def milliseconds(graph: torch.cuda.CUDAGraph) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def crossover(width: int, lengths: list[int], rounds: int) -> list[dict]:
    found = []
    for length in lengths:
        attention, attention_memory = captured(Attention(settings(width, length, "attention")).cuda(), width, length)
        hyena, hyena_memory = captured(Hyena(settings(width, length, "hyena"), causal=True).cuda(), width, length)
        for graph in (attention, hyena):
            milliseconds(graph)
        pairs = [(milliseconds(attention), milliseconds(hyena)) for _ in range(rounds)]
        ratios = sorted(a / h for a, h in pairs)
        result = {
            "length": length,
            "attention_ms": statistics.median(a for a, _ in pairs),
            "hyena_ms": statistics.median(h for _, h in pairs),
            "ratio": statistics.median(ratios),
            "ratio_lowest": ratios[0],
            "ratio_highest": ratios[-1],
            "attention_mb": attention_memory / 1e6,
            "hyena_mb": hyena_memory / 1e6,
        }
        print(" · ".join(f"{key} {value:,.4g}" for key, value in result.items()), flush=True)
        found.append(result)
        del attention, hyena
        torch.cuda.empty_cache()
    return found


def exactness(width: int, length: int, device: str) -> dict:
    torch.manual_seed(1)
    u = torch.randn(1, width, length, device=device, requires_grad=True)
    with torch.no_grad():
        h = Hyena(settings(width, length, "hyena"), causal=True).to(device).filters(length)[0][0]
    h.requires_grad_()
    gradient = torch.randn_like(u)
    y = long_convolution(u, h)
    u64, h64 = u.detach().double().requires_grad_(), h.detach().double().requires_grad_()
    y64 = long_convolution(u64, h64)
    pairs = zip(
        (y, *torch.autograd.grad(y, (u, h), gradient)),
        (y64, *torch.autograd.grad(y64, (u64, h64), gradient.double())),
        strict=True,
    )
    errors = [float(((a.double() - b).norm() / b.norm()).detach()) for a, b in pairs]
    return {"length": length} | dict(zip(("output", "gradient_of_input", "gradient_of_filter"), errors, strict=True))


@torch.inference_mode()
def decoding(width: int, positions: int, device: str) -> dict:
    torch.manual_seed(1)
    hyena = Hyena(settings(width, positions, "hyena"), causal=True).to(device).eval()
    x = torch.randn(1, positions, width, device=device)

    def finish() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def decode(kind: type[TiledConvolution] | type[NaiveConvolution]) -> tuple[float, torch.Tensor]:
        state = hyena.start(1, positions, x)
        state.convolutions = [kind(h_DK, 1) for h_DK, _ in hyena.filters(positions)]
        for t in range(64):  # warm
            hyena.step(x[:, t], state)
        state = hyena.start(1, positions, x)
        state.convolutions = [kind(h_DK, 1) for h_DK, _ in hyena.filters(positions)]
        started = finish()
        outputs = [hyena.step(x[:, t], state) for t in range(positions)]
        return finish() - started, torch.stack(outputs, 1)

    context = whole(positions, device)
    expected = hyena(x, context)
    tiled, tiled_output = decode(TiledConvolution)
    naive, naive_output = decode(NaiveConvolution)
    started, timed = finish(), range(63, positions, 64)
    for t in timed:
        hyena(x[:, : t + 1], whole(t + 1, device))
    prefix = (finish() - started) / len(timed) * positions
    return {
        "device": device,
        "positions": positions,
        "width": width,
        "tiled_us_a_token": tiled / positions * 1e6,
        "naive_us_a_token": naive / positions * 1e6,
        "whole_us_a_token": prefix / positions * 1e6,
        "naive_over_tiled": naive / tiled,
        "whole_over_tiled": prefix / tiled,
        "largest_difference_to_forward": float((tiled_output - expected).abs().max()),
        "largest_difference_of_naive": float((naive_output - expected).abs().max()),
        "largest_output": float(expected.abs().max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="1024,2048,4096,8192,16384,32768,65536")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--positions", type=int, default=8192)
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    lengths = [int(length) for length in options.lengths.split(",")]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    results: dict = {"decoding": [decoding(options.width, options.positions, device) for _ in range(2)]}
    results["exactness"] = [exactness(options.width, length, device) for length in (lengths[0], lengths[-1])]
    if device == "cuda":
        results["crossover"] = crossover(options.width, lengths, options.rounds)
    for result in results["decoding"] + results["exactness"]:
        print(" · ".join(f"{key} {value:.4g}" for key, value in result.items() if key != "device"))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
