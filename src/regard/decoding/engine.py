"""The engine that every kind of decoding runs on: texts enter slots, are written token by token, and leave.

A step feeds one token per row, and decides on the device what comes next: by beam search or by drawing. On a GPU it is
one CUDA graph, and the program reads what a step has found while the next one is running, so the device never waits.
Models whose mixers keep all rows at one position are decoded in waves: the next texts enter when all slots are free.

Shapes: B slots · K beams · N = B · K rows · X texts that enter · T their longest beginning
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding.hypothesis import Request, upload
from regard.models.causal import Causal
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.state import DecoderState, SlotState
from regard.training.replayed import WARM_UP, Replayed

READ_TOGETHER = {"cuda": 16384, "cpu": 256}  # positions that are read at once when texts enter


class Search(Protocol):
    """What is made of the logits: `Beams` or `Draws`."""

    tokens_N: Tensor  # to be fed next
    open_B: Tensor  # which slots go on
    by_B: Tensor  # and by how many positions
    report_BX: Tensor  # what the program is told after each step; first, whether the slot is open

    def enter(self, slots_X: Tensor, requests: Sequence[Request]) -> None: ...
    def advance(self, logits_NW: Tensor) -> Tensor | None: ...


class Rows(Protocol):
    """A model with the state of its rows."""

    waves: bool  # all texts must enter together

    def together(self, request: Request) -> tuple[int, int]:
        """How long a beginning is made, and how many of that length enter at once."""

    def enter(self, slots: Sequence[int], requests: Sequence[Request]) -> Sequence[Request]:
        """Read the beginnings; what is left for the search to begin with."""

    def step(self, tokens_N: Tensor) -> Tensor: ...
    def advance(self, by_B: Tensor, from_BK: Tensor | None) -> None: ...
    def before_step(self, texts: Sequence[Request | None]) -> None:
        """Told which slots are in use."""


# ---------------------------------------------------------------- rows that texts enter one by one


class SlotRows:
    """Of a model whose mixers have slots."""

    waves = False

    def __init__(self, model: Causal | EncoderDecoder, state: SlotState, most: int, device: torch.device, fixed: bool):
        """`most`: positions that the model has. `fixed`: no shape depends on how far the texts are."""
        self.model, self.state, self.most, self.device = model, state, most, device
        self.looks_short = not fixed and device.type != "cuda"  # where a kernel goes over each text's own length
        self.slots = state.places.slots
        self.readers: dict[int, _Reader] = {}

    def together(self, request: Request) -> tuple[int, int]:
        length = min(rounded(max(1, len(request.reads)), 16 if self.device.type == "cuda" else 8), self.most)
        # Some of the slots at a time: the others are not kept waiting for free ones.
        some = self.slots // (8 if self.device.type == "cuda" else 4)
        positions = self.model.source_positions(length) if isinstance(self.model, EncoderDecoder) else length
        return length, max(1, min(some, READ_TOGETHER.get(self.device.type, 256) // positions))

    def enter(self, slots: Sequence[int], requests: Sequence[Request]) -> Sequence[Request]:
        """All of one length; with the last repeated until there are as many as always."""
        length, rows = self.together(requests[0])
        told_XT = np.zeros((rows, 2 + length), np.int64)  # slot, length, and tokens of each
        for row, (slot, request) in enumerate(zip(slots, requests, strict=True)):
            told_XT[row, :2] = slot, len(request.reads)
            told_XT[row, 2 : 2 + len(request.reads)] = request.reads
        told_XT[len(requests) :] = told_XT[len(requests) - 1]
        if length not in self.readers:
            self.readers[length] = _Reader(self.model, self.state, told_XT, self.device)
        self.readers[length].read(told_XT)
        return requests

    def step(self, tokens_N: Tensor) -> Tensor:
        return self.model.step(tokens_N, self.state)

    def advance(self, by_B: Tensor, from_BK: Tensor | None) -> None:
        self.state.places.advance(by_B, from_BK)

    def before_step(self, texts: Sequence[Request | None]) -> None:
        if self.looks_short:
            places = self.state.places
            used_B1 = np.array([[text is not None] for text in texts])
            positions_BX = places.positions_N.view(self.slots, -1).numpy(force=True)
            furthest = int(positions_BX.max(initial=0, where=used_B1)) + 1
            places.reach = min(-(-furthest // 16) * 16, places.held)


class _Reader:
    """Reads beginnings of one length into slots; on a GPU by replaying a graph."""

    def __init__(
        self, model: Causal | EncoderDecoder, state: SlotState, example_XT: NDArray[np.int64], device: torch.device
    ):
        self.model, self.state, self.device = model, state, device
        self.told_XT = torch.from_numpy(example_XT).to(device, copy=True)
        self.replayed = Replayed(self._read, captured=device.type == "cuda")
        if self.replayed.captured:  # as with steps, every reading is then a replay
            for _ in range(WARM_UP + 1):
                self.replayed()

    def read(self, told_XT: NDArray[np.int64]) -> None:
        self.told_XT.copy_(upload(told_XT, self.device))
        self.replayed()

    def _read(self) -> None:
        slots_X, lengths_X, tokens_XT = self.told_XT[:, 0], self.told_XT[:, 1], self.told_XT[:, 2:]
        if isinstance(self.model, Causal):
            self.state.places.enter(slots_X, lengths_X)
            self.model.trunk.enter(tokens_XT, lengths_X, slots_X, self.state)
        else:
            self.state.places.enter(slots_X, torch.zeros_like(lengths_X))
            self.model.enter(tokens_XT, lengths_X, slots_X, self.state)


# ---------------------------------------------------------------- rows that are all at one position


class WaveRows:
    """Of a model with another mixer: a new state for every wave of texts."""

    waves = True

    def __init__(self, model: Causal | EncoderDecoder, slots: int, beams: int, length: int, device: torch.device):
        """`length`: the longest text, with its beginning."""
        self.model, self.slots, self.beams, self.length, self.device = model, slots, beams, length, device
        self.state: DecoderState

    def together(self, request: Request) -> tuple[int, int]:
        return 0, self.slots

    def enter(self, slots: Sequence[int], requests: Sequence[Request]) -> Sequence[Request]:
        """Into the first slots; the others hold copies, that nobody reads."""
        if isinstance(self.model, Causal):
            # All rows stand at the same position: what the shortest does not have is fed token by token.
            shared = min(len(request.reads) for request in requests)
            requests = [_fed_from(request, shared) for request in requests]
        rows = [request.reads for request in requests]
        rows += [rows[-1]] * (self.slots - len(rows))
        if isinstance(self.model, Causal):
            self.state = self.model.start(self.slots, self.length)
            if len(rows[0]):
                self.model.prefill(upload(rows, self.device), self.state)
            return requests
        lengths = np.array([len(row) for row in rows])
        segments = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
        source = np.zeros_like(segments)
        source[segments > 0] = np.concatenate(rows)
        source_BS, segments_BS = upload(source, self.device), upload(segments, self.device)
        self.state = self.model.start(source_BS, segments_BS, self.beams, self.length)
        return requests

    def step(self, tokens_N: Tensor) -> Tensor:
        return self.model.step(tokens_N, self.state)

    def advance(self, by_B: Tensor, from_BK: Tensor | None) -> None:
        if from_BK is not None:
            first_B1 = torch.arange(self.slots, device=from_BK.device)[:, None] * self.beams
            self.state.select((first_B1 + from_BK).flatten())

    def before_step(self, texts: Sequence[Request | None]) -> None:
        pass


def _fed_from(request: Request, position: int) -> Request:
    """The same text with only so many positions read at once; the rest of its beginning is forced."""
    rest = [*request.reads[position:], request.first]
    request.skipped = len(rest) - 1
    uniform = request.uniform
    if uniform is not None:
        uniform = np.pad(uniform, (request.skipped, 0))
    return replace(
        request,
        reads=request.reads[:position],
        first=rest[0],
        forced=[*rest[1:], *request.forced],
        limit=request.limit + request.skipped,
        uniform=uniform,
    )


# ---------------------------------------------------------------- the engine


@dataclass(frozen=True)
class Step:
    """What a step has found: the text in each slot, the search's report on it, and which slots are done with it."""

    texts: list[Request | None]
    report_BX: NDArray[np.float32]
    done: list[int]


class Engine:
    def __init__(self, rows: Rows, search: Search, slots: int, device: torch.device):
        self.rows, self.search, self.slots, self.device = rows, search, slots, device
        self.ahead = 1 if device.type == "cuda" else 0  # steps that are begun before one is read
        self.step = Replayed(self._step, captured=device.type == "cuda" and not rows.waves)
        self.texts: list[Request | None] = [None] * slots
        self.waiting: deque[Request] = deque()
        if self.step.captured:
            # With nobody in the slots yet, so that every step of a text is a replay: kernels that are captured may be
            # chosen otherwise, and round otherwise.
            with torch.inference_mode():
                for _ in range(WARM_UP + 1):
                    self.step()

    def _step(self) -> None:
        from_BK = self.search.advance(self.rows.step(self.search.tokens_N))
        self.rows.advance(self.search.by_B, from_BK)

    @torch.inference_mode()
    def run(self, requests: Iterable[Request]) -> Iterator[Step]:
        """Every step, as it is read. Further texts may be put into `waiting` meanwhile."""
        self.texts = [None] * self.slots
        self.waiting = deque(requests)
        running: deque[tuple[list[Request | None], Tensor, Any]] = deque()
        while True:
            self._let_in(idle=not running)
            occupied = any(text is not None for text in self.texts)
            if occupied:
                self.rows.before_step(self.texts)
                self.step()
                running.append((list(self.texts), *self._on_its_way()))
            if not running:
                return
            if len(running) > self.ahead or not occupied:
                yield self._read(*running.popleft())

    def leave(self, slot: int) -> None:
        """Nothing more is wanted of the text in this slot."""
        self.texts[slot] = None

    def _let_in(self, idle: bool) -> None:
        """Texts enter free slots: as many at once as are read together, or the last ones."""
        free = [slot for slot, text in enumerate(self.texts) if text is None]
        while self.waiting and free:
            length, most = self.rows.together(self.waiting[0])
            if self.rows.waves and (len(free) < self.slots or not idle):
                return
            if len(free) < min(most, len(self.waiting)) and len(free) < self.slots:
                return
            texts: list[Request] = []
            while self.waiting and len(texts) < min(most, len(free)):
                if self.rows.together(self.waiting[0])[0] != length:
                    break
                texts.append(self.waiting.popleft())
            slots, free = free[: len(texts)], free[len(texts) :]
            self.search.enter(upload(slots, self.device), self.rows.enter(slots, texts))
            for slot, text in zip(slots, texts, strict=True):
                self.texts[slot] = text
            if self.rows.waves:
                return

    def _on_its_way(self) -> tuple[Tensor, Any]:
        """The report of the step that was just begun, and what tells when it is here."""
        if self.device.type != "cuda":
            return self.search.report_BX.clone(), None
        report_BX = torch.empty(self.search.report_BX.shape, pin_memory=True)
        report_BX.copy_(self.search.report_BX, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        return report_BX, event

    def _read(self, texts: list[Request | None], report_BX: Tensor, event: Any) -> Step:
        if event is not None:
            event.synchronize()
        report = report_BX.numpy()
        # A slot may have been left, or been given to another text, since the step began.
        here = [text if text is now else None for text, now in zip(texts, self.texts, strict=True)]
        done = [slot for slot in np.flatnonzero(report[:, 0] == 0).tolist() if here[slot] is not None]
        for slot in done:
            self.leave(slot)
        return Step(here, report, done)


def in_classes(requests: Iterable[Request], room: Callable[[Request], tuple[int, ...]]) -> dict[Any, list[Request]]:
    """Texts by the room that each needs, so that the shapes it is decoded in follow from itself alone."""
    classes: dict[Any, list[Request]] = defaultdict(list)
    for request in requests:
        classes[room(request)].append(request)
    return classes


def rounded(length: int, smallest: int = 8) -> int:
    """A length up to the next of a few, so that texts of similar length are read in one shape."""
    step = smallest if length <= 64 else 32 if length <= 256 else 128
    return -(-length // step) * step
