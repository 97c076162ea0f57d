"""The trace shows what the fast path computed."""

import pytest
import torch

import regard
from regard.errors import RegardError
from regard.explain.plots import attention_grid, positions_heatmap, training_curves
from regard.explain.trace import trace
from regard.models.causal import Causal
from regard.models.swin import Swin
from regard.settings import CausalModel, ImageModel
from regard.verbs.explain import draw, draw_alignment, traced_translation

SENTENCE = "The old farmer helps the child."


def test_recomputed_outputs_equal_the_fast_path(trained):
    traced = traced_translation(trained, SENTENCE)
    names = [name for name, module in trained.model.named_modules() if type(module).__name__ == "Attention"]
    assert sorted(traced.trace) == sorted(names)
    for found in traced.trace.values():
        torch.testing.assert_close(found.output_BTD, found.fast_output_BTD, atol=1e-5, rtol=0)


def test_weights_are_probabilities_and_causal_where_they_must_be(trained):
    traced = traced_translation(trained, SENTENCE)
    for name, found in traced.trace.items():
        rows = found.weights_BHTS.sum(-1)
        torch.testing.assert_close(rows, torch.ones_like(rows), atol=1e-5, rtol=0)
        if name.startswith("decoder") and name.endswith("mixer"):
            assert found.weights_BHTS.triu(1).abs().max() == 0


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


def test_only_the_layers_asked_for_are_traced(trained):
    source = torch.tensor([[3, 4, 2]])
    places = torch.arange(3)[None]
    ones = torch.ones_like(source)
    found = trace(trained.model, lambda: trained.model(source, ones, places, source, ones, places), ["decoder.0.cross"])
    assert list(found) == ["decoder.0.cross"]


def is_png(path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 2000


def test_pictures_are_written(trained, tmp_path):
    traced = traced_translation(trained, SENTENCE)
    draw_alignment(traced, tmp_path / "alignment.png")
    attention_grid(traced.cross_weights(), traced.sources, traced.targets, tmp_path / "grid.png", "title")
    positions_heatmap(torch.randn(20, 16), tmp_path / "positions.png", "title")
    training_curves(trained.folder.read_metrics(), tmp_path / "curves.png")
    assert all(is_png(tmp_path / f"{name}.png") for name in ("alignment", "grid", "positions", "curves"))


@pytest.mark.parametrize(
    "options",
    [
        {"positions": "learned"},
        {"positions": "rotary", "key_value_heads": 2, "query_key_norm": True},
        {"mixer": "local", "local": {"window": 3}},
    ],
)
def test_the_trace_of_a_language_model_equals_its_fast_path(options):
    torch.manual_seed(1)
    settings = CausalModel(layers=2, width=32, heads=4, feedforward=64, dropout=0.0, norm="pre", **options)
    model = Causal(settings, 40).eval()
    found = trace(model, lambda: model(torch.randint(0, 40, (2, 12))))
    assert len(found) == 2
    for each in found.values():
        torch.testing.assert_close(each.output_BTD, each.fast_output_BTD, atol=1e-5, rtol=0)
        above = torch.ones(12, 12, dtype=torch.bool).triu(1)
        assert (each.weights_BHTS[:, :, above] == 0).all()


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
    for found in traced.trace.values():
        torch.testing.assert_close(found.output_BTD, found.fast_output_BTD, atol=1e-5, rtol=0)
        assert found.weights_BHTS.sum(-1).sub(1).abs().max() < 1e-5
    draw(run, SENTENCE, tmp_path / "alignment.png", "alignment", "", "cpu")
    assert is_png(tmp_path / "alignment.png")
    with pytest.raises(RegardError, match="no convolutions"):
        draw(run, "", tmp_path / "toeplitz.png", "toeplitz", "", "cpu")


def test_convolutions_are_drawn_as_matrices(tiny_recipe, tmp_path):
    run = regard.train(str(tiny_recipe), "model.mixer=hyena", "training.steps=10", out=tmp_path / "run")
    found = draw(run, "", tmp_path / "toeplitz.png", "toeplitz", "", "cpu")
    assert is_png(tmp_path / "toeplitz.png")
    assert found["layers"] == 2 and len(found["channels"]) == 5


@pytest.mark.parametrize("size", [(8, 8), (4, 8), (2, 6)])
def test_windows_are_traced_over_the_grid(size):
    torch.manual_seed(3)
    settings = ImageModel(
        stages=[2],
        width=16,
        heads=2,
        feedforward=16,
        patch=1,
        window=min(4, *size),
        positions="none",
        query_key_norm=True,
    )
    model = Swin(settings, *size, 1, 3).eval()
    traced = trace(model, lambda: model(torch.randn(2, 1, *size)))
    assert list(traced) == ["stages.0.blocks.0.mixer", "stages.0.blocks.1.mixer"]
    for found in traced.values():
        assert found.weights_BHTS.shape == (2, 2, size[0] * size[1], size[0] * size[1])
        torch.testing.assert_close(found.output_BTD, found.fast_output_BTD, atol=1e-5, rtol=0)
