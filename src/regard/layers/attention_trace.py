"""Everything that an attention computed, for looking at.

    weights = softmax(scores)        heads = weights V        output = heads W_out

Shapes: B rows · T query positions · S key positions · H heads · K key width · V value width · D model width
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class AttentionTrace:
    queries_BHTK: Tensor
    keys_BHSK: Tensor
    values_BHSV: Tensor
    scores_BHTS: Tensor
    weights_BHTS: Tensor
    heads_BHTV: Tensor
    output_BTD: Tensor
    across: bool = False  # from a decoder to its source

    @classmethod
    def from_scores(
        cls,
        q_BHTK: Tensor,
        k_BHSK: Tensor,
        v_BHSV: Tensor,
        scores_BHTS: Tensor,
        to_out: nn.Module,
        across: bool = False,
    ) -> AttentionTrace:
        """The rest follows from the scores, which are −∞ where a query may not look."""
        weights_BHTS = scores_BHTS.softmax(dim=-1)
        heads_BHTV = weights_BHTS @ v_BHSV
        output_BTD = to_out(heads_BHTV.transpose(1, 2).flatten(2))
        return cls(q_BHTK, k_BHSK, v_BHSV, scores_BHTS, weights_BHTS, heads_BHTV, output_BTD, across)
