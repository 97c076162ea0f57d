"""The logit lens: what the model would say if it stopped after each layer.

    logits_l = head(norm(x_l))                       x_l: the residual stream after layer l; x_0: what was embedded
    agreement_l = share of answers whose likeliest word is the final one
    KL_l = Σ p_final ln(p_final / p_l)               nats, mean of the answers

At the last layer this is the model's own answer: agreement is 100 %, and KL is 0.

Shapes: L layers, the embedding first · A answers · W words or classes · K likeliest
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.inside.named import Named, Together, named
from regard.inside.subject import plainly
from regard.inside.trace import Trace


@dataclass(frozen=True, repr=False)
class Lens(Together):
    """Seen through the head after each layer of the last stack."""

    likeliest: Named  # probability of the likeliest word: [L, A]; `words` in its notes
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
    final_AW = trace.logits_AW.log_softmax(-1)
    said_A1 = torch.tensor([[answer.token] for answer in subject.answers], device=final_AW.device)
    p_LA, said_LA, kl_LA, words_LA = [], [], [], []
    for x_TD in last.residual_LTD:
        with plainly(subject.model):
            log_p_AW = subject.readout(x_TD[None])[0].float().log_softmax(-1)
        best = log_p_AW.max(-1)
        p_LA.append(best.values.exp())
        words_LA.append(best.indices)
        said_LA.append(log_p_AW.gather(1, said_A1)[:, 0].exp())
        kl_LA.append(divergence(final_AW, log_p_AW))
    tokens_LA = torch.stack(words_LA)
    agreement_L = 100 * (tokens_LA == final_AW.argmax(-1)).float().mean(-1)
    axes = [("layer", layers), ("answer", answers)]
    words = [[subject.name_of(token) for token in row] for row in tokens_LA.tolist()]
    return Lens(
        named("probability of the likeliest", torch.stack(p_LA), axes, words=words),
        named("probability of the answer", torch.stack(said_LA), axes),
        named("KL", torch.stack(kl_LA), axes, "nats"),
        named("agreement", agreement_L, [("layer", layers)], "%"),
    )


def divergence(log_p_AW: Tensor, log_q_AW: Tensor) -> Tensor:
    """KL(p ‖ q) of each answer, in nats: [A]. Where p is 0, nothing is added, whatever q is."""
    terms_AW = log_p_AW.exp() * (log_p_AW - log_q_AW)
    return torch.where(log_p_AW.isneginf(), 0.0, terms_AW).sum(-1)


def answer_names(trace: Trace) -> list[str]:
    """The answers, numbered where there are several."""
    labels = [answer.label for answer in trace.subject.answers]
    return labels if len(labels) < 2 else [f"{number + 1} {label}" for number, label in enumerate(labels)]
