"""Contributions: what every part of a model added to one logit (direct logit attribution).

The residual stream is a sum of what was embedded and of what every head and part wrote. Norms on the way are carried
out on each term with the size of the whole (`readout.through_norm`), so the terms still sum to the stream, in
post-norm models too; and what they lead to in a logit sums to the logit.

Shapes: X terms, the last for constants · T positions · D model width
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.inside.named import Named, named
from regard.inside.parts import LayerTrace, PartTrace
from regard.inside.readout import through_norm, with_constant
from regard.inside.subject import plainly
from regard.inside.trace import Trace
from regard.models.swin import PatchMerging


@torch.no_grad()
def contributions(trace: Trace, answer: int = -1, token: int | str | None = None) -> Named:
    """What each part added to the logit of a token, or of the answer itself.

    `notes` has the logit of the head, which the parts sum to within `error`, and the final one: a model that copies
    words of its source adds to it.
    """
    subject = trace.subject
    if subject.readout is None:
        raise UsageError(
            "Contributions are not defined for this model.",
            "Its answer is not a linear map of the last layer's output.",
            "Choose another kind of run.",
        )
    answer = subject.place(answer)
    token = trace.token(token, answer)
    names, terms_XTD, x_TD = residual_terms(trace)
    parts_X = subject.readout.parts(terms_XTD, x_TD, answer, token)
    with plainly(subject.model):
        logit = float(subject.readout.before_finish(trace.last.layers[-1].after_TD[None])[0, answer, token])
    return named(
        "contribution",
        parts_X,
        [("part", [*names, "biases and norms"])],
        "logit",
        answer=subject.answers[answer].label,
        token=subject.name_of(token),
        logit=logit,
        final_logit=float(trace.logits_AW[answer, token]),
        error=abs(float(parts_X.sum()) - logit),
    )


def residual_terms(trace: Trace) -> tuple[list[str], Tensor, Tensor]:
    """The stream after the last block as a sum: names of its terms but the constants, terms [X, T, D], and the sum."""
    names: list[str] = []
    terms_XTD: Tensor | None = None
    x_TD = trace.stacks[0].layers[0].before_TD
    for stack in trace.stacks:
        if terms_XTD is not None and isinstance(stack.stack.embed, PatchMerging):
            terms_XTD = _merged(terms_XTD, stack.stack.embed, x_TD)
        else:  # a stack of its own: what another one made of its input comes in by cross-attention
            names = ["embedding", "position"]
            terms_XTD = stack.embedding.terms_XTD
        x_TD = stack.layers[0].before_TD
        for layer in stack.layers:
            more, terms_XTD, x_TD = _through(layer, terms_XTD, x_TD)
            names += more
    assert terms_XTD is not None
    return names, terms_XTD, x_TD


def _through(layer: LayerTrace, terms_XTD: Tensor, x_TD: Tensor) -> tuple[list[str], Tensor, Tensor]:
    names: list[str] = []
    for part in layer.parts:
        more, wrote_XTD, bias_D = _written(part)
        names += more
        terms_XTD = with_constant(torch.cat([terms_XTD[:-1], wrote_XTD, terms_XTD[-1:]]), bias_D)
        x_TD = x_TD + part.wrote_TD
        if not layer.block.pre_norm:
            norm = layer.norm_of(part)
            terms_XTD, x_TD = through_norm(terms_XTD, norm, x_TD), norm(x_TD)
    return names, terms_XTD, x_TD


def _written(part: PartTrace) -> tuple[list[str], Tensor, Tensor | None]:
    """What each head wrote, or the part as a whole; and its bias."""
    if part.heads:
        return [f"{part.name}.{head}" for head in range(part.heads)], part.heads_HTD(), part.bias_D
    return [part.name], part.wrote_TD[None], None


def _merged(terms_XTD: Tensor, merge: PatchMerging, x_TD: Tensor) -> Tensor:
    terms_XTD = through_norm(merge.gather(terms_XTD), merge.norm, merge.gather(x_TD[None])[0])
    return terms_XTD @ merge.reduce.weight.T
