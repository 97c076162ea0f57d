"""The pictures of `regard explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regard.errors import RegardError
from regard.explain.plots import alignment, attention_grid, matrix_grid, positions_heatmap
from regard.explain.translation import TracedTranslation, trace_translation
from regard.layers.hyena import Hyena
from regard.runs import open_run
from regard.runs.translation import TranslationRun
from regard.training.folder import RunFolder
from regard.verbs.explain_image import draw_image_maps

KINDS = ("attention", "alignment", "positions", "toeplitz")
POSITIONS_SHOWN = 100
TOEPLITZ_SHOWN = 48  # positions
LAYERS_SHOWN, CHANNELS_SHOWN = 4, 5


def draw(run: Path, text: str, output: Path, what: str, target: str, device: str) -> dict[str, Any]:
    """Draw one picture of a run; returns where it is and what it shows."""
    if what == "toeplitz":
        return _toeplitz(run, output, device)
    if RunFolder.open(run).read_config().task == "classify-image":
        return draw_image_maps(run, Path(text), output, device)
    model = TranslationRun(run, device)
    try:
        if what == "positions":
            return _positions(model, output)
        if model.config.model.cross == "none":
            raise RegardError(
                "This translator looks at nothing while it writes.",
                'It has cross = "none": only the last state of the encoder passes.',
                "Choose a run with another cross.",
            )
        traced = traced_translation(model, text, target)
        draw_alignment(traced, output) if what == "alignment" else _grid(traced, output)
    except OSError as error:
        raise RegardError(f"Cannot write '{output}'.", f"{error}", "Choose a writable place with -o.") from None
    return {"picture": str(output.resolve()), "source": text, "translation": traced.text}


def traced_translation(model: TranslationRun, text: str, target: str = "") -> TracedTranslation:
    """The trace of a sentence and its best translation, or the one given."""
    translator = model.translator()
    ids = model.tokenizers.target.encode([target])[0] if target else translator.translate([text])[0][0].tokens
    return trace_translation(model.model, translator.encode(text), ids, model.tokenizers.both(), model.hardware.device)


def draw_alignment(traced: TracedTranslation, output: Path) -> None:
    """The cross-attention of the last layer, averaged over its heads."""
    weights = traced.cross_weights()[-1].mean(0)
    alignment(
        weights,
        _plain(traced.sources),
        _plain(traced.targets),
        output,
        "Cross-attention, last layer, mean of heads",
    )


def _grid(traced: TracedTranslation, output: Path) -> None:
    title = f"Cross-attention: each row is a written token, each column a source token\n{traced.text}"
    attention_grid(traced.cross_weights(), _plain(traced.sources), _plain(traced.targets), output, title)


def _positions(model: TranslationRun, output: Path) -> dict[str, Any]:
    kind = model.config.model.positions
    if kind in ("none", "rotary"):
        why = "It turns queries and keys instead." if kind == "rotary" else "It has no positions."
        raise RegardError(f'The model adds no position encoding (positions = "{kind}").', why, "Choose another run.")
    embedding = model.model.source_embedding.positions
    count = min(POSITIONS_SHOWN, model.config.model.max_positions)
    with torch.inference_mode():
        codes = embedding.code(torch.arange(count, device=model.hardware.device)).float().cpu()
    positions_heatmap(codes, output, f"Position encodings of the source: {kind}")
    return {"picture": str(output.resolve()), "positions": kind, "shown": count}


@torch.inference_mode()
def _toeplitz(run: Path, output: Path, device: str) -> dict[str, Any]:
    """The convolutions of a run with Hyena, as the matrices that they are."""
    opened: Any = open_run(run, device)
    layers = {name: module for name, module in opened.model.named_modules() if isinstance(module, Hyena)}
    if not layers:
        raise RegardError(
            f"'{run}' has no convolutions to draw.",
            f'Its mixer is "{opened.config.model.mixer}".',
            'Choose a run with model.mixer = "hyena".',
        )
    shown = dict(list(layers.items())[:LAYERS_SHOWN])
    width = opened.config.model.width
    # From the channel that forgets most slowly to the one that forgets fastest.
    channels = sorted({round(n * (width - 1) / (CHANNELS_SHOWN - 1)) for n in range(CHANNELS_SHOWN)})
    matrices = [
        [layer.toeplitz(TOEPLITZ_SHOWN, channel).float().cpu() for channel in channels] for layer in shown.values()
    ]
    try:
        title = (
            "Hyena's first convolution of each layer, as a matrix: what a position (down) takes from another (across)"
        )
        matrix_grid(matrices, [_layer_name(name) for name in shown], channels, output, title)
    except OSError as error:
        raise RegardError(f"Cannot write '{output}'.", f"{error}", "Choose a writable place with -o.") from None
    return {"picture": str(output.resolve()), "layers": len(shown), "channels": channels, "positions": TOEPLITZ_SHOWN}


def _layer_name(name: str) -> str:
    """'encoder.0.mixer' as 'encoder 1', 'trunk.blocks.2.mixer' as 'layer 3'."""
    *_, stack, number, _ = name.split(".")
    return f"{'layer' if stack == 'blocks' else stack} {int(number) + 1}"


def _plain(pieces: list[str]) -> list[str]:
    """Tokens as labels: without the space before a word, and with dollar signs that are not mathematics."""
    return [(piece.strip() or "␣").replace("$", r"\$") for piece in pieces]
