"""Mixer: how positions see each other. Attention, convolution and recurrence keep this one contract.

    y = forward(x, context)                          all positions of a row at once
    y_t = step(x_t, state)                           one position further, after `state = start(…)`
    y_1 … y_t = prefill(x_1 … x_t, context, state)   the first positions at once, then `step`

All three give the same numbers. A mixer must have `forward`; whoever else needs to know something about it (packing,
training, explaining, measuring) asks its class. Attention also has `trace(x, context)`, which returns an
`AttentionTrace`.

Shapes: B rows · T positions · D model width · N rows while decoding · L positions decoded so far
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from regard.layers.context import Context, Memory
from regard.settings import ModelSettings, PartSettings


class MixerState(Protocol):
    """What a mixer remembers from one position to the next."""

    def select(self, rows_N: Tensor) -> None:
        """Keep these rows, in this order; a row may be kept more than once."""


@dataclass(frozen=True)
class Decoding:
    """A way to decode, and how `regard bench` measures it."""

    name: str  # empty: the usual one
    start: Callable[[int, int, Tensor], Any]  # rows, longest length, a tensor of the right device and type
    tokens: int = 64  # the cost is the mean over the last tokens of a text; 0: over all of them


class Mixer(nn.Module):
    Settings: ClassVar[type[PartSettings]] = PartSettings  # its own table in a recipe, [model.NAME]
    title: ClassVar[str] = ""  # what it is called where a person reads it; empty: as its class
    shares_rows: ClassVar[bool] = False  # keeps the sequences of a row apart by `context.segments_BT`
    needs_mask: ClassVar[bool] = False  # reads `context.mask_B1TT`, which grows with the square of the length
    has_slots: ClassVar[bool] = False  # has `start_slots`: texts enter and leave while others are being decoded
    starts_from_memory: ClassVar[bool] = False  # in a decoder, the first state is made from `memory.summary_BD`
    cell_of_one: ClassVar[Any] = None  # of recurrence: one position of it, which can be fed what is found in a source
    compiles: ClassVar[bool] = True  # False: it is one call of a library already
    unrolled: ClassVar[bool] = False  # True: a CUDA graph of it has nodes for every position, too many if it is long
    decoding_remark: ClassVar[str] = ""  # what a reader of `regard bench` must know about its ways to decode
    compared_to: ClassVar[str] = ""  # another mixer, whose costs `regard bench` divides by those of this one

    def __init__(self, settings: ModelSettings, causal: bool = False, decoder: bool = False):
        """`causal`: positions see only what comes before them. `decoder`: there is a source, in `context.memory`."""
        super().__init__()

    def forward(self, x_BTD: Tensor, context: Context) -> Tensor:
        """All positions: [B, T, D]."""
        raise NotImplementedError

    def start(self, rows: int, max_length: int, like: Tensor, memory: Memory | None = None) -> Any:
        """The state before the first position.

        Unless a mixer has its own, it holds all inputs so far, and `step` reads them again. One that reads the memory
        must have its own.
        """
        return InputHistory()

    def step(self, x_ND: Tensor, state: Any) -> Tensor:
        """One position further: [N, D]."""
        inputs_NLD = state.append(x_ND[:, None])
        positions_1L = torch.arange(inputs_NLD.shape[1], device=inputs_NLD.device)[None]
        return self(inputs_NLD, Context.build(None, positions_1L, causal=True))[:, -1]

    def prefill(self, x_BTD: Tensor, context: Context, state: Any) -> Tensor:
        """`forward` over the first positions, remembered in the state for the steps that follow."""
        if isinstance(state, InputHistory):
            state.append(x_BTD)
            return self(x_BTD, context)
        return torch.stack([self.step(x_BD, state) for x_BD in x_BTD.unbind(1)], dim=1)

    def initialise(self) -> Iterable[nn.Module]:
        """Set the weights that start in their own way; the parts that hold them, which are then left as they are."""
        return ()

    def no_decay(self) -> Iterable[nn.Parameter]:
        """Weights with the shape of a matrix that are not linear maps: they are not decayed, nor given to Muon."""
        return ()

    def decodings(self, length: int) -> Iterator[Decoding]:
        """The ways to decode texts of this length. Each is used before the next is asked for."""
        yield Decoding("", self.start)

    @classmethod
    def remarks(cls, settings: ModelSettings, length: int) -> list[str]:
        """What to warn about before training on rows of this length."""
        return []


class InputHistory:
    """Everything a mixer has read."""

    def __init__(self) -> None:
        self.inputs_NLD: Tensor | None = None

    def append(self, x_NTD: Tensor) -> Tensor:
        """Add one or more positions; all inputs so far: [N, L, D]."""
        self.inputs_NLD = x_NTD if self.inputs_NLD is None else torch.cat([self.inputs_NLD, x_NTD], dim=1)
        return self.inputs_NLD

    def select(self, rows_N: Tensor) -> None:
        if self.inputs_NLD is not None:
            self.inputs_NLD = self.inputs_NLD[rows_N]
