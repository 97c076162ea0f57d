"""The loss of answers: how surprised the model is by the places where an answer stands.

    L = −log Σ_(i, j) p_start(i) · p_end(j)                 over all places (i, j) of the answer in the text
    with smoothing ε:  L = (1 − ε) L − ε · mean_i [log p_start(i) + log p_end(i)]        over the readable positions
    R-Drop:            as in `loss.py`, with the divergences of start and end

Where the place is not known, all places of its text are: the model chooses among them.

Shapes: B rows · T positions · 2 start and end
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.data.question_batches import QuestionBatch
from regard.models.reader import over_samples


def span_loss(
    log_p_of: Callable[[QuestionBatch], Tensor], batch: QuestionBatch, smoothing: float, consistency: float
) -> Tensor:
    """Summed over the samples of the batch."""
    if not consistency:
        return _loss(log_p_of(batch), batch, smoothing)
    first_2BT, second_2BT = log_p_of(batch.twice()).chunk(2, dim=1)
    apart_2BT = (first_2BT.exp() - second_2BT.exp()) * (first_2BT - second_2BT)
    losses = [_loss(log_p_2BT, batch, smoothing) for log_p_2BT in (first_2BT, second_2BT)]
    return 0.5 * (losses[0] + losses[1]) + 0.25 * consistency * (apart_2BT * batch.readable_BT).sum()


def log_likelihood(log_p_2BT: Tensor, batch: QuestionBatch) -> Tensor:
    """Of the answer of each sample, at all its positions: [B, T]."""
    start_BT, end_BT = log_p_2BT
    begins_BT = batch.ends_BT >= 0
    span_BT = start_BT + end_BT.gather(1, batch.ends_BT.clamp(min=0))
    return over_samples(span_BT, batch.segments_BT, begins_BT)


def _loss(log_p_2BT: Tensor, batch: QuestionBatch, smoothing: float) -> Tensor:
    likely_BT = log_likelihood(log_p_2BT, batch)
    if smoothing:
        together_BTT = batch.segments_BT[:, :, None] == batch.segments_BT[:, None, :]
        among_BTT = (together_BTT & batch.readable_BT[:, None, :]).float()
        mean_BT = (among_BTT @ log_p_2BT.sum(0)[..., None])[..., 0] / among_BTT.sum(-1).clamp(min=1)
        likely_BT = (1 - smoothing) * likely_BT + smoothing * mean_BT
    return -torch.where(batch.labels != batch.nothing, likely_BT, 0.0).sum()
