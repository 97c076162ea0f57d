"""Hyena against fused attention on a GPU, and its decoding against the naive cache: how fast, how exact.

    python benchmarks/hyena.py                        # on a GPU: forward + backward against attention, and decoding
    python benchmarks/hyena.py --lengths 1024,2048    # on a CPU: decoding is the interesting part

Forward + backward: one layer, batch 1, width 768, 12 heads, bfloat16, compiled and captured in a CUDA graph, as the
trainer runs it; the median of `--rounds` replays, in turn, with the spread. Exactness: the long convolution and its
gradients in float32 against float64. Decoding: all tokens from the first to `--positions`, float32, three ways, the
whole layer (with its two matrices) and the convolution alone; "at the end" is the mean of the last 1,024 tokens:

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

from regard.layers.attention import Attention
from regard.layers.context import Context
from regard.layers.convolution import long_convolution
from regard.layers.hyena import Hyena
from regard.layers.streaming import NaiveConvolution, TiledConvolution
from regard.settings import ModelSettings


def settings(width: int, length: int, mixer: str) -> ModelSettings:
    model = ModelSettings(width=width, heads=max(1, width // 64), positions="none", mixer=mixer)
    return model.for_length(length)


def whole(length: int, device: str) -> Context:
    return Context.build(None, torch.arange(length, device=device)[None], causal=True)


def captured(layer: torch.nn.Module, width: int, length: int):
    """Forward and backward of one sequence as a CUDA graph, what it works on, and the most memory it holds."""
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
    return (graph, layer, x, gradient, context), torch.cuda.max_memory_allocated() - before


def milliseconds(captured: tuple) -> float:
    graph = captured[0]
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
    h_DK = hyena.filters(positions)[0][0]

    def layer(kind: type) -> tuple[float, float, torch.Tensor]:
        state = hyena.start(1, positions, x)
        state.convolutions = [kind(h_DK, 1)]
        return timed(lambda t: hyena.step(x[:, t], state))

    def convolution(kind: type) -> tuple[float, float, torch.Tensor]:
        alone = kind(h_DK, 1)
        return timed(lambda t: alone.step(x[:, t]))

    def timed(step) -> tuple[float, float, torch.Tensor]:
        """Microseconds a token, over all and over the last 1,024; and the outputs."""
        late = max(0, positions - 1024)
        times, outputs = [now(device)], []
        for t in range(positions):
            outputs.append(step(t))
            if t + 1 in (late, positions):
                times.append(now(device))
        whole_time, end_time = times[-1] - times[0], times[-1] - times[-2]
        return whole_time / positions * 1e6, end_time / (positions - late) * 1e6, torch.stack(outputs, 1)

    layer(TiledConvolution)  # warm
    expected = hyena(x, whole(positions, device))
    found: dict = {"device": device, "positions": positions, "width": width}
    for name, run in (("layer", layer), ("convolution", convolution)):
        (tiled, tiled_end, output), (naive, naive_end, other) = run(TiledConvolution), run(NaiveConvolution)
        found |= {f"{name}_tiled_us": tiled, f"{name}_naive_us": naive, f"{name}_ratio": naive / tiled}
        found |= {f"{name}_tiled_us_at_the_end": tiled_end, f"{name}_naive_us_at_the_end": naive_end}
        found |= {f"{name}_ratio_at_the_end": naive_end / tiled_end}
        if name == "layer":
            found["largest_difference_to_forward"] = float((output - expected).abs().max())
            found["largest_difference_of_naive"] = float((other - expected).abs().max())
            found["largest_output"] = float(expected.abs().max())
    some = range(63, positions, 256)
    started = now(device)
    for t in some:
        hyena(x[:, : t + 1], whole(t + 1, device))
    found["whole_prefix_us"] = (now(device) - started) / len(some) * 1e6
    return found


def now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


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
