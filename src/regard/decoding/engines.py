"""What a model is decoded with: in which precision, how many texts side by side, and the engines already made.

On a GPU in half precision, decoding runs on a copy of the model whose weights are bfloat16; only logits are made in
float32, because bfloat16 cannot tell likely words apart. The copy takes over the weights anew for every job, since
training may have changed them.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.decoding.eight_bits import in_eight_bits
from regard.decoding.engine import Engine, SlotRows, WaveRows
from regard.models.causal import Causal
from regard.models.encoder_decoder import EncoderDecoder
from regard.training.processes import ALONE, Processes

Text = TypeVar("Text")
Result = TypeVar("Result")

KEPT = 8  # engines
ENOUGH_FOR_ALL = 2  # texts for each thread of a CPU
ROWS = {"cuda": 2048, "cpu": 128}  # hypotheses side by side, at most, if memory allows
SHARE_OF_MEMORY = 0.4  # of what is free, for what is kept of the texts
MULTIPLE = 64  # of words: products of such sizes are fast


class Engines:
    """Of one model; kept as long as it is used, so that nothing is allocated or captured twice."""

    def __init__(
        self,
        model: Any,
        device: torch.device | None = None,
        precision: torch.dtype = torch.float32,
        int8: bool = False,
    ):
        """`int8`: on a CPU, from the weights as they are now."""
        self.source = model
        self.device = device or torch.device("cpu")
        self.kept: OrderedDict[Hashable, Engine] = OrderedDict()
        self.processes, self.groups = ALONE, 1
        self.half = self.device.type == "cuda" and precision == torch.bfloat16
        self.model: Any = _half(model) if self.half else model
        if int8 and self.device.type == "cpu":
            self.model = in_eight_bits(model)
        if self.half:
            weights = dict(model.named_parameters())
            self.own = list(self.model.parameters())
            self.taken = [weights[name] for name, _ in self.model.named_parameters()]

    def share(self, processes: Processes, groups: int) -> None:
        """From now on all these processes ask for the same texts, which they search for in so many groups."""
        self.processes, self.groups = processes, groups

    def ready(self) -> None:
        """Before a job: with the weights as they are now."""
        if self.source.training:
            self.source.eval()
        if self.half:
            with torch.no_grad():
                torch._foreach_copy_(self.own, self.taken)
                self.model.to_logits.load(self.source.to_logits.weight)

    def get(self, key: Hashable, make: Callable[[], Engine]) -> Engine:
        """The engine of this description; a new one if there is none."""
        if key not in self.kept:
            while len(self.kept) >= KEPT:
                self.kept.popitem(last=False)
            with torch.inference_mode():
                self.kept[key] = make()
        self.kept.move_to_end(key)
        return self.kept[key]

    def forget(self) -> None:
        """Free what engines hold, after running out of memory."""
        self.kept.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def rows(
        self,
        slots: int,
        beams: int,
        length: int,
        most: int,
        source_length: int = 0,
        fixed: bool = False,
        at_once: int = 1,
    ) -> SlotRows | WaveRows:
        """Rows for texts of up to `length` tokens, of a model with `most` positions; `fixed`: of one shape for all.

        `at_once`: how many successive tokens of each text are fed in a step.
        """
        if not self.has_slots:
            assert at_once == 1
            return WaveRows(self.model, slots, beams, length, self.device)
        if isinstance(self.model, EncoderDecoder):
            state = self.model.start_slots(slots, beams, length, source_length)
        else:
            state = self.model.trunk.start_slots(slots, length, at_once)
        return SlotRows(self.model, state, most, self.device, fixed)

    @property
    def has_slots(self) -> bool:
        model = self.model
        has: bool = model.trunk.has_slots if isinstance(model, Causal) else model.has_slots
        return has

    def slots(self, texts: int, beams: int, length: int, source_length: int = 0) -> int:
        """How many texts are decoded side by side: as many as there are, as memory allows, and as pays."""
        most = max(1, ROWS.get(self.device.type, 64) // beams)
        if self.device.type == "cuda":
            free = torch.cuda.mem_get_info(self.device)[0]
            most = max(1, min(most, int(SHARE_OF_MEMORY * free) // self._bytes_of_slot(beams, length, source_length)))
        wanted = 1 << max(0, texts - 1).bit_length()
        return min(wanted, 1 << (most.bit_length() - 1))

    def shares(self, texts: Sequence[Text], fixed: bool) -> list[Sequence[Text]]:
        """One share for each thread of a CPU: threads that share texts wait less than threads that share a product.

        `fixed`: a text is always computed by one thread, even where there are few.
        """
        threads = torch.get_num_threads() if self.device.type == "cpu" and self.has_slots else 1
        if not fixed and len(texts) < ENOUGH_FOR_ALL * threads:
            threads = 1
        return [texts[first::threads] for first in range(min(threads, len(texts)))]

    def all_of(self, jobs: Sequence[Callable[[], Iterable[Result]]], fixed: bool) -> Iterator[Result]:
        """What all jobs give, on a CPU at the same time with a thread each."""
        if len(jobs) == 1 and not (fixed and self.device.type == "cpu"):
            yield from jobs[0]()
            return
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with ThreadPoolExecutor(len(jobs)) as pool:
                for found in list(pool.map(lambda job: list(job()), jobs)):
                    yield from found
        finally:
            torch.set_num_threads(threads)

    def _bytes_of_slot(self, beams: int, length: int, source_length: int) -> int:
        """Keys and values of all blocks, roughly, and what can be copied; and a few copies of the logits."""
        weight: Tensor = next(self.model.parameters())
        blocks = len(self.model.decoder if isinstance(self.model, EncoderDecoder) else self.model.trunk.blocks)
        words, width = self.source.to_logits.weight.shape
        numbers = 2 * blocks * width * (beams * length + source_length)
        if getattr(self.source, "copying", None) is not None:
            numbers += width * source_length
        return int(numbers * weight.element_size() + 16 * beams * words)


class HalfHead(nn.Module):
    """Logits in float32 from vectors and weights in bfloat16. The vocabulary is filled up to a multiple of 64."""

    def __init__(self, weight_WD: Tensor, cap: float):
        super().__init__()
        self.cap = cap
        self.words, width = weight_WD.shape
        padded = -(-self.words // MULTIPLE) * MULTIPLE
        self.weight: Tensor
        self.register_buffer("weight", weight_WD.new_zeros(padded, width, dtype=torch.bfloat16), persistent=False)
        self.load(weight_WD)

    def load(self, weight_WD: Tensor) -> None:
        self.weight[: self.words].copy_(weight_WD)

    def forward(self, x_ND: Tensor) -> Tensor:
        try:
            logits = torch.mm(x_ND, self.weight.T, out_dtype=torch.float32)
        except TypeError:  # an earlier torch
            logits = F.linear(x_ND, self.weight).float()
        logits = logits[:, : self.words]
        return self.cap * torch.tanh(logits / self.cap) if self.cap else logits


def _half(model: Any) -> Any:
    """A copy for decoding."""
    twin = copy.deepcopy(model)
    twin.to_logits = HalfHead(twin.to_logits.weight.detach(), twin.to_logits.cap)
    return twin.to(torch.bfloat16).requires_grad_(False).eval()
