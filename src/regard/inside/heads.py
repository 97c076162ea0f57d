"""Scores of attention heads.

    importance   mean over answers of ln p(answer) − ln p(answer | head off)
    entropy      mean over queries of −Σ a ln a / ln(visible keys): 0 attends to one key, 1 uniformly
    previous     mean weight from a position to the one before it
    self         mean weight from a position to itself
    first        mean weight to the first position
    induction    on L random tokens, repeated: mean weight from q, in the second half, to q − (L − 1), the token after
                 the previous occurrence (Olsson et al., 2022); mean of 4 draws
    copying      share of tokens whose own logit W_out W_v raises most (the OV circuit of Elhage et al., 2021, counted
                 like the copy score of Wang et al., 2022)

Queries that see a single key are excluded from all means, since their weight is always 1. A score is NaN where it is
not defined: previous, self and copying of cross-attention; previous among patches, which have neighbours in two
directions; induction in models that are not causal or have no tokens; copying in models that do not both read and write
tokens; importance of attention whose heads cannot be switched off. For copying, the vector of a token is its embedding
without position, after the norm before the head; the logit is read through the final norm, without biases.

Shapes: H heads · T queries · S keys · B rows · A answers · N sampled tokens · D model width · V value width of a head ·
        W words
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from regard.data.tokenizers import SPECIALS
from regard.errors import UsageError, did_you_mean
from regard.inside.ablation import Off, ablate
from regard.inside.named import Named, NamedArrays, named
from regard.inside.parts import LayerTrace, PartTrace
from regard.inside.readout import Normed, Readout
from regard.inside.subject import Subject
from regard.inside.trace import Trace, trace
from regard.inside.variants import log_p_of_answers
from regard.layers.attention import Attention
from regard.layers.attention_trace import AttentionTrace
from regard.layers.embedding import Embedding

Score = Literal["importance", "entropy", "previous", "induction", "copying", "first", "self"]
SCORES: tuple[Score, ...] = get_args(Score)
PERIOD = 32  # of the repeated sequence for induction
DRAWS = 4
MOST_TOKENS = 512  # sampled for copying

ByPart = dict[str, Tensor]  # a score of the heads of each part for which it is defined: [H]


def heads(traced: Trace, scores: Sequence[Score] = SCORES, seed: int = 0, period: int = PERIOD) -> NamedArrays:
    """These scores of every head of every attention: [part, head] each.

    `seed`: of the random tokens. `period`: L of induction; shorter if the model's learned positions are too few.
    """
    scores = tuple(scores) if isinstance(scores, list | tuple) else (scores,)  # type: ignore[assignment]
    for score in scores:
        if score not in SCORES:
            raise UsageError(
                f"Heads have no score '{score}'.",
                f"The scores are {', '.join(SCORES)}.",
                did_you_mean(str(score), SCORES),
            )
    if not isinstance(period, int) or period < 2:
        raise UsageError(
            f"The period {period!r} is too short.", "Random tokens are repeated with it.", "Use 2 or more."
        )
    parts = [part for part in traced.parts() if part.attends]
    if not parts:
        raise UsageError(
            "This model has no heads.",
            "None of its parts is an attention layer.",
            "Use the influence of positions instead.",
        )
    by_score = _from_weights(traced, parts, [score for score in scores if score in FROM_WEIGHTS])
    if "importance" in scores:
        by_score["importance"] = importance(traced, parts)
    if "induction" in scores:
        by_score["induction"] = induction(traced, seed, period)
    if "copying" in scores:
        by_score["copying"] = copying(traced, seed)
    return NamedArrays({score: _table(score, parts, by_score[score]) for score in scores})


def is_defined(score: Score, part: PartTrace, traced: Trace) -> bool:
    """Whether the heads of this part have this score, unless the input is too short."""
    if score == "importance":
        return part.heads > 0
    if score == "induction":
        return _repeatable(traced, PERIOD) >= 2
    if score == "copying":
        return any(part.name == copies.name for _, copies in _copying_parts(traced))
    if score == "previous" and _among_patches(part, traced):
        return False
    return score in CROSS_TOO or not part.cross


def _among_patches(part: PartTrace, traced: Trace) -> bool:
    """Whether positions are patches: the previous one may be at the end of the row above."""
    stacks = [
        stack.stack for stack in traced.stacks for layer in stack.layers if part.name in {p.name for p in layer.parts}
    ]
    return any(stack.grid and stack.words is None for stack in stacks)


def _table(score: str, parts: list[PartTrace], by_part: ByPart) -> Named:
    counts = [max(1, part.heads) for part in parts]  # additive attention has a single head
    table = np.full((len(parts), max(counts)), math.nan, dtype=np.float32)
    for row, part in enumerate(parts):
        if part.name in by_part:
            table[row, : counts[row]] = by_part[part.name].float().cpu().numpy()
    axes = [("part", [part.name for part in parts]), ("head", [str(head) for head in range(max(counts))])]
    return named(score, table, axes, "nats" if score == "importance" else "")


# ---------------------------------------------------------------- importance


def importance(traced: Trace, parts: list[PartTrace]) -> ByPart:
    subject = traced.subject
    parts = [part for part in parts if part.heads]
    offs = [Off(heads=(f"{part.name}.{head}",)) for part in parts for head in range(part.heads)]
    if not offs:
        return {}
    before_A = log_p_of_answers(subject, traced.logits_AW[None])[0]
    after_NA = ablate(subject, offs, read=lambda logits_BAW: log_p_of_answers(subject, logits_BAW))
    drop_N = (before_A - after_NA).mean(1)
    return dict(zip((part.name for part in parts), drop_N.split([part.heads for part in parts]), strict=True))


# ---------------------------------------------------------------- scores of the attention weights


def _from_weights(traced: Trace, parts: list[PartTrace], scores: Sequence[Score]) -> dict[str, ByPart]:
    """The scores that only need the weights, which are computed once for each part and then dropped."""
    by_score: dict[str, ByPart] = {score: {} for score in scores}
    for part in parts if scores else []:
        attention = part.attention()
        counted_T = visible_keys(attention)[0] > 1
        for score in scores:
            if is_defined(score, part, traced):
                by_score[score][part.name] = FROM_WEIGHTS[score](attention, counted_T)
    return by_score


def visible_keys(attention: AttentionTrace) -> Tensor:
    """The number of keys that each query can attend to, the same for all heads: [B, T]."""
    return (~attention.scores_BHTS[:, 0].isneginf()).sum(-1)


def entropy(attention: AttentionTrace, counted_T: Tensor) -> Tensor:
    weights_HTS = attention.weights_BHTS[0]
    most_T = visible_keys(attention)[0].to(weights_HTS).log()
    entropy_HT = torch.special.entr(weights_HTS).sum(-1)
    return (entropy_HT / most_T)[:, counted_T].mean(1)


def to_previous(attention: AttentionTrace, counted_T: Tensor) -> Tensor:
    weights_HT = attention.weights_BHTS[0].diagonal(-1, -2, -1)
    return weights_HT[:, counted_T[1:]].mean(1)


def to_self(attention: AttentionTrace, counted_T: Tensor) -> Tensor:
    return attention.weights_BHTS[0].diagonal(0, -2, -1)[:, counted_T].mean(1)


def to_first(attention: AttentionTrace, counted_T: Tensor) -> Tensor:
    return attention.weights_BHTS[0, :, :, 0][:, counted_T].mean(1)


FROM_WEIGHTS: dict[str, Callable[[AttentionTrace, Tensor], Tensor]] = {
    "entropy": entropy,
    "previous": to_previous,
    "self": to_self,
    "first": to_first,
}
CROSS_TOO = ("entropy", "first")  # defined for cross-attention too


# ---------------------------------------------------------------- induction


def induction(traced: Trace, seed: int, period: int) -> ByPart:
    subject = traced.subject
    period = _repeatable(traced, period)
    if period < 2:
        return {}
    assert subject.with_tokens is not None
    starts, words = _starts(subject), ordinary_words(subject)
    means: ByPart = {}
    for draw in range(DRAWS):
        ids = random_tokens(words, period, seed + draw)
        repeated = trace(subject.with_tokens([[*starts, *ids, *ids]]))
        for part in repeated.parts():
            if part.attends:
                weights_HQ = part.attention().weights_BHTS[0].diagonal(1 - period, -2, -1)
                means[part.name] = means.get(part.name, 0.0) + weights_HQ[:, -period:].mean(1) / DRAWS
    return means


def _repeatable(traced: Trace, period: int) -> int:
    """How many random tokens, at most `period`, the model can read twice; 0 if induction is not defined."""
    subject = traced.subject
    if subject.with_tokens is None or len(traced.stacks) > 1 or not traced.last.causal:
        return 0
    learned_positions = getattr(subject.last.embed.positions, "table", None)
    if learned_positions is not None:
        period = min(period, (learned_positions.num_embeddings - len(_starts(subject))) // 2)
    return period if len(ordinary_words(subject)) >= 2 else 0


def _starts(subject: Subject) -> list[int]:
    """The token that every input begins with, if there is one."""
    assert subject.tokens is not None
    return subject.tokens[0][:1] if 0 in subject.last.fixed else []


def ordinary_words(subject: Subject) -> list[int]:
    """The ids that can be generated, except special tokens such as <end>; for pixels, all colours."""
    never = {*subject.never, *(range(len(SPECIALS)) if subject.last.grid is None else ())}
    return [token for token in range(subject.last.embed.table.num_embeddings) if token not in never]


def random_tokens(words: Sequence[int], count: int, seed: int) -> list[int]:
    """Distinct ones, if there are enough."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.cat([torch.randperm(len(words), generator=generator) for _ in range(-(-count // len(words)))])
    return [words[index] for index in order[:count].tolist()]


# ---------------------------------------------------------------- copying


@torch.no_grad()
def copying(traced: Trace, seed: int) -> ByPart:
    subject, stack = traced.subject, traced.last
    embed, readout = stack.stack.embed, subject.readout
    parts = _copying_parts(traced)
    if not parts:
        return {}
    assert readout is not None and isinstance(embed, Embedding)
    vocabulary = embed.table.num_embeddings
    tokens_N = torch.randperm(vocabulary, generator=torch.Generator().manual_seed(seed))[:MOST_TOKENS]
    tokens_N = tokens_N.to(embed.table.weight.device)
    x_ND = embed.norm(embed.table(tokens_N) * embed.scale)
    scores: ByPart = {}
    for layer, part in parts:
        read_ND = layer.norm_of(part)(x_ND) if layer.block.pre_norm else x_ND
        wrote_HND = through_values(part, read_ND)
        copied_HN = [(_logits(readout, wrote_ND).argmax(-1) == tokens_N).float() for wrote_ND in wrote_HND]
        scores[part.name] = torch.stack(copied_HN).mean(1)
    return scores


def _copying_parts(traced: Trace) -> list[tuple[LayerTrace, PartTrace]]:
    """The self-attention of the last stack, if the model both reads and writes tokens there."""
    readout = traced.subject.readout
    writes_words = readout is not None and readout.head is getattr(traced.subject.model, "to_logits", None)
    if not writes_words or not isinstance(traced.last.stack.embed, Embedding):
        return []
    parts = [(layer, layer.part("mixer")) for layer in traced.last.layers]
    return [(layer, part) for layer, part in parts if part is not None and isinstance(part.module, Attention)]


def through_values(part: PartTrace, read_ND: Tensor) -> Tensor:
    """The output of each head if it attends to one of these vectors only, without biases: [H, N, D]."""
    attention: Attention = part.module
    value_GVD = attention.to_qkv.weight.split(attention.widths)[2].unflatten(0, (attention.key_value_heads, -1))
    value_HVD = value_GVD.repeat_interleave(attention.heads // attention.key_value_heads, 0)
    out_HVD = attention.to_out.weight.T.unflatten(0, (attention.heads, -1))
    wrote_HND = read_ND @ value_HVD.transpose(-2, -1) @ out_HVD
    return wrote_HND if part.scale_D is None else wrote_HND * part.scale_D


def _logits(readout: Readout, x_ND: Tensor) -> Tensor:
    """What each vector alone adds to the logit of every word: [N, W]."""
    terms, x = torch.stack([x_ND, torch.zeros_like(x_ND)]), x_ND  # biases go to the second term
    for step in (Normed(readout.norm), *readout.steps):
        terms, x = step.carry(terms, x), step(x)
    logits_NW: Tensor = terms[0] @ readout.head.weight.T
    return logits_NW
