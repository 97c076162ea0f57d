"""Generate text: continue a prompt, token by token.

Prompts of different length are decoded together: all rows stand at the same position, and a row whose
prompt is not yet used up takes its next token from there instead of drawing one. So no padding is needed,
and a text does not depend on which others are written beside it.

When a text is as long as the model's context, the older half is forgotten and the rest is read again.

Shapes: N rows · W words in the vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.decoding.sampling import draw, truncate
from regard.models.causal import Causal
from regard.models.state import DecoderState
from regard.settings import GenerationSettings


@dataclass(frozen=True)
class GeneratedToken:
    """One token that was written, and what else it might have been."""

    row: int
    token: int
    probability: float
    candidates: list[tuple[int, float]]


@torch.inference_mode()
def generate(
    model: Causal,
    prompts: Sequence[Sequence[int]],
    settings: GenerationSettings,
    *,
    context: int,
    end: int,
    never: Sequence[int] = (),
    seed: int = 1,
    first_row: int = 0,
    top: int = 0,
    device: torch.device | None = None,
    finished: Callable[[int], bool] = lambda row: False,
) -> Iterator[GeneratedToken]:
    """The tokens written, as they come. Every prompt has at least one token; a long one keeps its last part.

    A text depends on the seed and the number of its row, counted from `first_row`, and on nothing beside it.
    `top` is how many candidates to name. `finished` is asked after each token whether its row has enough.
    """
    if not prompts:
        return
    texts = [list(prompt)[-(context - 1) :] for prompt in prompts]
    generators = [np.random.default_rng([seed, first_row + row]) for row in range(len(texts))]
    written = [0] * len(texts)
    active = list(range(len(texts)))
    fed = min(map(len, texts))  # tokens of every row that the model has read
    state, logits_NW = _read(model, [text[:fed] for text in texts], context, device)
    while True:
        next_tokens: list[int] = []
        open_rows: list[int] = []
        p_NW, tokens_NW = _probabilities(logits_NW, [texts[row][:fed] for row in active], settings, never)
        # A row that reads its prompt draws nothing; at temperature 0 the first is taken.
        draws = [settings.temperature > 0 and fed >= len(texts[row]) for row in active]
        uniform = [generators[row].random() if samples else 0.0 for row, samples in zip(active, draws, strict=True)]
        drawn_N, probability_N = draw(p_NW, tokens_NW, torch.tensor(uniform, device=device))
        for index, row in enumerate(active):
            if fed < len(texts[row]):  # still reading its prompt
                next_tokens.append(texts[row][fed])
                open_rows.append(index)
                continue
            token = int(drawn_N[index])
            named = zip(tokens_NW[index, :top].tolist(), p_NW[index, :top].tolist(), strict=True)
            yield GeneratedToken(row, token, float(probability_N[index]), list(named))
            next_tokens.append(token)
            texts[row].append(token)
            written[row] += 1
            if token != end and written[row] < settings.max_tokens and not finished(row):
                open_rows.append(index)
        if not open_rows:
            return
        open_N = torch.tensor(open_rows, device=device)
        if len(open_rows) < len(active):
            state.select(open_N)
            active = [active[index] for index in open_rows]
        fed += 1
        if state.length == context:
            state, logits_NW = _read(model, [texts[row][fed - context // 2 : fed] for row in active], context, device)
        else:
            logits_NW = model.step(torch.tensor(next_tokens, device=device)[open_N], state)


def _read(
    model: Causal, texts: Sequence[Sequence[int]], context: int, device: torch.device | None
) -> tuple[DecoderState, Tensor]:
    """Feed texts of equal length, their last part if they are longer than the context; the state and logits after."""
    most = context - 1 if len(texts[0]) >= context else len(texts[0])
    state = model.start(len(texts), context)
    return state, model.prefill(torch.tensor([text[-most:] for text in texts], device=device), state)


def _probabilities(
    logits_NW: Tensor, texts: Sequence[Sequence[int]], settings: GenerationSettings, never: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Probabilities, largest first, and their tokens."""
    logits_NW = logits_NW.float()
    logits_NW[:, list(never)] = -torch.inf
    if settings.repetition_penalty != 1.0:
        for row, text in enumerate(texts):
            seen = torch.tensor(sorted(set(text)), device=logits_NW.device)
            logits = logits_NW[row, seen]
            # Divided if positive, multiplied if negative: less likely either way (Keskar et al., 2019).
            penalty = settings.repetition_penalty
            logits_NW[row, seen] = torch.where(logits > 0, logits / penalty, logits * penalty)
    if settings.temperature == 0:
        return truncate(logits_NW, 1.0)  # the first is taken; the others are only shown
    return truncate(logits_NW, settings.temperature, settings.top_k, settings.top_p, settings.min_p)
