"""No phrase twice: a token is forbidden where it would complete a run of n tokens that the text already has.

    … a b c … a b ⟶ not c        with n = 3

The texts so far are where the logits are, in a table of fixed shape, so that a step stays one CUDA graph: nothing
here waits for the device, and what is written in a column before a text's own step is all that counts.

Shapes: N rows, one text each · B slots · K beams (N = B · K) · W words in the vocabulary · L longest text ·
        P = L − n + 1 places where a run may begin
"""

from __future__ import annotations

import torch
from torch import Tensor


class Repeats:
    """What every row has written, and which words that forbids."""

    def __init__(self, rows: int, length: int, size: int, device: torch.device | None = None):
        """`size`: n, the number of tokens that may not come again in the same order; 0: anything may."""
        self.size = size
        # A column to spare, for slots that are done.
        self.text_NL = torch.zeros(rows if size else 0, max(length + 1, size), dtype=torch.long, device=device)
        self.place_P = torch.arange(self.text_NL.shape[1] - max(size, 1) + 1, device=device)

    def forbid(self, logits_NW: Tensor, step_N: Tensor) -> None:
        """−∞ for each word that would repeat a run. `step_N`: how many tokens each row has."""
        if not self.size:
            return
        before, places = self.size - 1, len(self.place_P)
        # A run that ends before the text does; the text's own last tokens are no run yet.
        repeats_NP = self.place_P + before < step_N[:, None]
        for offset in range(before):
            newest_N1 = (step_N - before + offset).clamp(min=0)[:, None]
            repeats_NP = repeats_NP & (self.text_NL[:, offset : offset + places] == self.text_NL.gather(1, newest_N1))
        # The smaller of logit and ±∞: where nothing repeats, the logit.
        bound_NP = torch.where(repeats_NP, -torch.inf, torch.inf).to(logits_NW.dtype)
        logits_NW.scatter_reduce_(1, self.text_NL[:, before:], bound_NP, "amin")

    def write(self, tokens_N: Tensor, step_N: Tensor, from_BK: Tensor | None = None) -> None:
        """The next token of every row; with `from_BK`, after the text of that beam of the same slot."""
        if not self.size:
            return
        if from_BK is not None and from_BK.shape[1] > 1:
            text_BKL = self.text_NL.view(*from_BK.shape, -1)
            self.text_NL.copy_(text_BKL.gather(1, from_BK[:, :, None].expand_as(text_BKL)).view_as(self.text_NL))
        self.text_NL.scatter_(1, step_N[:, None], tokens_N[:, None])
