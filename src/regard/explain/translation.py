"""What a translator looked at for each token it wrote.

Shapes: L layers · H heads · T target tokens · S source tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import ArrayLike
from torch import Tensor

from regard.data.tokenizers import END, START, TextTokenizer
from regard.errors import RegardError
from regard.explain.figures import save
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
        """Cross-attention of every decoder layer and head: [L, H, T, S]."""
        layers = [traced.weights_BHTS[0] for traced in self.trace.values() if traced.across]
        if not layers:
            raise RegardError(
                "This translator looks at nothing while it writes.",
                'It has cross = "none": only the last state of the encoder passes.',
                "Choose a run with another cross.",
            )
        return torch.stack(layers).float().cpu()


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
        ones, positions = torch.ones_like, lambda x: torch.arange(x.shape[1], device=device)[None]
        model(source_1S, ones(source_1S), positions(source_1S), target_1T, ones(target_1T), positions(target_1T))

    model.eval()
    source_tokenizer, target_tokenizer = tokenizers
    return TracedTranslation(
        sources=[source_tokenizer.piece(token) for token in source_ids],
        targets=[target_tokenizer.piece(token) for token in [*target_ids, END]],
        text=target_tokenizer.decode([target_ids])[0],
        trace=trace(model, run),
    )


def draw_alignment(traced: TracedTranslation, path: Path) -> None:
    """The cross-attention of the last layer, averaged over its heads."""
    weights_TS = traced.cross_weights()[-1].mean(0)
    sources, targets = _labels(traced.sources), _labels(traced.targets)
    size = (max(4.0, 0.45 * len(sources) + 2), max(3.0, 0.38 * len(targets) + 1.6))
    figure = Figure(figsize=size, layout="constrained")
    axis = figure.subplots()
    image = _heat_map(axis, weights_TS, sources, targets, font_size=9)
    axis.set_title("Cross-attention, last layer, mean of heads", fontsize=10)
    figure.colorbar(image, ax=axis, label="attention weight", shrink=0.8)
    save(figure, path)


def draw_attention(traced: TracedTranslation, path: Path) -> None:
    """The cross-attention of every layer (down) and head (across)."""
    weights_LHTS = traced.cross_weights()
    sources, targets = _labels(traced.sources), _labels(traced.targets)
    layers, heads = weights_LHTS.shape[:2]
    width, height = max(1.8, 0.17 * len(sources)), max(1.8, 0.17 * len(targets))
    figure = Figure(figsize=(width * heads + 1.5, height * layers + 1.2), layout="constrained")
    axes = figure.subplots(layers, heads, squeeze=False)
    for (layer, head), axis in np.ndenumerate(axes):
        # Tokens are named at the left and the lower edge only.
        across, down = sources if layer == layers - 1 else [], targets if head == 0 else []
        _heat_map(axis, weights_LHTS[layer, head], across, down, font_size=6)
        axis.set_title(f"layer {layer + 1} · head {head + 1}", fontsize=7)
    title = f"Cross-attention: each row is a written token, each column a source token\n{traced.text}"
    figure.suptitle(title, fontsize=9)
    save(figure, path)


def _heat_map(
    axis: Axes, weights_TS: ArrayLike, sources: Sequence[str], targets: Sequence[str], font_size: int
) -> AxesImage:
    image = axis.imshow(
        np.asarray(weights_TS), cmap="viridis", vmin=0.0, vmax=1.0, interpolation="nearest", aspect="auto"
    )
    axis.set_xticks(range(len(sources)), sources, rotation=90, fontsize=font_size)
    axis.set_yticks(range(len(targets)), targets, fontsize=font_size)
    return image


def _labels(pieces: list[str]) -> list[str]:
    """Tokens as labels: without the space before a word, and with dollar signs that are not mathematics."""
    return [(piece.strip() or "␣").replace("$", r"\$") for piece in pieces]
