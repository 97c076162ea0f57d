"""Figures of a model's weights (positional encodings, convolutions), of probes, and of the cost of mixers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.explain.convolutions import convolutions
from regard.explain.costs import draw_costs
from regard.explain.explanation import Explanation
from regard.explain.positions import positions
from regard.explain.probe import draw_probe
from regard.explain.view import View
from regard.models.captioner import Captioner
from regard.models.causal import Causal
from regard.models.swin import Swin
from regard.settings import CaptionModel, CausalModel, ImageModel


def told_apart(name: str, longest: int = 1000) -> Explanation:
    """How a small language model is told where tokens stand."""
    settings = CausalModel(layers=1, width=8, heads=2, feedforward=8, max_positions=longest, positions=name)
    task = SimpleNamespace(model=Causal(settings, 20), settings=SimpleNamespace(model=settings))
    return positions(View(task))


@pytest.mark.parametrize(("name", "longest", "count"), [("learned", 20, 20), ("sinusoidal", 1000, 100)])
def test_every_position_is_a_row_and_every_channel_a_column(name, longest, count):
    explanation = told_apart(name, longest)
    [codes] = explanation.arrays
    assert explanation.title == f"Positional encodings: {name}" and codes.values.shape == (count, 8)
    if name == "sinusoidal":
        np.testing.assert_allclose(codes.values[7, :2], [np.sin(7), np.cos(7)], atol=1e-5)
    image = explanation.figure().axes[0].images[0]
    np.testing.assert_allclose(np.asarray(image.get_array()), codes.values, atol=1e-6)
    assert image.get_clim() == pytest.approx((-np.abs(codes.values).max(), np.abs(codes.values).max()))


def test_rotations_are_cosines_and_sines():
    [turned] = told_apart("rotary").arrays
    angles = np.arange(100)[:, None] * 10000.0 ** (-np.arange(2) * 2 / 4)
    np.testing.assert_allclose(turned.values, np.concatenate([np.cos(angles), np.sin(angles)], 1), atol=1e-4)


def test_a_model_without_positional_encodings_is_refused():
    with pytest.raises(RegardError, match='positions = "none"'):
        told_apart("none")


def test_positions_of_an_image_and_of_its_caption_are_both_shown():
    settings = CaptionModel(layers=1, width=8, heads=2, feedforward=8, patch=4, positions="learned")
    model = Captioner(settings, 8, 12, 1, 20, scaled=None)
    explanation = positions(View(SimpleNamespace(model=model, settings=SimpleNamespace(model=settings))))
    assert {array.values.shape[0] for array in explanation.arrays} == {6, 100}


def test_windows_have_a_bias_for_every_offset():
    settings = ImageModel(stages=[1], width=8, heads=2, feedforward=8, patch=1, window=2, positions="none", norm="pre")
    model = Swin(settings, 4, 4, 1, 3)
    [bias] = positions(View(SimpleNamespace(model=model, settings=SimpleNamespace(model=settings)))).arrays
    assert bias.values.shape == (2, 3, 3) and bias.labels[1] == ["-1", "0", "1"]
    np.testing.assert_array_equal(bias.values[1, 0, 2], model.stages[0].blocks[0].mixer.table[2, 1].item())


class Shift(nn.Module):
    """A mixer whose channel n takes what stood n positions before."""

    def toeplitz(self, length: int, channel: int) -> Tensor:
        return torch.ones(length - channel).diag(-channel)


def blocks(mixer: type[nn.Module], count: int) -> nn.Module:
    return nn.ModuleDict({"blocks": nn.ModuleList(nn.ModuleDict({"mixer": mixer()}) for _ in range(count))})


def test_convolutions_of_any_mixer_are_drawn_as_matrices():
    task = SimpleNamespace(model=blocks(Shift, 6), settings=SimpleNamespace(width=9))
    explanation = convolutions(View(task))
    [matrices] = explanation.arrays
    assert matrices.labels[:2] == ([f"layer {n}" for n in (1, 2, 3, 4)], ["1", "3", "5", "7", "9"])
    np.testing.assert_array_equal(matrices.values[1, 1], np.eye(48, k=-2))
    axis = explanation.figure().axes[0]
    assert len(axis.images) == 20 and "layer 2 · channel 3" in [text.get_text() for text in axis.texts]


def test_a_model_without_convolutions_is_refused():
    with pytest.raises(RegardError, match="no convolutions"):
        convolutions(View(SimpleNamespace(model=blocks(nn.Identity, 2), settings=SimpleNamespace(width=8))))


def test_hyena_is_drawn_as_a_matrix_of_the_input(run):
    small = run("language-hyena")
    explanation = small.explain("toeplitz")
    np.testing.assert_array_equal(explanation.arrays[1].values, small.traced.operator("layers.1.mixer").values)
    assert "differ" in explanation.remarks[0]
    [axis] = explanation.figure().axes
    texts = [text.get_text() for text in axis.texts]
    for array in explanation.arrays:  # each has its scale
        assert f"{array.values.max():.3g}" in texts


def test_a_mixer_has_one_colour_and_each_decoding_method_a_line_style(tmp_path, saved_figures):
    points = [(64, 1.0), (128, 2.5)]
    panels = {"time": dict.fromkeys(("a", "b-c"), points), "memory": {}, "token": {"b-c": points, "b-c-slow": points}}
    draw_costs(panels, {"time": {"a": "T^1.3"}}, tmp_path / "costs.png", "title")
    time, token = saved_figures[-1].axes
    assert [line.get_label() for line in time.lines] == ["a  T^1.3", "b-c"]
    assert [(line.get_color(), line.get_linestyle()) for line in token.lines] == [("C1", "-"), ("C1", "--")]
    assert time.lines[1].get_color() == "C1" != time.lines[0].get_color()


@pytest.mark.filterwarnings("error")
def test_any_number_of_mixers_can_be_drawn_and_zero_costs_are_omitted(tmp_path, saved_figures):
    names = [*(f"mixer{number}" for number in range(23)), "_mine", "a-plug-in"]
    panels = {"time": {name: [(64, 1.0), (128, 2.5)] for name in names}, "memory": {"_mine": [(64, 0.0), (128, 0.0)]}}
    panels["token"] = {"_mine": [(64, 0.0), (128, 1.0)]}
    draw_costs(panels, {}, tmp_path / "costs.png", "title")
    time, token = saved_figures[-1].axes
    assert [text.get_text() for text in time.get_legend().get_texts()] == names
    assert token.lines[0].get_xdata().tolist() == [128]


def test_a_probe_is_drawn_with_its_best_layer_and_the_baseline(tmp_path, saved_figures):
    layers = [{"layer": layer, "accuracy": accuracy} for layer, accuracy in enumerate((20.0, 70.5, 50.0))]
    draw_probe({"layers": layers, "commonest_class": 15.0, "best_layer": 1}, tmp_path / "probe.png", "title")
    [axis] = saved_figures[-1].axes
    assert [line.get_ydata().tolist() for line in axis.lines[:1]] == [[20.0, 70.5, 50.0]]
    assert axis.lines[1].get_ydata() == [15.0, 15.0] and [text.get_text() for text in axis.texts] == ["70.5"]
