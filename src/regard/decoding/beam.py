"""Beam search: keep the K likeliest beginnings, lengthen each by one token, keep the K likeliest again.

    score(y) = log p(y) / ((5 + |y|) / 6)^α         |y| counts <end>

A sentence is done when K hypotheses have ended, or at its longest length, where those still open end as
they are. With K = 1 this is greedy search.

All of it happens where the logits are, in memory that is allocated once: what was written at step t, and from which
beam it went on, is column t of a table, and an ended hypothesis is a place in that table. Texts are read out of it
when a sentence is done. To look at the search itself, what was considered at each step can be kept in such a table too.

Shapes: B slots · K hypotheses each (N = B · K) · W words in the vocabulary · C candidates · E = 2K ended hypotheses ·
        L longest output · X sentences
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding.hypothesis import Hypothesis, Request, upload
from regard.decoding.repeats import Repeats
from regard.layers.slots import slot_kernel

CHUNK = 128  # words of which only the largest logit is looked at first


class Beams:
    """The hypotheses of every slot."""

    def __init__(
        self,
        slots: int,
        beams: int,
        length: int,
        *,
        end: int,
        never: Sequence[int] = (),
        forces: bool = False,
        no_repeat: int = 0,
        remembers: bool = False,
        device: torch.device | None = None,
    ):
        """`length`: the longest output. `forces`: some have tokens that must come first.

        `no_repeat`: as many tokens never come twice in the same order. `remembers`: all that was considered is kept.
        """
        self.slots, self.beams, self.end, self.device = slots, beams, end, device
        self.never = torch.tensor(sorted(never), device=device, dtype=torch.long)
        self.tokens_N = torch.zeros(slots * beams, dtype=torch.long, device=device)
        self.open_B = torch.zeros(slots, dtype=torch.bool, device=device)
        self.by_B = self.open_B  # one position each step
        self.step_B = torch.zeros(slots, dtype=torch.long, device=device)
        self.limit_B = torch.ones(slots, dtype=torch.long, device=device)
        self.scores_BK = torch.zeros(slots, beams, device=device)
        # word · K + the beam it goes on from; with a column to spare, for slots that are done
        self.written_BLK = torch.zeros(slots, length + 1, beams, dtype=torch.long, device=device)
        # log-probability, last step, beam there, length; with a row to spare, for what has not ended
        self.ended_BE4 = torch.zeros(slots, 2 * beams + 1, 4, device=device)
        self.count_B = torch.zeros(slots, dtype=torch.long, device=device)
        self.forced_BL = torch.full((slots, length + 1), -1, device=device) if forces else None
        self.repeats = Repeats(slots * beams, length, no_repeat, device)
        # of each of the K beams the 2K likeliest: word, and log-probability of all up to it
        shape = (slots, length + 1, beams, 2 * beams, 2)
        self.considered_BLKC2 = torch.full(shape, -torch.inf, device=device) if remembers else None
        self.report_BX = torch.zeros(slots, 1, device=device)

    def enter(self, slots_X: Tensor, requests: Sequence[Request]) -> None:
        """These slots begin anew."""
        first_X, limit_X = upload([[r.first for r in requests], [r.limit for r in requests]], self.device)
        self.tokens_N.view(self.slots, self.beams)[slots_X] = first_X[:, None]
        self.limit_B[slots_X] = limit_X
        self.open_B.index_fill_(0, slots_X, True)
        self.step_B.index_fill_(0, slots_X, 0)
        self.count_B.index_fill_(0, slots_X, 0)
        # All K hypotheses start equal; only the first may be lengthened at first, or the K would stay equal.
        self.scores_BK.index_fill_(0, slots_X, -torch.inf)
        self.scores_BK[:, 0].index_fill_(0, slots_X, 0.0)
        if self.forced_BL is not None:
            rows = np.full((len(requests), self.forced_BL.shape[1]), -1)
            for row, request in zip(rows, requests, strict=True):
                row[: len(request.forced)] = request.forced
            self.forced_BL[slots_X] = upload(rows, self.device)

    def advance(self, logits_NW: Tensor) -> Tensor | None:
        """One token further; the beam that each goes on from, [B, K], or None if there is only one."""
        slots, beams = self.slots, self.beams
        best_BC, from_BC, word_BC = self._candidates(logits_NW)
        rank_C = torch.arange(best_BC.shape[1], device=best_BC.device)
        among_best_C = rank_C < beams
        ends_BC = (word_BC == self.end) & (best_BC.isfinite() | ~among_best_C)
        # An ending counts only among the K best, so that K = 1 is greedy.
        step_B1 = self.step_B[:, None]
        self._end(ends_BC & among_best_C & self.open_B[:, None], best_BC, step_B1 - 1, from_BC)

        # The K best that continue, in their order.
        keep_BK = (ends_BC.long() * len(rank_C) + rank_C).topk(beams, dim=1, largest=False, sorted=True).indices
        scores_BK, from_BK, word_BK = (x.gather(1, keep_BK) for x in (best_BC, from_BC, word_BC))
        self.scores_BK.copy_(scores_BK)
        self.tokens_N.copy_(word_BK.flatten())
        column_B1K = step_B1[:, :, None].expand(-1, 1, beams)
        self.written_BLK.scatter_(1, column_B1K, (word_BK * beams + from_BK)[:, None])
        self.repeats.write(self.tokens_N, self._step_N, from_BK)

        # At the longest length, what is still open counts as it is, best first, up to K.
        at_limit_B = self.open_B & (self.step_B + 1 >= self.limit_B)
        finite_BK = scores_BK.isfinite() & at_limit_B[:, None]
        room_BK = finite_BK.long().cumsum(1) <= (beams - self.count_B)[:, None]
        self._end(finite_BK & room_BK, scores_BK, step_B1, torch.arange(beams, device=rank_C.device).expand(slots, -1))

        self.step_B.add_(self.open_B)
        self.open_B.logical_and_(~at_limit_B & (self.count_B < beams))
        self.report_BX.copy_(self.open_B[:, None])
        return from_BK if beams > 1 else None

    @property
    def _step_N(self) -> Tensor:
        return self.step_B[:, None].expand(-1, self.beams).flatten()

    def _candidates(self, logits_NW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The likeliest continuations of each slot, best first: log-probability, beam, word; [B, C] each.

        2K of them: even if K end, K are left to continue.
        """
        slots, beams, words = self.slots, self.beams, logits_NW.shape[-1]
        # The softmax is over every word, as in training; those that are never written are left out after it.
        if slot_kernel(logits_NW):
            from regard.decoding.likeliest import totals_and_chunks

            log_total_N, chunks_NX = totals_and_chunks(logits_NW, CHUNK)
        else:
            log_total_N, chunks_NX = logits_NW.float().logsumexp(-1), None
        if self.repeats.size:  # it changes too many words for the chunks to be known
            chunks_NX = None
        log_total_BK1 = log_total_N.view(slots, beams, 1)
        logits_NW.index_fill_(1, self.never, -torch.inf)
        if self.forced_BL is not None:  # what is forced may repeat
            forced_B11 = self.forced_BL.gather(1, self.step_B[:, None])[:, :, None]
            index_N1 = forced_B11.clamp(min=0).expand(-1, beams, 1).reshape(-1, 1)
            log_BK1 = logits_NW.gather(1, index_N1).float().view(slots, beams, 1) - log_total_BK1
        self.repeats.forbid(logits_NW, self._step_N)
        top_NC, word_NC = largest(logits_NW, min(2 * beams, words), chunks_NX, len(self.never))
        word_BKC = word_NC.view(slots, beams, -1)
        log_BKC = top_NC.float().view_as(word_BKC) - log_total_BK1
        if self.forced_BL is not None:
            alone_BKC = torch.cat([log_BK1, torch.full_like(log_BKC[..., 1:], -torch.inf)], dim=-1)
            log_BKC = torch.where(forced_B11 >= 0, alone_BKC, log_BKC)
            word_BKC = torch.where(forced_B11 >= 0, forced_B11, word_BKC)
        total_BKC = self.scores_BK[:, :, None] + log_BKC
        self._remember(word_BKC, total_BKC)
        total_BX = total_BKC.flatten(1)
        best_BC, flat_BC = total_BX.topk(min(2 * beams, total_BX.shape[1]), dim=1)
        return best_BC, flat_BC // word_BKC.shape[-1], word_BKC.flatten(1).gather(1, flat_BC)

    def _remember(self, word_BKC: Tensor, total_BKC: Tensor) -> None:
        if self.considered_BLKC2 is not None:
            now_B1KC2 = torch.stack([word_BKC.float(), total_BKC], dim=-1)[:, None]
            column_B1KC2 = self.step_B[:, None, None, None, None].expand_as(now_B1KC2)
            self.considered_BLKC2.scatter_(1, column_B1KC2, now_B1KC2)

    def _end(self, ends_BC: Tensor, log_p_BC: Tensor, step_B1: Tensor, beam_BC: Tensor) -> None:
        """Note the hypotheses that end now, behind those that ended before."""
        spare = 2 * self.beams
        place_BC = torch.where(ends_BC, self.count_B[:, None] + ends_BC.long().cumsum(1) - 1, spare)
        length_BC = (self.step_B[:, None] + 1).expand_as(beam_BC)
        entry_BC4 = torch.stack([log_p_BC, *(x.expand_as(beam_BC).float() for x in (step_B1, beam_BC, length_BC))], -1)
        self.ended_BE4.scatter_(1, place_BC[:, :, None].expand(-1, -1, 4), entry_BC4)
        self.count_B.add_(ends_BC.sum(1))

    def taken(self, slots: Sequence[int]) -> tuple[Tensor, ...]:
        """What is known of sentences that are done, on its way from the device."""
        slots_X = upload(slots, self.device)
        found = [self.written_BLK[slots_X], self.ended_BE4[slots_X], self.count_B[slots_X]]
        if self.considered_BLKC2 is not None:
            found.append(self.considered_BLKC2[slots_X])
        return tuple(x.to("cpu", non_blocking=True) for x in found)


def largest(x_NW: Tensor, count: int, chunks_NX: Tensor | None = None, changed: int = 0) -> tuple[Tensor, Tensor]:
    """The largest numbers of each row, and where they are, as `topk`; which is slow for long rows.

    The largest `count` numbers lie in the `count` chunks whose largest numbers are largest. `chunks_NX`: those of
    chunks, if they are known from before so many words were `changed`.
    """
    rows, words = x_NW.shape
    whole = words // CHUNK * CHUNK
    if words < 16 * CHUNK or count + changed > whole // CHUNK:
        return x_NW.topk(count, dim=1)
    chunks_NXC = x_NW[:, :whole].unflatten(1, (-1, CHUNK))
    chunk_NK = (chunks_NXC.amax(-1) if chunks_NX is None else chunks_NX).topk(count + changed, dim=1).indices
    chosen_NKC = chunks_NXC.gather(1, chunk_NK[:, :, None].expand(-1, -1, CHUNK))
    place_NKC = chunk_NK[:, :, None] * CHUNK + torch.arange(CHUNK, device=x_NW.device)
    rest_R = torch.arange(whole, words, device=x_NW.device)
    values_NX = torch.cat([chosen_NKC.flatten(1), x_NW[:, whole:]], dim=1)
    places_NX = torch.cat([place_NKC.flatten(1), rest_R.expand(rows, -1)], dim=1)
    values_NK, index_NK = values_NX.topk(count, dim=1)
    return values_NK, places_NX.gather(1, index_NK)


def hypotheses(
    written_XLK: NDArray[np.int64],
    ended_XE4: NDArray[np.float32],
    count_X: NDArray[np.int64],
    alpha: float,
    best: int = 0,
) -> list[list[Hypothesis]]:
    """For each sentence its `best` finished hypotheses (0: K), best first.

    Each is followed from its end to its beginning.
    """
    sentences, length, beams = written_XLK.shape
    exists_XE = np.arange(ended_XE4.shape[1] - 1) < count_X[:, None]
    log_p_XE = ended_XE4[:, :-1, 0].astype(np.float64)
    score_XE = np.where(exists_XE, log_p_XE / penalty(ended_XE4[:, :-1, 3].astype(np.float64), alpha), -np.inf)
    chosen_XE = np.argsort(-score_XE, axis=1, kind="stable")[:, : best or beams]
    log_p_XE, score_XE = (np.take_along_axis(x, chosen_XE, 1) for x in (log_p_XE, score_XE))
    last_XE, beam_XE = (np.take_along_axis(ended_XE4[..., c].astype(np.int64), chosen_XE, 1) for c in (1, 2))
    tokens_XEL = np.zeros((*last_XE.shape, length), np.int64)
    of_sentence = np.arange(sentences)[:, None]
    for step in range(last_XE.max(initial=-1), -1, -1):
        written_XE = written_XLK[of_sentence, step, beam_XE]
        tokens_XEL[..., step] = written_XE // beams
        beam_XE = np.where(step <= last_XE, written_XE % beams, beam_XE)
    tokens, last, log_p, score = (x.tolist() for x in (tokens_XEL, last_XE, log_p_XE, score_XE))
    return [
        [Hypothesis(tokens[x][e][: last[x][e] + 1], log_p[x][e], score[x][e]) for e in range(min(count, len(last[x])))]
        for x, count in enumerate(count_X.tolist())
    ]


def penalty(length: Any, alpha: float) -> Any:
    return ((5 + length) / 6) ** alpha
