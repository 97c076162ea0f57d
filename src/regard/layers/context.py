"""Context: which positions belong together, and who may look at whom.

A row of a batch holds several sequences, one after the other. `segments` numbers them 1, 2, 3 …; 0 is
padding. A position may look at another only inside its own segment, and, when order is causal, only at
itself and what came before.

Shapes: B rows · T query positions · S key positions · D model width
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Memory:
    """What a decoder knows of the source: the encoder's output, and the mask from each target position to it."""

    states_BSD: Tensor
    mask_B1TS: Tensor | None  # None: every position sees all of the source
    summary_BD: Tensor | None = None  # what a decoder's mixers may start from

    @property
    def seen_B1TS(self) -> Tensor:
        """The mask, also where all is seen."""
        if self.mask_B1TS is not None:
            return self.mask_B1TS
        return torch.ones(1, 1, 1, self.states_BSD.shape[1], dtype=torch.bool, device=self.states_BSD.device)


@dataclass(frozen=True)
class Context:
    """Everything a block must know about its rows besides the vectors themselves."""

    segments_BT: Tensor | None  # None: every row is one sequence without padding
    positions_BT: Tensor
    causal: bool
    mask_B1TT: Tensor | None  # None: no mask but `causal` itself, for which kernels have a faster way
    memory: Memory | None = None

    @classmethod
    def build(
        cls,
        segments_BT: Tensor | None,
        positions_BT: Tensor,
        causal: bool,
        memory: Memory | None = None,
        masked: bool = True,
    ) -> Context:
        """`masked`: False for mixers that do not read the mask, which grows with the square of the length."""
        mask = same_segment(segments_BT, segments_BT) if masked and segments_BT is not None else None
        if mask is not None and causal:
            length = positions_BT.shape[1]
            mask = mask & torch.ones(length, length, dtype=torch.bool, device=mask.device).tril()
        return cls(segments_BT, positions_BT, causal, mask, memory)


def same_segment(queries_BT: Tensor, keys_BS: Tensor) -> Tensor:
    """True where a query may look at a key: [B, 1, T, S].

    Padding (segment 0) may look anywhere: nobody reads what it computes, and a query that sees nothing
    at all would make softmax divide zero by zero.
    """
    equal_BTS = queries_BT[:, :, None] == keys_BS[:, None, :]
    return (equal_BTS | (queries_BT == 0)[:, :, None])[:, None]
