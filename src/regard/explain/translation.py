"""What a translator looked at for each word it wrote."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.data.tokenizers import END, START, TextTokenizer
from regard.explain.trace import Trace, trace
from regard.models.seq2seq import Seq2Seq


@dataclass(frozen=True)
class TracedTranslation:
    """A sentence, its translation, and every attention between and within them."""

    sources: list[str]  # source tokens, <end> last
    targets: list[str]  # the token written at each target position, <end> last
    text: str
    trace: Trace

    def cross_weights(self) -> Tensor:
        """Cross-attention of every decoder layer and head: [layers, heads, targets, sources]."""
        names = [name for name in self.trace if name.endswith(".cross")]
        return torch.stack([self.trace[name].weights_BHTS[0] for name in names]).float().cpu()


def trace_translation(
    model: Seq2Seq,
    source_ids: list[int],
    target_ids: list[int],
    tokenizers: tuple[TextTokenizer, TextTokenizer],
    device: torch.device,
) -> TracedTranslation:
    """Trace one sentence (ids with <end>) and its translation (ids without)."""
    source_1S = torch.tensor([source_ids], device=device)
    target_1T = torch.tensor([[START, *target_ids]], device=device)

    def run() -> None:
        ones, places = torch.ones_like, lambda x: torch.arange(x.shape[1], device=device)[None]
        model(source_1S, ones(source_1S), places(source_1S), target_1T, ones(target_1T), places(target_1T))

    model.eval()
    source_tokenizer, target_tokenizer = tokenizers
    return TracedTranslation(
        sources=[source_tokenizer.piece(token) for token in source_ids],
        targets=[target_tokenizer.piece(token) for token in [*target_ids, END]],
        text=target_tokenizer.decode([target_ids])[0],
        trace=trace(model, run),
    )
