"""Additive attention, across from a decoder to its source (Bahdanau et al., 2015).

    e_ij = vᵀ tanh(W s_i + U h_j)        α_ij = softmax over j of e_ij        c_i = Σ_j α_ij h_j

A small network scores every pair of a target state s_i and a source state h_j; what is gathered are the source
states themselves. In `AdditiveAttention` s is the state that the block has just made; in the paper it is the state
before the word, and c enters the recurrence: see `bahdanau`.

Shapes: B rows · T target positions · S source positions · D model width · N rows while decoding
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.layers.attention_trace import AttentionTrace
from regard.layers.context import Context
from regard.settings import ModelSettings

LARGEST_SUMS = 1 << 26  # numbers


class Alignment(nn.Module):
    """Which source states belong to a target state, and what they hold together."""

    def __init__(self, settings: ModelSettings):
        super().__init__()
        width = settings.width
        self.to_query = nn.Linear(width, width)
        self.to_key = nn.Linear(width, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)

    def look(self, x_ND: Tensor, memory: AdditiveMemory) -> Tensor:
        """c, for the N = B · beams hypotheses of B sentences: [N, D]."""
        x_BTD = x_ND.view(len(memory.states_BSD), -1, x_ND.shape[-1])
        weights_BTS = self.weights(x_BTD, memory.keys_BSD, memory.mask_B1S)
        return (weights_BTS @ memory.states_BSD).flatten(0, 1)

    def remember(self, memory_BSD: Tensor, mask_B1S: Tensor) -> AdditiveMemory:
        """The source, with U h computed once for all steps; both in the precision of the products."""
        keys_BSD = self.to_key(memory_BSD)
        return AdditiveMemory(memory_BSD.to(keys_BSD.dtype), keys_BSD, mask_B1S)

    def written_out(self, x_BTD: Tensor, context: Context, to_out: nn.Module) -> AttentionTrace:
        """The formula for all pairs, as one head whose values are the memory."""
        assert context.memory is not None
        v_B1SD = context.memory.states_BSD[:, None]
        q_B1TD, k_B1SD = self.to_query(x_BTD)[:, None], self.to_key(v_B1SD)
        sums_B1TSD = q_B1TD[:, :, :, None] + k_B1SD[:, :, None]
        scores_B1TS = torch.tanh(sums_B1TSD) @ self.energy.weight[0]
        scores_B1TS = scores_B1TS.masked_fill(~context.memory.seen_B1TS, -torch.inf)
        return AttentionTrace.from_scores(q_B1TD, k_B1SD, v_B1SD, scores_B1TS, to_out, across=True)

    def weights(self, x_BTD: Tensor, keys_BSD: Tensor, mask_BTS: Tensor) -> Tensor:
        """α: [B, T, S]."""
        queries_BTD = self.to_query(x_BTD)
        # The sums of all pairs are D times as large as the scores: computed for some queries at a time, and recomputed
        # for the gradient instead of stored.
        at_once = max(1, LARGEST_SUMS // max(1, keys_BSD.numel()))
        parts = queries_BTD.split(at_once, dim=1)
        if torch.is_grad_enabled():
            scores = [
                checkpoint(self._scores, part, keys_BSD, use_reentrant=False, preserve_rng_state=False)
                for part in parts
            ]
        else:
            scores = [self._scores(part, keys_BSD) for part in parts]
        scores_BTS = torch.cat(scores, dim=1) if len(scores) > 1 else scores[0]
        return scores_BTS.masked_fill(~mask_BTS, -torch.inf).softmax(dim=-1).to(keys_BSD.dtype)

    def _scores(self, queries_BTD: Tensor, keys_BSD: Tensor) -> Tensor:
        return self.energy(torch.tanh(queries_BTD[:, :, None] + keys_BSD[:, None]))[..., 0]


class AdditiveAttention(Alignment):
    """What a block's own states find in the source, to be added to them."""

    def __init__(self, settings: ModelSettings):
        super().__init__(settings)
        self.to_out = nn.Linear(settings.width, settings.width, bias=settings.bias)

    def forward(self, x_BTD: Tensor, context: Context) -> Tensor:
        assert context.memory is not None
        memory_BSD = context.memory.states_BSD
        weights_BTS = self.weights(x_BTD, self.to_key(memory_BSD), context.memory.seen_B1TS[:, 0])
        return self.to_out(weights_BTS @ memory_BSD)

    def step(self, x_ND: Tensor, state: AdditiveMemory) -> Tensor:
        """One position further, for the N = B · beams hypotheses of B sentences: [N, D]."""
        return self.to_out(self.look(x_ND, state))

    def start_across(self, memory_BSD: Tensor, segments_BS: Tensor) -> AdditiveMemory:
        return self.remember(memory_BSD, (segments_BS != 0)[:, None])

    def trace(self, x_BTD: Tensor, context: Context) -> AttentionTrace:
        return self.written_out(x_BTD, context, self.to_out)


@dataclass
class AdditiveMemory:
    """The source while decoding: one row per sentence."""

    states_BSD: Tensor
    keys_BSD: Tensor
    mask_B1S: Tensor
