"""Heads: what each attention head does, in one number a kind.

    importance   mean over answers of ln p(answer) − ln p(answer | the head is off): how much worse without it
    entropy      mean over queries of −Σ a ln a / ln(visible keys): 0 looks at one key, 1 at all alike
    previous     mean weight from a position to the one before it
    self         mean weight from a position to itself
    first        mean weight to the first position
    induction    L tokens drawn at random, and the same again: mean weight from q, in the second half, to q − (L − 1),
                 which is what followed the same token the first time (Olsson et al., 2022); mean of 4 draws
    copying      share of tokens for which W_out W_v of the token's own vector raises its own logit most of all
                 (the OV circuit of Elhage et al., 2021, counted like the copy score of Wang et al., 2022)

Queries that see one key only are left out of all means, since there is nothing to choose. A number is missing (NaN)
where it makes no sense: previous, self and copying of attention to another sequence; previous among patches, which have
neighbours in two directions; induction in a model that is not causal, or not of words; copying where words are not both
read and written; importance of attention that cannot be switched off head by head. For copying, the vector of a token
is what is embedded, without its position, after the norm that the head reads through; the logit is read through the
final norm, without biases.

Shapes: H heads · T queries · S keys · B rows · A answers · N tokens drawn · D model width · V value width of a head ·
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
from regard.inside.named import ByName, Named, named
from regard.inside.parts import PartTrace, StackTrace
from regard.inside.readout import Normed, Readout
from regard.inside.subject import Subject
from regard.inside.trace import Trace, trace
from regard.inside.variants import log_p_of_answers
from regard.layers.attention import Attention
from regard.layers.attention_trace import AttentionTrace
from regard.layers.embedding import Embedding

Score = Literal["importance", "entropy", "previous", "induction", "copying", "first", "self"]
SCORES: tuple[Score, ...] = get_args(Score)
PERIOD = 32  # of what is repeated for induction
DRAWS = 4  # of it
MOST_TOKENS = 512  # drawn for copying

OfParts = dict[str, Tensor]  # of parts that have the score, by name: [H]


def heads(traced: Trace, scores: Sequence[Score] = SCORES, seed: int = 0, period: int = PERIOD) -> ByName:
    """Each of these scores, of every head of every attention: [part, head].

    `seed`: of the tokens that are drawn. `period`: L of induction, less where learned positions end before.
    """
    scores = tuple(scores) if isinstance(scores, list | tuple) else (scores,)  # type: ignore[assignment]
    for score in scores:
        if score not in SCORES:
            raise UsageError(
                f"Heads have no score '{score}'.", "There is no such score.", did_you_mean(str(score), SCORES)
            )
    parts = [part for part in traced.parts() if part.attends]
    if not parts:
        raise UsageError(
            "This model has no heads.", "None of its parts is an attention.", "Use the influence of positions instead."
        )
    found = _by_attention(parts, [score for score in scores if score in BY_ATTENTION])
    for stack in traced.stacks:
        if stack.stack.grid and stack.stack.words is None:  # the patch before may be at the end of the row above
            found["previous"] = _without(found.get("previous", {}), stack)
    if "importance" in scores:
        found["importance"] = importance(traced, parts)
    if "induction" in scores:
        found["induction"] = induction(traced, seed, period)
    if "copying" in scores:
        found["copying"] = copying(traced, seed)
    return ByName({score: _named(score, parts, found[score]) for score in scores})


def _without(of_parts: OfParts, stack: StackTrace) -> OfParts:
    inside = {part.name for layer in stack.layers for part in layer.parts}
    return {name: values for name, values in of_parts.items() if name not in inside}


def _named(score: str, parts: list[PartTrace], of_parts: OfParts) -> Named:
    counts = [max(1, part.heads) for part in parts]  # additive attention is of one head
    table = np.full((len(parts), max(counts)), math.nan, dtype=np.float32)
    for row, part in enumerate(parts):
        if part.name in of_parts:
            table[row, : counts[row]] = of_parts[part.name].float().cpu().numpy()
    axes = [("part", [part.name for part in parts]), ("head", [str(head) for head in range(max(counts))])]
    return named(score, table, axes, "nats" if score == "importance" else "")


# ---------------------------------------------------------------- when it is off


def importance(traced: Trace, parts: list[PartTrace]) -> OfParts:
    subject = traced.subject
    parts = [part for part in parts if part.heads]
    offs = [Off(heads=(f"{part.name}.{head}",)) for part in parts for head in range(part.heads)]
    if not offs:
        return {}
    before_A = log_p_of_answers(subject, traced.logits_AW[None])[0]
    after_NA = ablate(subject, offs, read=lambda logits_BAW: log_p_of_answers(subject, logits_BAW))
    lost_N = (before_A - after_NA).mean(1)
    return dict(zip((part.name for part in parts), lost_N.split([part.heads for part in parts]), strict=True))


# ---------------------------------------------------------------- where it looks


def _by_attention(parts: list[PartTrace], scores: Sequence[str]) -> dict[str, OfParts]:
    """All scores that only need the weights, which are computed once for each part and not kept."""
    found: dict[str, OfParts] = {score: {} for score in scores}
    for part in parts if scores else []:
        attention = part.attention()
        chooses_T = visible_keys(attention)[0] > 1
        for score in scores:
            if score in ACROSS or not part.cross:
                found[score][part.name] = BY_ATTENTION[score](attention, chooses_T)
    return found


def visible_keys(attention: AttentionTrace) -> Tensor:
    """How many keys each query may look at, the same for all heads: [B, T]."""
    return (~attention.scores_BHTS[:, 0].isneginf()).sum(-1)


def entropy(attention: AttentionTrace, chooses_T: Tensor) -> Tensor:
    weights_HTS = attention.weights_BHTS[0]
    most_T = visible_keys(attention)[0].to(weights_HTS).log()
    entropy_HT = torch.special.entr(weights_HTS).sum(-1)
    return (entropy_HT / most_T)[:, chooses_T].mean(1)


def previous(attention: AttentionTrace, chooses_T: Tensor) -> Tensor:
    weights_HT = attention.weights_BHTS[0].diagonal(-1, -2, -1)
    return weights_HT[:, chooses_T[1:]].mean(1)


def itself(attention: AttentionTrace, chooses_T: Tensor) -> Tensor:
    return attention.weights_BHTS[0].diagonal(0, -2, -1)[:, chooses_T].mean(1)


def first(attention: AttentionTrace, chooses_T: Tensor) -> Tensor:
    return attention.weights_BHTS[0, :, :, 0][:, chooses_T].mean(1)


BY_ATTENTION: dict[str, Callable[[AttentionTrace, Tensor], Tensor]] = {
    "entropy": entropy,
    "previous": previous,
    "self": itself,
    "first": first,
}
ACROSS = ("entropy", "first")  # those that make sense from one sequence to another


# ---------------------------------------------------------------- induction


def induction(traced: Trace, seed: int, period: int) -> OfParts:
    subject = traced.subject
    if subject.with_tokens is None or len(traced.stacks) > 1 or not traced.last.causal:
        return {}
    embed = subject.last.embed
    assert subject.tokens is not None
    starts = subject.tokens[0][:1] if 0 in subject.last.fixed else []
    positions = getattr(embed.positions, "table", None)  # learned ones, which end somewhere
    if positions is not None:
        period = min(period, (positions.num_embeddings - len(starts)) // 2)
    words = ordinary_words(subject)
    if len(words) < 2 or period < 2:
        return {}
    sums: OfParts = {}
    for draw in range(DRAWS):
        ids = random_tokens(words, period, seed + draw)
        repeated = trace(subject.with_tokens([[*starts, *ids, *ids]]))
        for part in repeated.parts():
            if part.attends:
                back_HQ = part.attention().weights_BHTS[0].diagonal(1 - period, -2, -1)
                sums[part.name] = sums.get(part.name, 0.0) + back_HQ[:, -period:].mean(1) / DRAWS
    return sums


def ordinary_words(subject: Subject) -> list[int]:
    """The ids that can be written and are no marks, such as <end>; of pixels, every colour."""
    never = {*subject.never, *(range(len(SPECIALS)) if subject.last.grid is None else ())}
    return [token for token in range(subject.last.embed.table.num_embeddings) if token not in never]


def random_tokens(words: Sequence[int], count: int, seed: int) -> list[int]:
    """Different ones, if there are enough."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.cat([torch.randperm(len(words), generator=generator) for _ in range(-(-count // len(words)))])
    return [words[index] for index in drawn[:count].tolist()]


# ---------------------------------------------------------------- copying


@torch.no_grad()
def copying(traced: Trace, seed: int) -> OfParts:
    subject, stack = traced.subject, traced.last
    embed, readout = stack.stack.embed, subject.readout
    writes_words = readout is not None and readout.head is getattr(subject.model, "to_logits", None)
    if not writes_words or not isinstance(embed, Embedding):
        return {}
    assert readout is not None
    vocabulary = embed.table.num_embeddings
    tokens_N = torch.randperm(vocabulary, generator=torch.Generator().manual_seed(seed))[:MOST_TOKENS]
    tokens_N = tokens_N.to(embed.table.weight.device)
    x_ND = embed.norm(embed.table(tokens_N) * embed.scale)
    found: OfParts = {}
    for layer in stack.layers:
        part = layer.part("mixer")
        if part is not None and isinstance(part.module, Attention):
            read_ND = layer.norm_of(part)(x_ND) if layer.block.pre_norm else x_ND
            wrote_HND = through_values(part, read_ND)
            own_HN = [(_logits(readout, wrote_ND).argmax(-1) == tokens_N).float() for wrote_ND in wrote_HND]
            found[part.name] = torch.stack(own_HN).mean(1)
    return found


def through_values(part: PartTrace, read_ND: Tensor) -> Tensor:
    """What each head adds where it looks at one of these vectors alone, without biases: [H, N, D]."""
    attention: Attention = part.module
    value_GVD = attention.to_qkv.weight.split(attention.widths)[2].unflatten(0, (attention.key_value_heads, -1))
    value_HVD = value_GVD.repeat_interleave(attention.heads // attention.key_value_heads, 0)
    out_HVD = attention.to_out.weight.T.unflatten(0, (attention.heads, -1))
    wrote_HND = read_ND @ value_HVD.transpose(-2, -1) @ out_HVD
    return wrote_HND if part.scale_D is None else wrote_HND * part.scale_D


def _logits(readout: Readout, x_ND: Tensor) -> Tensor:
    """What this alone adds to the logit of every word: [N, W]."""
    terms, x = torch.stack([x_ND, torch.zeros_like(x_ND)]), x_ND  # biases go to the second term
    for step in (Normed(readout.norm), *readout.steps):
        terms, x = step.carry(terms, x), step(x)
    logits_NW: Tensor = terms[0] @ readout.head.weight.T
    return logits_NW
