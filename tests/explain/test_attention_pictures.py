"""Attention of every head: the weights, their tokens, and how large arrays are reduced."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.errors import UsageError
from regard.explain import attention as attention_module
from regard.explain.heat_maps import Map, draw_maps, reduced


def test_weights_are_those_of_the_trace_with_the_tokens_they_belong_to(run):
    small = run("translator")
    weights = small.explain("attention").arrays[0]
    parts = [part.attention().weights_BHTS[0] for part in small.traced.parts() if part.cross]
    np.testing.assert_array_equal(weights.values, torch.stack(parts).numpy())
    assert weights.labels[2] == ["9", "8", "7", "31", "2"]  # written, <end> last
    assert weights.labels[3] == ["5", "9", "30", "12", "2"]
    np.testing.assert_allclose(weights.values.sum(-1), 1, atol=1e-5)


def test_every_layer_and_head_is_drawn_once(run):
    small = run("language")
    figure = small.explain("attention").figure()
    titles = [text.get_text() for text in figure.axes[0].texts if text.get_text().startswith("layer")]
    assert titles == [f"layer {layer} · head {head}" for layer in (1, 2) for head in (1, 2, 3, 4)]
    weights = torch.stack([part.attention().weights_BHTS[0] for part in small.traced.parts() if part.attends])
    drawn = [np.asarray(image.get_array()) for image in figure.axes[0].images[:8]]
    np.testing.assert_allclose(np.stack(drawn), weights.flatten(0, 1).numpy(), atol=1e-6)


def test_only_some_heads_of_a_large_model_are_drawn_and_the_picture_says_so(run, monkeypatch):
    monkeypatch.setattr(attention_module, "MOST_LAYERS", 1)
    monkeypatch.setattr(attention_module, "MOST_HEADS", 3)
    explanation = run("language").explain("attention")
    assert explanation.remarks == ["drawn: layers 2 to 2 and heads 1 to 3, of 2 layers with 4 heads"]
    assert explanation.arrays[0].values.shape[:2] == (2, 4)  # the numbers are all there
    texts = [text.get_text() for text in explanation.figure().axes[0].texts]
    assert "layer 2 · head 3" in texts and not {"layer 1 · head 1", "layer 2 · head 4"} & set(texts)


def test_large_arrays_are_reduced_by_their_maximum_and_a_single_head_is_not(run, monkeypatch):
    whole = run("language").explain("attention").arrays[0]
    monkeypatch.setattr(attention_module, "MOST_NUMBERS", 8 * 9)
    explanation = run("language").explain("attention")
    assert (
        explanation.arrays[0].values.shape == (2, 4, 3, 3)
        and "largest weight of each block of 2 × 2" in explanation.remarks[0]
    )
    blocks = whole.values.reshape(2, 4, 3, 2, 3, 2).max((3, 5))
    np.testing.assert_array_equal(explanation.arrays[0].values, blocks)
    assert explanation.arrays[0].labels[3] == ["5 …", "30 …", "12 …"]
    single = run("language").explain("attention", layer=1, head=1).arrays[0]
    np.testing.assert_array_equal(single.values[0, 0], whole.values[0, 0])


def test_reducing_keeps_the_largest_magnitude_and_its_sign():
    values = np.array([[1.0, -5.0, 2.0], [0.0, 3.0, -1.0], [np.nan, 7.0, 0.5]])
    small, joined = reduced(values, 2)
    assert joined == (2, 2)
    np.testing.assert_array_equal(small, [[-5.0, 2.0], [7.0, 0.5]])
    assert reduced(values, 3)[0] is values


def test_a_long_text_is_drawn_within_bounds(run):
    names = [f"token-{number}" for number in range(700)]
    values = np.random.default_rng(1).random((700, 700), dtype=np.float32)
    figure = draw_maps([[Map("", values)]], names, names, "weight", ("from", "to"))
    width, height = figure.get_size_inches()
    assert max(width, height) < 14
    assert max(figure.axes[0].images[0].get_array().shape) <= 512
    assert 20 < sum(text.get_text().startswith("token-") for text in figure.axes[0].texts) < 250


def test_the_error_for_a_model_without_attention_suggests_influence(run):
    with pytest.raises(UsageError, match=r"(?s)has no attention.*--what influence"):
        run("language-gru").explain("attention")
    with pytest.raises(UsageError, match="The encoder of this model has no attention"):
        run("translator-bahdanau").explain("attention", stack="encoder")


def test_a_caption_has_a_map_for_each_word(run):
    small = run("captioner")
    maps, every = small.explain("attention").arrays
    assert maps.values.shape == (4, 2, 3)
    parts = [part.attention().weights_BHTS[0] for part in small.traced.parts() if part.cross]
    mean_TS = torch.stack(parts).mean((0, 1))
    before = small.looked_at.stacks[0].before
    np.testing.assert_allclose(maps.values.reshape(4, 6), mean_TS[:, before:].numpy(), atol=1e-6)
    assert every.values.shape[:2] == (2, 4)
