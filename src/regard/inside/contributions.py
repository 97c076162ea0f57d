"""Direct logit attribution: what every part of a model added to one logit.

    x_L = embedding + Σ heads + Σ parts              logit = Σ_terms w · norm(term) + constants

Norms divide each term by the statistics of the whole stream (`readout.through_norm`). So the terms still sum to the
stream, in post-norm models too, and their contributions to the logit.

Shapes: X terms, the last for constants · T positions · D model width
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.inside.named import Named, named
from regard.inside.parts import LayerTrace, PartTrace
from regard.inside.readout import through_norm, with_constant
from regard.inside.subject import unfused_eval
from regard.inside.trace import Trace
from regard.models.swin import PatchMerging


@torch.no_grad()
def contributions(trace: Trace, answer: int = -1, token: int | str | None = None) -> Named:
    """What each part added to the logit of a token, or of the answer itself.

    The parts sum to `logit` of the notes, that of the head, within `error`. `final_logit` differs from it in models
    that copy words of their source.
    """
    subject = trace.subject
    if subject.readout is None:
        raise UsageError(
            "Contributions are not defined for this model.",
            "Its answer is not a linear map of the last layer's output.",
            "Choose another kind of run.",
        )
    answer = subject.answer_index(answer)
    token = trace.token(token, answer)
    names, terms_XTD, x_TD = residual_terms(trace)
    parts_X = subject.readout.parts(terms_XTD, x_TD, answer, token)
    with unfused_eval(subject.model):
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
    """The stream after the last block as a sum: names of the terms but the constants, terms [X, T, D], and the sum."""
    names: list[str] = []
    terms_XTD: Tensor | None = None
    x_TD = trace.stacks[0].layers[0].before_TD
    for stack in trace.stacks:
        if terms_XTD is not None and isinstance(stack.stack.embed, PatchMerging):
            terms_XTD = _merged(terms_XTD, stack.stack.embed, x_TD)
        else:  # a stack with its own input; others reach it through cross-attention
            names = ["embedding", "position"]
            terms_XTD = stack.embedding.terms_XTD
        x_TD = stack.layers[0].before_TD
        for layer in stack.layers:
            layer_names, terms_XTD, x_TD = _through_layer(layer, terms_XTD, x_TD)
            names += layer_names
    assert terms_XTD is not None
    return names, terms_XTD, x_TD


def _through_layer(layer: LayerTrace, terms_XTD: Tensor, x_TD: Tensor) -> tuple[list[str], Tensor, Tensor]:
    """The new terms' names, then all terms and their sum after the layer."""
    names: list[str] = []
    for part in layer.parts:
        part_names, wrote_XTD, bias_D = _outputs(part)
        names += part_names
        terms_XTD = with_constant(torch.cat([terms_XTD[:-1], wrote_XTD, terms_XTD[-1:]]), bias_D)
        x_TD = x_TD + part.wrote_TD
        if not layer.block.pre_norm:
            norm = layer.norm_of(part)
            terms_XTD, x_TD = through_norm(terms_XTD, norm, x_TD), norm(x_TD)
    return names, terms_XTD, x_TD


def _outputs(part: PartTrace) -> tuple[list[str], Tensor, Tensor | None]:
    """The output of each head and the bias, or the output of a part without heads."""
    if part.heads:
        return [f"{part.name}.{head}" for head in range(part.heads)], part.heads_HTD(), part.bias_D
    return [part.name], part.wrote_TD[None], None


def _merged(terms_XTD: Tensor, merge: PatchMerging, x_TD: Tensor) -> Tensor:
    terms_XTD = through_norm(merge.gather(terms_XTD), merge.norm, merge.gather(x_TD[None])[0])
    return terms_XTD @ merge.reduce.weight.T
