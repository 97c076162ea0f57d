"""Prompt lookup: where a text repeats what stands in it already, several of its tokens are written in one pass.

    … a b c d e … a b c ⟶ d e …        what followed the last tokens when they stood there before is guessed to follow

A pass feeds the newest token and, after it, what is guessed. After each of them the model says which token it would
choose. As long as that is the next guess, the guess is right; after the first that is not, or after the last, the
model's own choice is written. So each token is the likeliest one after those before it, as in greedy decoding, and
a wrong guess costs nothing but its share of the pass. A pass without a match guesses all the same, since it has one
shape: the newest token again.

The text is where the logits are, and so is the search in it: on a GPU, a pass is one CUDA graph.

Shapes: one slot · A tokens fed in a pass, the newest and the guesses · W words in the vocabulary · C candidates ·
        P places in the text · M tokens that are compared
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.decoding.hypothesis import Request, upload
from regard.decoding.sampling import OPEN, Draws
from regard.settings import GenerationSettings

COMPARED = 8  # tokens: of all places where the text was as it is now, the one where it was so for longest is taken


class Lookup(Draws):
    """The next tokens of one text, at temperature 0."""

    def __init__(
        self,
        length: int,
        words: int,
        settings: GenerationSettings,
        *,
        end: int = -1,
        never: Sequence[int] = (),
        top: int = 0,
        device: torch.device | None = None,
    ):
        """`length`: the longest text, with its beginning. `top`: how many candidates to name."""
        super().__init__(1, length, words, settings, end=end, never=never, top=top, device=device)
        at_once = 1 + settings.lookup
        self.tokens_N = torch.zeros(at_once, dtype=torch.long, device=device)
        self.offset_A = torch.arange(at_once, device=device)
        self.by_B = torch.zeros_like(self.step_B)
        # Before the text lies what no token is like; behind it is room for what a pass writes. Zeros, because a pass
        # with nobody in the slot feeds something too.
        self.padded_X = torch.zeros(COMPARED + length + at_once, dtype=torch.long, device=device)
        self.padded_X[:COMPARED] = -1
        self.text_L = self.padded_X[COMPARED:]
        self.length_1 = torch.ones(1, dtype=torch.long, device=device)
        self.place_P = torch.arange(length + 1, device=device)
        self.back_M = torch.arange(COMPARED, device=device)
        self.nearness_M = self.back_M + 1
        self.copied_A = self.offset_A - 1
        # Whether the slot is open, and then of every token what `Draws` tells of one; −1 for one that is not written.
        self.report_BX = torch.zeros(1, 1 + at_once * (self.report_BX.shape[1] - 1), device=device)

    def enter(self, slots_X: Tensor, requests: Sequence[Request]) -> None:
        super().enter(slots_X, requests)
        (request,) = requests
        known = [*request.reads, request.first]
        self.text_L[: len(known)].copy_(upload(known, self.device))
        self.length_1.fill_(len(known))
        self._guess()

    def advance(self, logits_AW: Tensor) -> None:
        """As many tokens further as the model and the guesses agree on, and one more."""
        p_AC, tokens_AC = self._probabilities(logits_AW.float(), self._seen())
        chosen_A = tokens_AC[:, 0]
        goes_on_G = (chosen_A[:-1] == self.tokens_N[1:]) & (chosen_A[:-1] != self.end)
        written_A = torch.cat([self.open_B, goes_on_G]).cumprod(0).bool()
        written_A = written_A & (self.step_B + self.offset_A < self.limit_B)
        count_1 = written_A.sum(0, keepdim=True)
        if self.penalty != 1.0:
            self.seen_BW.scatter_(1, torch.where(written_A, chosen_A, self.tokens_N[:1])[None], True)
        # What is not written lies behind the end of the text, until something else is.
        self.text_L[self.length_1 + self.offset_A] = chosen_A
        self.length_1.add_(count_1)
        self.step_B.add_(count_1)
        ended_1 = (written_A & (chosen_A == self.end)).any(0, keepdim=True)
        self.open_B.logical_and_(~ended_1 & (self.step_B < self.limit_B))
        self.by_B.copy_(count_1 * self.open_B)
        self._guess()
        self.report_BX[:, OPEN] = self.open_B
        told_AX = self.report_BX[0, 1:].view(len(chosen_A), -1)
        told_AX[:, :2] = torch.stack([torch.where(written_A, chosen_A, -1).float(), p_AC[:, 0]], dim=1)
        self._name_candidates(told_AX[:, 2:], p_AC, tokens_AC)

    def _guess(self) -> None:
        """What is fed next: the newest token, and what followed where the text was last as it is now."""
        before_PM = self.padded_X[: len(self.place_P) + COMPARED - 1].unfold(0, COMPARED, 1)
        now_M = self.padded_X[self.length_1 + self.back_M]
        # How near the nearest token is that differs: 0 if all are the same, `COMPARED` if already the newest differs.
        differs_P = ((before_PM != now_M) * self.nearness_M).amax(1)
        worth_P = self.place_P - differs_P * len(self.place_P)  # the longest match, and of several the last
        place_1 = worth_P.masked_fill(self.place_P >= self.length_1, -len(worth_P) * (COMPARED + 1)).argmax(0, True)
        # What is copied ends where the text does, and then begins again; just before it is the newest token.
        self.tokens_N.copy_(self.text_L[place_1 + self.copied_A % (self.length_1 - place_1)])

    def _seen(self) -> Tensor:
        """What counts as written after each of the tokens that are fed: [A, W]."""
        if self.penalty == 1.0:
            return self.seen_BW
        at_once = len(self.tokens_N)
        up_to_AA = torch.where(self.offset_A[:, None] >= self.offset_A, self.tokens_N, self.tokens_N[:1])
        return self.seen_BW.repeat(at_once, 1).scatter_(1, up_to_AA, True)
