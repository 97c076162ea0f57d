"""Sampling: draw the next token instead of taking the likeliest.

    p_i ∝ exp(logit_i / temperature)     over the k likeliest, or the likeliest that sum to p, or those with at
                                         least a share of the likeliest one's probability

Each row draws from its own stream of random numbers, made from (seed, row); so a text does not depend on
which others are decoded beside it.

Shapes: N rows · W words in the vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.decoding.hypothesis import Hypothesis, State, Stepper
from regard.hardware import mix_seeds


def truncate(
    logits_NW: Tensor, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Probabilities, largest first, and the tokens they belong to; what is cut off has probability 0."""
    ordered_NW, tokens_NW = logits_NW.float().sort(dim=-1, descending=True, stable=True)
    # The largest is taken off first: divided by a tiny temperature it would overflow.
    p_NW = ((ordered_NW - ordered_NW[:, :1]) / temperature).softmax(-1)
    if top_k:
        p_NW[:, top_k:] = 0.0
    if top_p < 1.0:
        # A token stays if those before it do not yet sum to p; the first always stays.
        p_NW = p_NW / p_NW.sum(-1, keepdim=True)
        p_NW = p_NW * (p_NW.cumsum(-1) - p_NW < top_p)
    if min_p > 0.0:
        p_NW = p_NW * (p_NW >= min_p * p_NW[:, :1])
    return p_NW / p_NW.sum(-1, keepdim=True), tokens_NW


def draw(p_NW: Tensor, tokens_NW: Tensor, uniform_N: Tensor) -> tuple[Tensor, Tensor]:
    """The token at which the cumulative probability passes a uniform number; and its probability."""
    rank_N1 = (p_NW.cumsum(-1) < uniform_N[:, None]).sum(-1, keepdim=True)
    rank_N1 = rank_N1.clamp(max=p_NW.shape[-1] - 1)
    # Rounding may leave the last sum just below 1: never fall on a token that was cut off.
    rank_N1 = torch.minimum(rank_N1, (p_NW > 0).sum(-1, keepdim=True) - 1)
    return tokens_NW.gather(1, rank_N1)[:, 0], p_NW.gather(1, rank_N1)[:, 0]


@torch.inference_mode()
def sample(
    model: Stepper,
    state: State,
    *,
    max_lengths: Sequence[int],
    start: int,
    end: int,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 1,
    rows: Sequence[int] | None = None,
    never: Sequence[int] = (),
    prefixes: Sequence[Sequence[int]] | None = None,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """One drawn output for each row. `rows` number the rows for the seed, wherever they stand here."""
    count = len(max_lengths)
    prefixes = prefixes or [()] * count
    rows = rows if rows is not None else range(count)
    generators = [torch.Generator().manual_seed(mix_seeds(seed, row)) for row in rows]
    uniform_NL = torch.stack([torch.rand(max(max_lengths), generator=g) for g in generators]).to(device)
    tokens: list[list[int]] = [[] for _ in range(count)]
    log_probability = [0.0] * count
    active = list(range(count))
    last_N = torch.full((count,), start, device=device)
    for t in range(max(max_lengths)):
        logits_NW = model.step(last_N, state)
        logits_NW[:, list(never)] = -torch.inf
        chosen_N, p_N = draw(*truncate(logits_NW, temperature, top_k, top_p), uniform_NL[active, t])
        chosen, p = chosen_N.tolist(), p_N.log().tolist()
        open_rows = []
        for index, row in enumerate(active):
            if t < len(prefixes[row]):
                chosen[index], p[index] = prefixes[row][t], 0.0
            log_probability[row] += p[index]
            if chosen[index] != end:
                tokens[row].append(chosen[index])
                if t + 1 < max_lengths[row]:
                    open_rows.append(index)
        if not open_rows:
            break
        last_N = torch.tensor(chosen, device=device)
        if len(open_rows) < len(active):
            open_N = torch.tensor(open_rows, device=device)
            last_N, active = last_N[open_N], [active[index] for index in open_rows]
            state.select(open_N, open_N)
    return [[Hypothesis(row, p, p)] for row, p in zip(tokens, log_probability, strict=True)]
