"""What a trained translator looks at, as tokens and as pictures."""

import pytest
import torch

import regard
from regard.errors import RegardError
from regard.explain.plots import attention_grid, positions_heatmap, training_curves
from regard.verbs.explain import draw, draw_alignment, traced_translation

SENTENCE = "The old farmer helps the child."


def test_tokens_and_shapes_belong_together(trained):
    traced = traced_translation(trained, SENTENCE)
    layers, heads, targets, sources = traced.cross_weights().shape
    assert (layers, heads) == (trained.config.model.layers, trained.config.model.heads)
    assert (targets, sources) == (len(traced.targets), len(traced.sources))
    assert "".join(traced.sources[:-1]).strip() == SENTENCE
    assert "".join(traced.targets[:-1]).strip() == traced.text


def test_a_given_translation_can_be_looked_at(trained):
    traced = traced_translation(trained, SENTENCE, target="Der Hund schläft.")
    assert traced.text == "Der Hund schläft."


def is_png(path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 2000


def test_pictures_are_written(trained, tmp_path):
    traced = traced_translation(trained, SENTENCE)
    draw_alignment(traced, tmp_path / "alignment.png")
    attention_grid(traced.cross_weights(), traced.sources, traced.targets, tmp_path / "grid.png", "title")
    positions_heatmap(torch.randn(20, 16), tmp_path / "positions.png", "title")
    training_curves(trained.folder.read_metrics(), tmp_path / "curves.png")
    assert all(is_png(tmp_path / f"{name}.png") for name in ("alignment", "grid", "positions", "curves"))


@pytest.mark.parametrize("cross", ["additive", "none"])
def test_what_a_recurrent_translator_looks_at(cross, tiny_recipe, tmp_path):
    changes = ["model.mixer=gru", f"model.cross={cross}", "training.steps=10"]
    run = regard.train(str(tiny_recipe), *changes, out=tmp_path / "run")
    if cross == "none":
        with pytest.raises(RegardError, match="looks at nothing"):
            draw(run, SENTENCE, tmp_path / "none.png", "alignment", "", "cpu")
        return
    traced = traced_translation(regard.load(run), SENTENCE)
    assert list(traced.trace) == ["decoder.0.cross"]
    draw(run, SENTENCE, tmp_path / "alignment.png", "alignment", "", "cpu")
    assert is_png(tmp_path / "alignment.png")
    with pytest.raises(RegardError, match="no convolutions"):
        draw(run, "", tmp_path / "toeplitz.png", "toeplitz", "", "cpu")


def test_convolutions_are_drawn_as_matrices(tiny_recipe, tmp_path):
    run = regard.train(str(tiny_recipe), "model.mixer=hyena", "training.steps=10", out=tmp_path / "run")
    found = draw(run, "", tmp_path / "toeplitz.png", "toeplitz", "", "cpu")
    assert is_png(tmp_path / "toeplitz.png")
    assert found["layers"] == 2 and len(found["channels"]) == 5
