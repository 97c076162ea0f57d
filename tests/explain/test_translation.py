"""What a translator looked at: weights and tokens belong together, and both are drawn."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from regard.data.samples import english_german
from regard.data.tokenizers import END, TextTokenizer, train_tokenizer
from regard.errors import RegardError
from regard.explain.translation import TracedTranslation, draw_alignment, draw_attention, trace_translation
from regard.models.seq2seq import Seq2Seq
from regard.settings import TokenizerSettings, TranslationModel

SOURCE, TARGET = "The old farmer helps the child.", "Der Hund schläft."


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    texts = [text for pair in english_german.pairs(200, seed=3) for text in pair]
    return train_tokenizer(texts, TokenizerSettings(kind="bpe", vocabulary=400))


@pytest.fixture(scope="module")
def traced(tokenizer: TextTokenizer) -> TracedTranslation:
    """Of a model as it starts."""
    torch.manual_seed(1)
    settings = TranslationModel(layers=2, width=16, heads=2, feedforward=32, norm="pre")
    model = Seq2Seq(settings, tokenizer.size, tokenizer.size)
    source, target = tokenizer.encode([SOURCE, TARGET])
    return trace_translation(model, [*source, END], target, (tokenizer, tokenizer), torch.device("cpu"))


def test_tokens_and_weights_belong_together(traced):
    assert "".join(traced.sources[:-1]).strip() == SOURCE
    assert "".join(traced.targets[:-1]).strip() == traced.text == TARGET
    weights_LHTS = traced.cross_weights()
    assert weights_LHTS.shape == (2, 2, len(traced.targets), len(traced.sources))
    torch.testing.assert_close(weights_LHTS.sum(-1), torch.ones(weights_LHTS.shape[:3]))


def test_the_alignment_is_the_mean_of_the_last_layer(traced, tmp_path, saved_figures):
    draw_alignment(replace(traced, sources=["$", *traced.sources[1:]]), tmp_path / "alignment.png")
    axis = saved_figures[-1].axes[0]
    drawn_TS = torch.as_tensor(axis.images[0].get_array())
    torch.testing.assert_close(drawn_TS, traced.cross_weights()[-1].mean(0))
    labels = [label.get_text() for label in axis.get_xticklabels()]
    assert labels[0] == r"\$" and labels[1:] == [piece.strip() for piece in traced.sources[1:]]


def test_every_layer_and_head_is_drawn(traced, tmp_path, saved_figures):
    draw_attention(traced, tmp_path / "attention.png")
    axes = saved_figures[-1].axes
    titles = [axis.get_title() for axis in axes]
    assert titles == [f"layer {layer} · head {head}" for layer in (1, 2) for head in (1, 2)]
    torch.testing.assert_close(torch.as_tensor(axes[1].images[0].get_array()), traced.cross_weights()[0, 1])
    assert saved_figures[-1].get_suptitle().endswith(TARGET)


def test_a_translator_without_cross_attention_is_refused(traced, tmp_path):
    blind = replace(traced, trace={name: each for name, each in traced.trace.items() if not name.endswith("cross")})
    for draw in (draw_alignment, draw_attention):
        with pytest.raises(RegardError, match="looks at nothing"):
            draw(blind, tmp_path / "none.png")
    assert not list(tmp_path.iterdir())
