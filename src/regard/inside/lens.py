"""The logit lens: what the model would predict if it stopped after each layer.

    logits_l = head(norm(x_l))                       x_l: the residual stream after layer l; x_0: the embedding
    agreement_l = share of answers whose likeliest word is the final one
    KL_l = Σ p_final ln(p_final / p_l)               nats
    p = softmax(logits), or σ(logits) where classes do not exclude each other

At the last layer this is the model's own prediction: agreement is 100 %, and KL is 0.

KL is computed in float64, and is 0 where all logits are equal up to rounding in float32.

Shapes: L layers, the embedding first · A answers · W words or classes
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import UsageError
from regard.inside.named import Named, Result, named
from regard.inside.subject import unfused_eval
from regard.inside.trace import Trace

ROUNDING = 2.0**-20  # of logits, relative to the largest: a few units in the last place, since they are sums


@dataclass(frozen=True, repr=False)
class Lens(Result):
    """Predictions after each layer of the last stack."""

    likeliest: Named  # probability of the likeliest word: [L, A]; its notes have the `words`
    answer: Named  # probability of the answer itself: [L, A]
    kl: Named  # [L, A]
    agreement: Named  # [L], %


@torch.no_grad()
def lens(trace: Trace) -> Lens:
    subject = trace.subject
    if subject.readout is None:
        raise UsageError(
            "There is no lens for this model.",
            "Its answer is not a linear map of the last layer's output.",
            "Choose another kind of run.",
        )
    last = trace.last
    layers = ["embedding", *(str(number + 1) for number in range(len(last.layers)))]
    answers = answer_names(trace)
    final_AW = subject.softmax_logits(trace.logits_AW)
    divergence = kl_of_sigmoids if subject.independent else kl_of_softmax
    answer_A1 = torch.tensor([[answer.token] for answer in subject.answers], device=final_AW.device)
    p_likeliest, p_answer, kl, likeliest = [], [], [], []
    for x_TD in last.residual_LTD:
        with unfused_eval(subject.model):
            logits_AW = subject.readout(x_TD[None])[0].float()
        p_AW, best_A = subject.log_p(logits_AW).exp(), subject.likeliest(logits_AW)
        p_likeliest.append(p_AW.gather(1, best_A[:, None])[:, 0])
        likeliest.append(best_A)
        p_answer.append(p_AW.gather(1, answer_A1)[:, 0])
        kl.append(divergence(final_AW, subject.softmax_logits(logits_AW)))
    tokens_LA = torch.stack(likeliest)
    agreement_L = 100 * (tokens_LA == subject.likeliest(trace.logits_AW)).float().mean(-1)
    axes = [("layer", layers), ("answer", answers)]
    words = [[subject.name_of(token) for token in row] for row in tokens_LA.tolist()]
    return Lens(
        named("probability of the likeliest", torch.stack(p_likeliest), axes, words=words),
        named("probability of the answer", torch.stack(p_answer), axes),
        named("KL", torch.stack(kl), axes, "nats"),
        named("agreement", agreement_L, [("layer", layers)], "%"),
    )


def kl_of_softmax(final_AW: Tensor, logits_AW: Tensor) -> Tensor:
    """KL(p_final ‖ p) of each answer, in nats: [A]. Terms with p_final = 0 are 0, whatever p is."""
    log_p_AW, log_q_AW = final_AW.double().log_softmax(-1), logits_AW.double().log_softmax(-1)
    terms_AW = log_p_AW.exp() * (log_p_AW - log_q_AW)
    kl_A = torch.where(log_p_AW.isneginf(), 0.0, terms_AW).sum(-1)
    return kl_A.masked_fill(equal(final_AW, logits_AW), 0.0).clamp(min=0.0)


def kl_of_sigmoids(final_AW: Tensor, logits_AW: Tensor) -> Tensor:
    """The same for independent classes: the sum of the KL of their Bernoulli distributions."""
    final_AW, logits_AW = final_AW.double(), logits_AW.double()
    present_AW, absent_AW = (
        (sign * final_AW).sigmoid() * (F.logsigmoid(sign * final_AW) - F.logsigmoid(sign * logits_AW))
        for sign in (1, -1)
    )
    kl_A = (present_AW + absent_AW).sum(-1)
    return kl_A.masked_fill(equal(final_AW, logits_AW), 0.0).clamp(min=0.0)


def equal(final_AW: Tensor, logits_AW: Tensor) -> Tensor:
    """Whether all logits of an answer are equal up to rounding; those of tokens never generated are −∞: [A]."""
    apart_AW = torch.where(final_AW == logits_AW, 0.0, (final_AW - logits_AW).abs())
    largest_A = final_AW.where(final_AW.isfinite(), 0.0).abs().amax(-1).clamp(min=1.0)
    return apart_AW.amax(-1) <= ROUNDING * largest_A


def answer_names(trace: Trace) -> list[str]:
    """The labels of the answers, numbered if there are several."""
    labels = [answer.label for answer in trace.subject.answers]
    return labels if len(labels) < 2 else [f"{number + 1} {label}" for number, label in enumerate(labels)]
