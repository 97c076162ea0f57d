"""Beam search: keep the K likeliest beginnings, lengthen each by one token, keep the K likeliest again.

    score(y) = log p(y) / ((5 + |y|) / 6)^α         |y| counts <end>

A sentence is done when K hypotheses have ended, or at its longest length, where those still open end as
they are. With K = 1 this is greedy search.

Shapes: B sentences · K hypotheses each (N = B·K) · W words in the vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.decoding.hypothesis import Hypothesis, State, Stepper


@torch.inference_mode()
def beam_search(
    model: Stepper,
    state: State,
    *,
    beams: int,
    max_lengths: Sequence[int],
    start: int,
    end: int,
    never: Sequence[int] = (),
    length_penalty: float = 0.0,
    prefixes: Sequence[Sequence[int]] | None = None,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """For each sentence its finished hypotheses, best first. `prefixes` are tokens that must come first."""
    sentences = len(max_lengths)
    prefixes = prefixes or [()] * sentences
    finished: list[list[Hypothesis]] = [[] for _ in range(sentences)]
    active = list(range(sentences))  # the sentence that each row of the batch is
    tokens_N = torch.full((sentences * beams,), start, device=device)
    history_BKL = torch.empty(sentences, beams, 0, dtype=torch.long, device=device)
    # All K hypotheses start equal; only the first may be lengthened at first, or the K would stay equal.
    scores_BK = torch.full((sentences, beams), -torch.inf, device=device)
    scores_BK[:, 0] = 0.0

    length = 0
    while active:
        logits_NW = model.step(tokens_N, state)
        length += 1
        words = logits_NW.shape[-1]
        log_BKW = logits_NW.float().log_softmax(-1).view(len(active), beams, words)
        log_BKW[:, :, list(never)] = -torch.inf
        _force(log_BKW, [prefixes[sentence] for sentence in active], length - 1)
        total_BX = (scores_BK[:, :, None] + log_BKW).flatten(1)
        # 2K candidates: even if K of them end, K are left to continue.
        best_BC, flat_BC = total_BX.topk(min(2 * beams, total_BX.shape[1]), dim=1)
        from_BC, word_BC = flat_BC // words, flat_BC % words
        ends_BC = word_BC == end
        ends_BC[:, :beams] &= best_BC[:, :beams].isfinite()

        # An ending counts only among the K best, so that K = 1 is greedy.
        rank_C = torch.arange(ends_BC.shape[1], device=device)
        _collect(
            finished,
            active,
            history_BKL,
            best_BC,
            from_BC,
            ends_BC & (rank_C < beams),
            length,
            length_penalty,
        )

        # The K best that continue, in their order.
        keep_BK = (ends_BC.long() * len(rank_C) + rank_C).topk(beams, dim=1, largest=False, sorted=True).indices
        scores_BK, from_BK, word_BK = (x.gather(1, keep_BK) for x in (best_BC, from_BC, word_BC))
        history_BKL = torch.cat(
            [history_BKL.gather(1, from_BK[:, :, None].expand(-1, -1, length - 1)), word_BK[:, :, None]], -1
        )

        at_limit = [index for index, sentence in enumerate(active) if length >= max_lengths[sentence]]
        for index in at_limit:
            _end_open(finished[active[index]], history_BKL[index], scores_BK[index], beams, length, length_penalty)
        open_rows = [
            index for index, sentence in enumerate(active) if len(finished[sentence]) < beams and index not in at_limit
        ]
        if not open_rows:
            break
        rows_BK = torch.arange(len(active), device=device)[:, None] * beams + from_BK
        if len(open_rows) < len(active):
            open_B = torch.tensor(open_rows, device=device)
            active = [active[index] for index in open_rows]
            scores_BK, word_BK, history_BKL, rows_BK = (x[open_B] for x in (scores_BK, word_BK, history_BKL, rows_BK))
            state.select(rows_BK.flatten(), open_B)
        elif beams > 1:
            state.select(rows_BK.flatten())
        tokens_N = word_BK.flatten()
    return [sorted(ended, key=lambda hypothesis: -hypothesis.score)[:beams] for ended in finished]


def penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def _force(log_BKW: Tensor, prefixes: Sequence[Sequence[int]], position: int) -> None:
    """Where a prefix has a token at this position, forbid every other."""
    for index, prefix in enumerate(prefixes):
        if position < len(prefix):
            forced_K = log_BKW[index, :, prefix[position]].clone()
            log_BKW[index] = -torch.inf
            log_BKW[index, :, prefix[position]] = forced_K


def _collect(
    finished: list[list[Hypothesis]],
    active: list[int],
    history_BKL: Tensor,
    best_BC: Tensor,
    from_BC: Tensor,
    ended_BC: Tensor,
    length: int,
    alpha: float,
) -> None:
    """Put away the hypotheses that have just ended."""
    if not ended_BC.any():
        return
    index_X = ended_BC.nonzero()[:, 0]
    scores = best_BC[ended_BC].tolist()
    tokens = history_BKL[index_X, from_BC[ended_BC]].tolist()
    for index, score, row in zip(index_X.tolist(), scores, tokens, strict=True):
        finished[active[index]].append(Hypothesis(row, score, score / penalty(length, alpha)))


def _end_open(
    finished: list[Hypothesis], history_KL: Tensor, scores_K: Tensor, beams: int, length: int, alpha: float
) -> None:
    """At the longest length, what is still open counts as it is, best first, up to K."""
    for row, score in zip(history_KL.tolist(), scores_K.tolist(), strict=True):
        if len(finished) < beams and score > -torch.inf:
            finished.append(Hypothesis(row, score, score / penalty(length, alpha)))
