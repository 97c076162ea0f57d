"""Training GPT-2 124M: Regard and nanoGPT in turn, in one process, from the same weights on the same tokens.

    python benchmarks/gpt2_training.py --nanogpt DIR                 # speed and memory of all variants
    python benchmarks/gpt2_training.py --nanogpt DIR --variants cudnn --profile
    python benchmarks/gpt2_training.py --nanogpt DIR --variants cudnn cudnn+half --curve 300
    python benchmarks/gpt2_training.py --variants cudnn+fused cudnn+fused+fp8 --curve 300
    python benchmarks/gpt2_training.py --nanogpt DIR --tiny          # a minute on a CPU, to see that it runs

DIR has nanoGPT's model.py; it is trained as its train.py does: compiled whole, bfloat16, vocabulary 50,304, fused
AdamW, gradients clipped to 1. Regard's vocabulary is GPT-2's own, 50,257, and its updates are those of its trainer.
First the loss and the gradients of both are compared, in float32. Then each variant of Regard is measured in turn with
nanoGPT. A variant is a list of what it has, joined by +:

    plain   what a training gets now, with FlashAttention 2
    cudnn   cuDNN's attention
    half    what the blocks add to, the residual stream, in bfloat16
    fused   what lies between products in kernels of Regard's own; nothing is compiled
    fp8     with fused: products of blocks in eight bits, but for gradients of weights
    trunk   all blocks compiled as one
    eager   nothing compiled
    whole   logits in memory whole, as a task without a head has them

A variant that fails is left out. --curve N trains nanoGPT and the variants for N steps on real text (--text, or the
sources of Python's own library), a byte for a token, and compares their losses; nanoGPT's 47 words more add at first
log(50,304 / 50,257) = 0.0009. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import re
import statistics
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.text_batches import TextBatch
from regard.hardware import Hardware
from regard.layers.embedding import Embedding
from regard.layers.head import Head
from regard.models import stack, trunk
from regard.models.causal import Causal
from regard.settings import CausalModel, SystemSettings, TrainingSettings
from regard.training import graph
from regard.training.graph import Backward
from regard.training.head_loss import head_loss
from regard.training.loss import training_loss
from regard.training.optimizer import Optimizer
from regard.training.update import Update

VARIANTS = ["plain", "cudnn", "cudnn+half", "cudnn+fused", "cudnn+fused+fp8", "cudnn+half+fused", "cudnn+half+trunk"]
PARTS = {"plain", "cudnn", "half", "fused", "fp8", "trunk", "eager", "whole"}
RATE, WARM_UP, DECAY, BETA2 = 6e-4, 50, 0.1, 0.95
KINDS = {  # of kernels, by what is in their names; the first that fits
    "attention": r"flash|fmha|sdpa|attention",
    "products": r"gemm|cutlass|nvjet|xmma|cublas|splitK",
    "loss": r"_one_pass|_two_passes|softmax|nll_loss",
    "optimizer": r"adam|multi_tensor|foreach|lpnorm",
    "between": r"triton_|_add_norm|_activate|_cast|layer_norm",
    "copies": r"memcpy|memset|copy|fill",
}


@dataclass(frozen=True)
class Shape:
    rows: int = 64
    length: int = 1024
    layers: int = 12
    heads: int = 12
    width: int = 768
    words: int = 50_257

    @property
    def filled(self) -> int:
        """The vocabulary that nanoGPT has."""
        return -(-self.words // 64) * 64

    @property
    def tokens(self) -> int:
        return self.rows * self.length


TINY = Shape(rows=4, length=32, layers=2, heads=2, width=32, words=300)
# One update: a batch and the learning rate in, the loss out; reading it waits for the device.
Step = Callable[[TextBatch, float], Callable[[], float]]


# ---------------------------------------------------------------- both sides


def nanogpt(folder: str, shape: Shape, words: int) -> Any:
    """Its model, with its own random weights."""
    path = Path(folder)
    path = path if path.is_file() else path / "model.py"
    spec = importlib.util.spec_from_file_location("nanogpt_model", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    config = module.GPTConfig(
        block_size=shape.length,
        vocab_size=words,
        n_layer=shape.layers,
        n_head=shape.heads,
        n_embd=shape.width,
        dropout=0.0,
        bias=True,
    )
    torch.manual_seed(1)
    return module.GPT(config)


def nanogpt_step(model: Any, device: torch.device, compiled: bool) -> Step:
    """An update as in its train.py."""
    optimizer = model.configure_optimizers(DECAY, RATE, (0.9, BETA2), device.type)
    network = torch.compile(model) if compiled else model

    def step(batch: TextBatch, rate: float) -> Callable[[], float]:
        for group in optimizer.param_groups:
            group["lr"] = rate
        tokens, labels = (tensor.to(device, non_blocking=True) for tensor in (batch.tokens_BT, batch.labels))
        with torch.autocast(device.type, torch.bfloat16):
            _, loss = network(tokens, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach().item

    return step


def ours(shape: Shape, theirs: Any | None) -> Causal:
    """A model of the same shape, with the same weights."""
    settings = CausalModel(
        layers=shape.layers,
        width=shape.width,
        heads=shape.heads,
        feedforward=4 * shape.width,
        activation="gelu",
        positions="learned",
        max_positions=shape.length,
        norm="pre",
        initialisation="gpt2",
        scale_embeddings=False,
        dropout=0.0,
    )
    torch.manual_seed(1)
    model = Causal(settings, shape.words)
    if theirs is not None:
        with torch.no_grad():
            for (name, mine), other in zip(model.named_parameters(), counterparts(theirs, shape.words), strict=True):
                assert mine.shape == other.shape, name
                mine.copy_(other)
    return model


def counterparts(theirs: Any, words: int, of: Callable[[nn.Parameter], Tensor] = lambda weight: weight) -> list[Tensor]:
    """Of nanoGPT's weights, or of what `of` says of them, in the order of Regard's."""
    body = theirs.transformer
    found = [of(body.wte.weight)[:words], of(body.wpe.weight)]
    for block in body.h:
        parts = [block.attn.c_attn, block.attn.c_proj, block.ln_1, block.mlp.c_fc, block.mlp.c_proj, block.ln_2]
        found += [of(weight) for part in parts for weight in (part.weight, part.bias)]
    return [*found, of(body.ln_f.weight), of(body.ln_f.bias)]


def loss_of(model: Causal, whole: bool = False) -> Callable[[TextBatch], Tensor]:
    """As `Task.loss` computes it."""
    head: Head = model.to_logits
    if whole:
        return lambda batch: training_loss(lambda one: model(one.tokens_BT), batch, 0.0, 0.0)
    return lambda batch: head_loss(lambda one: model.hidden(one.tokens_BT), head, batch, 0.0, 0.0)


def our_step(model: Causal, hardware: Hardware, parts: set[str]) -> Step:
    """An update as in Regard's trainer."""
    backward = Backward(model, loss_of(model, "whole" in parts), hardware)
    backward.cudnn = "cudnn" in parts
    settings = TrainingSettings(
        optimizer="adamw", beta2=BETA2, epsilon=1e-8, weight_decay=DECAY, learning_rate=RATE, clip_norm=1.0
    )
    optimizer = Optimizer(model, settings)
    if optimizer.captured:
        update = Update(backward, optimizer, None)
        return lambda batch, rate: _later(update([batch], batch.labels.numel(), rate, 0.0, lambda _: None))

    def step(batch: TextBatch, rate: float) -> Callable[[], float]:
        loss = backward(batch, batch.labels.numel())
        optimizer.gradient_norm()
        optimizer.step(rate)
        return loss.item

    return step


def _later(outcome: Any) -> Callable[[], float]:
    return lambda: float(outcome.read()[0])


@contextmanager
def varied(parts: set[str]) -> Iterator[None]:
    """What has no setting, changed for one variant."""
    before = Embedding.stream, graph.COMPILED, stack.FUSED
    Embedding.stream = torch.bfloat16 if "half" in parts else None
    graph.COMPILED = trunk.Trunk if "trunk" in parts else before[1]
    stack.FUSED = "fused" in parts
    try:
        yield
    finally:
        Embedding.stream, graph.COMPILED, stack.FUSED = before


# ---------------------------------------------------------------- data


def random_batches(shape: Shape, count: int) -> list[TextBatch]:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(3, shape.words, (count, shape.rows, shape.length + 1), generator=generator)
    return [_batch(each) for each in rows]


def text_batches(shape: Shape, count: int, text: str | None) -> list[TextBatch]:
    """Rows from random places of a text; every byte is a token, none of them the one that stands for nothing."""
    if text:
        content = Path(text).read_bytes()
    else:
        library = Path(sysconfig.get_paths()["stdlib"])
        files = sorted(path for path in library.glob("*.py") if path.is_file())
        content = b"\n".join(path.read_bytes() for path in files)
    ids = torch.frombuffer(bytearray(content), dtype=torch.uint8).long() + 3
    generator = torch.Generator().manual_seed(1)
    starts = torch.randint(len(ids) - shape.length - 1, (count, shape.rows), generator=generator)
    within = torch.arange(shape.length + 1)
    return [_batch(ids[each[:, None] + within]) for each in starts]


def _batch(tokens: Tensor) -> TextBatch:
    batch = TextBatch(labels=tokens[:, 1:].contiguous(), tokens_BT=tokens[:, :-1].contiguous())
    return batch.in_one_piece(pinned=torch.cuda.is_available())


# ---------------------------------------------------------------- the questions


def compare_first(folder: str, shape: Shape, device: torch.device) -> dict[str, float]:
    """Loss and gradients of both models, plain, in float32, on one row: how far they are apart."""
    theirs = nanogpt(folder, shape, shape.words).to(device)
    mine = ours(shape, theirs).to(device)
    batch = random_batches(shape, 1)[0].first(1).to(device)
    _, loss = theirs(batch.tokens_BT, batch.labels)
    loss.backward()
    own = loss_of(mine)(batch) / batch.labels.numel()
    own.backward()
    gradients = counterparts(theirs, shape.words, lambda weight: weight.grad)
    differences = [
        float((weight.grad - other).norm() / other.norm())
        for (_, weight), other in zip(mine.named_parameters(), gradients, strict=True)
    ]
    norm, other_norm = (
        float(torch.stack([gradient.norm() for gradient in of]).norm())
        for of in ([weight.grad for weight in mine.parameters()], gradients)
    )
    print(f"at the start, float32: loss {own.item():.6f}, of nanoGPT {loss.item():.6f}; gradient norm {norm:.6f} and")
    print(f"{other_norm:.6f}; largest relative difference of a gradient {max(differences):.1e}", flush=True)
    return {"loss": own.item(), "theirs": loss.item(), "gradients_apart": max(differences)}


@dataclass
class Contender:
    name: str
    step: Step
    memory: float  # GiB at most, without what the others hold


def started(name: str, make: Callable[[], Step], batches: list[TextBatch], device: torch.device) -> Contender:
    """Compiled, captured and warm."""
    before = held(device, reset=True)
    begun = time.perf_counter()
    step = make()
    for batch in (batches * 5)[:5]:
        step(batch, 0.0)()
    peak = (torch.cuda.max_memory_allocated() if device.type == "cuda" else 0) - before
    print(f"{name}: ready after {time.perf_counter() - begun:.0f} s", flush=True)
    return Contender(name, step, peak / 2**30)


def held(device: torch.device, reset: bool) -> int:
    gc.collect()
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    if reset:
        torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def seconds_of(contender: Contender, batches: list[TextBatch], device: torch.device) -> float:
    """A round: some updates; a loss is read two updates later, as a trainer that logs may do."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    begun, losses = time.perf_counter(), []
    for batch in batches:
        losses.append(contender.step(batch, 1e-5))
        if len(losses) > 2:
            losses.pop(0)()
    wait()
    return time.perf_counter() - begun


def kernels_of(contender: Contender, batches: list[TextBatch], device: torch.device, most: int) -> dict[str, float]:
    """Milliseconds of an update by kind of kernel; prints the longest kernels."""
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CUDA] if on_gpu else [ProfilerActivity.CPU]
    with profile(activities=activities) as profiler:
        for batch in batches[:3]:
            contender.step(batch, 1e-5)()
    events = profiler.key_averages()
    times = {
        event.key: (event.self_device_time_total if on_gpu else event.self_cpu_time_total) / 3e3 for event in events
    }
    kinds = dict.fromkeys([*KINDS, "rest"], 0.0)
    for name, taken in times.items():
        kinds[next((kind for kind, has in KINDS.items() if re.search(has, name, re.IGNORECASE)), "rest")] += taken
    summary = " · ".join(f"{kind} {taken:.2f}" for kind, taken in kinds.items())
    print(f"\n{contender.name}: {sum(times.values()):.2f} ms of kernels an update: {summary}")
    calls = {event.key: event.count / 3 for event in events}
    for name, taken in sorted(times.items(), key=lambda item: -item[1])[:most]:
        print(f"  {taken:8.3f} ms  {calls[name]:6.0f} x  {name[:110]}")
    sys.stdout.flush()
    return {kind: round(taken, 3) for kind, taken in kinds.items()}


def curve(step: Step, batches: list[TextBatch]) -> list[float]:
    """The loss of every update, with a linear warm-up."""
    rates = (RATE * min(1.0, (number + 1) / WARM_UP) for number in range(len(batches)))
    waiting = [step(batch, rate) for batch, rate in zip(batches, rates, strict=True)]
    return [read() for read in waiting]


# ---------------------------------------------------------------- the script


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", help="a folder with nanoGPT's model.py; without it, Regard alone is measured")
    parser.add_argument("--variants", nargs="+", default=VARIANTS)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8, help="updates in a round")
    parser.add_argument("--rows", type=int, help="rows in a batch")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--kernels", type=int, default=25, help="kernels that --profile prints")
    parser.add_argument("--curve", type=int, default=0, metavar="N", help="compare losses over N updates of real text")
    parser.add_argument("--text", help="a file to take the real text from")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, not compiled")
    options = parser.parse_args()
    unknown = {part for name in options.variants for part in name.split("+")} - PARTS
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(sorted(PARTS))}")
    shape = TINY if options.tiny else Shape()
    shape = Shape(**{**vars(shape), "rows": options.rows or shape.rows})
    choice = SystemSettings(precision="bfloat16", compile="no" if options.tiny else "yes")
    hardware = Hardware.choose(choice)
    device = hardware.device
    torch._dynamo.config.recompile_limit = 64  # every variant compiles the same blocks in another way
    results: dict[str, Any] = {"machine": hardware.name, "torch": torch.__version__, "shape": vars(shape)}
    if options.nanogpt:
        results["at the start"] = compare_first(options.nanogpt, shape, device)
    (curves if options.curve else speeds)(options, shape, hardware, results)
    print(json.dumps(results))


def made(name: str, options: Any, shape: Shape, hardware: Hardware) -> Callable[[], Step]:
    """What makes nanoGPT or a variant, from the same weights."""

    def make() -> Step:
        theirs = nanogpt(options.nanogpt, shape, shape.filled) if options.nanogpt else None
        if name == "nanoGPT":
            return nanogpt_step(theirs.to(hardware.device), hardware.device, compiled=hardware.compile)
        parts = set(name.split("+"))
        compiled = hardware.compile and not parts & {"eager", "fused"}
        own = Hardware(hardware.device, hardware.precision, compiled, eight_bits="fp8" in parts)
        return our_step(ours(shape, theirs).to(hardware.device).train(), own, parts)

    return make


@contextmanager
def surviving(name: str, results: dict[str, Any]) -> Iterator[None]:
    """A variant that fails is told of, and left out."""
    try:
        yield
    except Exception as error:
        traceback.print_exc(limit=-6)
        print(f"{name} is left out: {type(error).__name__}: {str(error)[:200]}", flush=True)
        results.setdefault("left out", {})[name] = f"{type(error).__name__}: {str(error)[:200]}"


def speeds(options: Any, shape: Shape, hardware: Hardware, results: dict[str, Any]) -> None:
    device, batches = hardware.device, random_batches(shape, options.steps)
    peer, rows = None, []
    if options.nanogpt:
        with surviving("nanoGPT", results):
            peer = started("nanoGPT", made("nanoGPT", options, shape, hardware), batches, device)
            if options.profile:
                results["kernels nanoGPT"] = kernels_of(peer, batches, device, options.kernels)
    for name in options.variants:
        with surviving(name, results), varied(set(name.split("+"))):
            found = measured(name, peer, options, shape, hardware, results)
            rows.append((name, found))
        held(device, reset=False)
    print("\nvariant | thousand tokens/s | lowest to highest | GiB | nanoGPT in turn | GiB | ratio | lowest to highest")
    for name, found in rows:
        mine, other, ratio = (found[key] for key in ("ours", "theirs", "ratio"))
        cells = [name, shown(mine, 1e-3), spread(mine, 1e-3), f"{found['memory']:.1f}"]
        if peer is not None:
            cells += [shown(other, 1e-3), f"{peer.memory:.1f}", f"{ratio['median']:.3f}"]
            cells += [f"{ratio['lowest']:.3f} to {ratio['highest']:.3f}"]
        print(*cells, sep=" | ")
    results["variants"] = dict(rows)
    if peer is not None:
        results["memory nanoGPT"] = round(peer.memory, 2)


def measured(
    name: str, peer: Contender | None, options: Any, shape: Shape, hardware: Hardware, results: dict[str, Any]
) -> dict[str, Any]:
    device, batches = hardware.device, random_batches(shape, options.steps)
    contender = started(name, made(name, options, shape, hardware), batches, device)
    mine, theirs = [], []
    for _ in range(options.rounds):
        mine.append(options.steps * shape.tokens / seconds_of(contender, batches, device))
        if peer is not None:
            theirs.append(options.steps * shape.tokens / seconds_of(peer, batches, device))
    if options.profile:
        results[f"kernels {name}"] = kernels_of(contender, batches, device, options.kernels)
    ratios = [one / other for one, other in zip(mine, theirs, strict=False)]
    found = {"median": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)} if ratios else None
    rounded = {key: round(value, 4) for key, value in found.items()} if found else None
    print(
        f"{name}: {shown(mine, 1e-3)}k tokens/s" + (f", ratio {rounded['median']:.3f}" if rounded else ""), flush=True
    )
    return {
        "ours": [round(value) for value in mine],
        "theirs": [round(value) for value in theirs],
        "ratio": rounded,
        "memory": round(contender.memory, 2),
    }


def shown(values: list[float], scale: float) -> str:
    return f"{statistics.median(values) * scale:,.1f}"


def spread(values: list[float], scale: float) -> str:
    return f"{min(values) * scale:,.1f} to {max(values) * scale:,.1f}"


def curves(options: Any, shape: Shape, hardware: Hardware, results: dict[str, Any]) -> None:
    batches = text_batches(shape, options.curve, options.text)
    found: dict[str, list[float]] = {}
    for name in [*(["nanoGPT"] if options.nanogpt else []), *options.variants]:
        with surviving(name, results), varied(set(name.split("+"))):
            found[name] = curve(made(name, options, shape, hardware)(), batches)
        held(hardware.device, reset=False)
    count = options.curve
    points = sorted({1, *(max(1, round(count * share)) for share in (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)), count})
    last = max(1, count // 10)
    print("\nloss at step |", " | ".join(str(point) for point in points), f"| mean of the last {last}")
    for name, losses in found.items():
        shares = [f"{losses[point - 1]:.4f}" for point in points]
        print(name, *shares, f"{statistics.mean(losses[-last:]):.4f}", sep=" | ")
    results["curves"] = {name: [round(loss, 5) for loss in losses] for name, losses in found.items()}


if __name__ == "__main__":
    main()
