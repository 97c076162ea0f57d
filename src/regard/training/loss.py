"""Loss: how surprised the model is by the right token.

    L = −Σ_t log p(y_t)                                     cross-entropy
    with smoothing ε:  L = −Σ_t [(1 − ε) log p(y_t) + ε · mean_w log p(w)]
    two classes in one image, of shares λ and 1 − λ:  L = λ L(y) + (1 − λ) L(y')
    R-Drop:            L = ½ (L₁ + L₂) + α/2 · Σ_t ½ [KL(p₁‖p₂) + KL(p₂‖p₁)]     (Liang et al., 2021)

Every loss is a sum over targets. The trainer divides by the number of targets in the whole batch, so any
split into pieces gives the same gradient.

Shapes: B rows · T target positions · W words in the vocabulary
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batch import Batch

AnyBatch = TypeVar("AnyBatch", bound=Batch)


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0, ignore: int = 0) -> Tensor:
    """Summed over the labels, [B, T] or any other shape, that are not `ignore`; logits have one dimension more."""
    return F.cross_entropy(
        logits.flatten(0, -2).float(),
        labels.flatten(),
        ignore_index=ignore,
        label_smoothing=smoothing,
        reduction="sum",
    )


def mixed_cross_entropy(
    logits_BK: Tensor, labels_B: Tensor, other_labels_B: Tensor, share_B: Tensor, smoothing: float = 0.0
) -> Tensor:
    """Of images that hold `share` of one class and the rest of another, summed. Same as with soft targets."""
    own_B, other_B = (
        F.cross_entropy(logits_BK.float(), labels, label_smoothing=smoothing, reduction="none")
        for labels in (labels_B, other_labels_B)
    )
    return (share_B * own_B + (1 - share_B) * other_B).sum()


def divergence(first_BTW: Tensor, second_BTW: Tensor, labels_BT: Tensor, ignore: int = 0) -> Tensor:
    """½ [KL(p₁‖p₂) + KL(p₂‖p₁)], summed over the labels that are not `ignore`."""
    log_p, log_q = first_BTW.float().log_softmax(-1), second_BTW.float().log_softmax(-1)
    # Σ p log(p/q) + Σ q log(q/p) = Σ (p − q)(log p − log q)
    both_BT = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)
    return 0.5 * (both_BT * (labels_BT != ignore)).sum()


def training_loss(
    logits_of: Callable[[AnyBatch], Tensor], batch: AnyBatch, smoothing: float, consistency: float
) -> Tensor:
    """The summed loss of a batch; with `consistency` above 0, R-Drop: each row twice with different dropout."""
    return loss_of_logits(logits_of(batch.twice() if consistency else batch), batch, smoothing, consistency)


def loss_of_logits(logits: Tensor, batch: Batch, smoothing: float, consistency: float) -> Tensor:
    """The same of logits of the batch, or with `consistency` of the batch twice."""
    if not consistency:
        return cross_entropy(logits, batch.labels, smoothing, batch.nothing)
    first, second = logits.chunk(2)
    labels = torch.cat([batch.labels, batch.labels])
    apart = divergence(first, second, batch.labels, batch.nothing)
    return 0.5 * cross_entropy(logits, labels, smoothing, batch.nothing) + 0.5 * consistency * apart
