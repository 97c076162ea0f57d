"""What a mixer costs at one length: time and memory of forward + backward, and time and state of decoding a token.

A mixer is measured alone, causal, on random vectors without padding. On a GPU it runs as in training: bfloat16,
compiled, captured in a CUDA graph and replayed; on a CPU in float32, as it is. Decoding is in float32 on both, one
step after the other, as `regard generate` does it.

How a cost grows is the slope of a line in log-log:     cost ≈ a · Tᵉ     ⇔     log cost ≈ log a + e log T

Shapes: B rows · T positions · H heads · K key width of a head · V value width of a head · D model width ·
        L longest sequence
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard import registry
from regard.hardware import Hardware
from regard.layers.attention import Attention
from regard.layers.context import Context
from regard.layers.mixer import Mixer
from regard.process_memory import growth_during
from regard.settings import ModelSettings

UNFUSED = "unfused"
WARM_UP = 3  # passes before a graph is captured
A_ROUND = 0.01  # seconds; shorter passes are repeated within a round, so that starting and reading the clock vanish


@dataclass(frozen=True)
class Setup:
    """What is the same for all mixers and lengths."""

    hardware: Hardware
    width: int
    heads: int
    batch: int = 1
    rounds: int = 5
    seconds: float = 2.0  # for all rounds of one point, and half of it for those of decoding there
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the mixers' own settings, by their names

    def layer(self, name: str, length: int) -> Mixer:
        """A mixer for sequences of this length, on the device."""
        mixer = "attention" if name == UNFUSED else name
        shape = {"mixer": mixer, "width": self.width, "heads": self.heads, "positions": "none"}
        own = {mixer: dict(self.own[mixer])} if mixer in self.own else {}
        settings = ModelSettings.model_validate({**shape, **own}).for_length(length)
        torch.manual_seed(1)
        return mixer_class(name)(settings, causal=True).to(self.hardware.device)

    def vectors(self, length: int) -> Tensor:
        return torch.randn(self.batch, length, self.width, device=self.hardware.device)

    def context(self, length: int) -> Context:
        positions_BT = torch.arange(length, device=self.hardware.device).expand(self.batch, -1)
        return Context.build(None, positions_BT, causal=True)


class UnfusedAttention(Attention):
    """The softmax written out: all T × T scores are in memory, and their gradients too."""

    compiles = False  # the compiler would recognise it and fuse it again

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        scores_BHTS = q @ k.transpose(-2, -1) / math.sqrt(self.key_width)
        if causal:
            mask = torch.ones(scores_BHTS.shape[-2:], dtype=torch.bool, device=q.device).tril()
        if mask is not None:
            scores_BHTS = scores_BHTS.masked_fill(~mask, -torch.inf)
        return scores_BHTS.softmax(dim=-1) @ v


def mixer_class(name: str) -> type[Mixer]:
    """A registered mixer, or attention without its fused kernel."""
    mixer: type[Mixer] = UnfusedAttention if name == UNFUSED else registry.load("mixers", name)
    return mixer


# ---------------------------------------------------------------- forward + backward


@dataclass(frozen=True)
class Spread:
    """Seconds: the median of some rounds, the least and the most."""

    median: float
    least: float
    most: float
    rounds: int

    @classmethod
    def over(cls, seconds: Sequence[float]) -> Spread:
        return cls(statistics.median(seconds), min(seconds), max(seconds), len(seconds))


@dataclass(frozen=True)
class PassCost:
    """Forward + backward, with the gradients of the input and of all parameters."""

    length: int
    time: Spread
    memory: int  # bytes at the peak, above what was held before
    compiled: bool
    captured: bool


def forward_backward(name: str, length: int, setup: Setup) -> PassCost:
    """Time and memory of one mixer at one length."""
    _free_memory()
    layer = setup.layer(name, length)
    return _on_cuda(layer, length, setup) if _is_cuda(setup) else _on_cpu(layer, length, setup)


def _on_cpu(layer: nn.Module, length: int, setup: Setup) -> PassCost:
    run = _pass(layer, length, setup)
    seconds: list[float] = []
    memory: list[int] = []
    # The least of three counts: libraries take memory for themselves now and then.
    while not seconds or (len(seconds) < 3 and sum(seconds) < setup.seconds / 2):
        memory.append(growth_during(lambda: seconds.append(_once(run, setup))))
    enough = sum(seconds) >= setup.seconds
    time = Spread.over(seconds) if enough else _rounds(run, min(seconds), setup)
    return PassCost(length, time, min(memory), False, False)


def _on_cuda(layer: Mixer, length: int, setup: Setup) -> PassCost:
    run = _pass(layer, length, setup)
    compiled = setup.hardware.compile and layer.compiles
    if compiled:
        torch.compiler.reset()  # else, after some lengths, no more of them would be compiled
        layer.compile(dynamic=False)
        compiled = _compiles(layer, run)
    stream = torch.cuda.Stream(setup.hardware.device)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(1 if layer.unrolled else WARM_UP):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    seconds = _once(run, setup)
    memory = torch.cuda.max_memory_allocated() - before
    # Where every position would be nodes of the graph there are hundreds of thousands, and they run no faster.
    graph = _captured(run) if not layer.unrolled and seconds < setup.seconds else None
    replay = graph.replay if graph is not None else run
    timed = Spread.over([seconds]) if seconds >= setup.seconds else _rounds(replay, _once(replay, setup), setup)
    return PassCost(length, timed, memory, compiled, graph is not None)


def _pass(layer: nn.Module, length: int, setup: Setup) -> Callable[[], Any]:
    x_BTD = setup.vectors(length).requires_grad_()
    gradient_BTD = torch.randn_like(x_BTD, dtype=setup.hardware.precision)
    context, leaves = setup.context(length), [x_BTD, *layer.parameters()]

    def run() -> Any:
        with setup.hardware.autocast():
            y_BTD = layer(x_BTD, context)
        return torch.autograd.grad(y_BTD, leaves, gradient_BTD)

    return run


def _compiles(layer: nn.Module, run: Callable[[], Any]) -> bool:
    """Whether torch.compile works here; if not, the layer is as before."""
    try:
        run()
    except Exception as error:
        if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        layer._compiled_call_impl = None
        return False
    return True


def _captured(run: Callable[[], Any]) -> torch.cuda.CUDAGraph | None:
    """The pass as one CUDA graph; None where that does not work."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            run()
    except RuntimeError:  # an operation that cannot be captured, or memory for a second copy is missing
        torch.cuda.synchronize()
        return None
    return graph


# ---------------------------------------------------------------- decoding


@dataclass(frozen=True)
class StepCost:
    """Decoding, one token at a time."""

    length: int
    first: int  # the token that the clock started at; it stopped at `length`
    time: Spread  # of one token, on average over those
    state: int  # bytes that the mixer remembers


def decoding(name: str, length: int, setup: Setup) -> dict[str, StepCost]:
    """What a token costs when the text is this long, in each of the ways that the mixer can be decoded."""
    _free_memory()
    layer = setup.layer(name, length).eval()
    for parameter in layer.parameters():
        parameter.requires_grad_(False)
    costs: dict[str, StepCost] = {}
    with torch.inference_mode():
        for way in layer.decodings(length):
            if way.tokens or costs[name].time.median * length <= setup.seconds:
                shown = f"{name}-{way.name}" if way.name else name
                costs[shown] = _steps(layer, way.start, length, way.tokens or length, setup)
    return costs


def _steps(layer: Mixer, start: Callable[[int, int, Tensor], Any], length: int, steps: int, setup: Setup) -> StepCost:
    """The last `steps` tokens of `length`; all that come before are read at once, outside of the time."""
    first, like = max(0, length - steps), setup.vectors(1)[:, 0]
    x_BTD, context = setup.vectors(length), setup.context(first)
    begun = time.perf_counter()
    seconds: list[float] = []
    while len(seconds) <= setup.rounds and (not seconds or time.perf_counter() - begun < setup.seconds / 2):
        state = start(setup.batch, length, like)
        if first:
            layer.prefill(x_BTD[:, :first], context, state)

        def run(state: Any = state) -> None:
            for t in range(first, length):
                layer.step(x_BTD[:, t], state)

        seconds.append(_once(run, setup) / (length - first))
    # The first round warms up, where there is another.
    return StepCost(length, first, Spread.over(seconds[1:] or seconds), held_bytes(state))


def held_bytes(state: Any) -> int:
    """Bytes of all tensors that a state holds, each counted once."""
    sizes: dict[int, int] = {}
    waiting = [state]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Tensor):
            sizes[each.untyped_storage().data_ptr()] = each.untyped_storage().nbytes()
        elif isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list | tuple):
            waiting += each
        elif hasattr(each, "__dict__"):
            waiting += vars(each).values()
    return sum(sizes.values())


# ---------------------------------------------------------------- growth


@dataclass(frozen=True)
class Growth:
    """cost ≈ a · T^exponent, over the lengths from `first` to `last`."""

    exponent: float
    first: int
    last: int

    def __str__(self) -> str:
        return f"T^{round(self.exponent, 2) + 0.0:.2f}"  # + 0: never −0.00


def growth(points: Sequence[tuple[int, float]]) -> Growth | None:
    """The line through the upper half of (length, cost), by least squares; None of fewer than three points."""
    points = sorted((length, cost) for length, cost in points if cost > 0)
    points = points[-max(3, math.ceil(len(points) / 2)) :]
    if len(points) < 3:
        return None
    slope, _ = statistics.linear_regression(
        [math.log(length) for length, _ in points], [math.log(cost) for _, cost in points]
    )
    return Growth(slope, points[0][0], points[-1][0])


def predicted(points: Sequence[tuple[int, float]], length: int) -> float:
    """What a greater length will cost, from the last two points: at least in proportion. 0 if nothing is known."""
    known = [(at, cost) for at, cost in points if cost > 0]
    if not known:
        return 0.0
    (near, cost), exponent = known[-1], 2.0
    if len(known) > 1:
        before, less = known[-2]
        exponent = min(max(math.log(cost / less) / math.log(near / before), 1.0), 2.5)
    return cost * (length / near) ** exponent


# ---------------------------------------------------------------- the clock


def _rounds(run: Callable[[], Any], seconds: float, setup: Setup) -> Spread:
    """As many rounds as asked for, or as the time allows: at least one. `seconds`: what a pass takes, about."""
    passes = max(1, min(100, int(A_ROUND / max(seconds, 1e-6))))

    def several() -> None:
        for _ in range(passes):
            run()

    rounds: list[float] = []
    while len(rounds) < setup.rounds and (not rounds or sum(rounds) * passes < setup.seconds):
        rounds.append(_once(several, setup) / passes)
    return Spread.over(rounds)


def _once(run: Callable[[], Any], setup: Setup) -> float:
    """Seconds, to the end of what was started."""
    if not _is_cuda(setup):
        begun = time.perf_counter()
        run()
        return time.perf_counter() - begun
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000


def _is_cuda(setup: Setup) -> bool:
    return setup.hardware.device.type == "cuda"


def _free_memory() -> None:
    """Give back what the last point used."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
