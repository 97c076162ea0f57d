"""Figures of a model's own weights: its position codes, its convolutions; of its layers; and of what mixers cost."""

import pytest
import torch
from torch import Tensor, nn

from regard import registry
from regard.errors import RegardError
from regard.explain.convolutions import draw_convolutions
from regard.explain.costs import draw_costs
from regard.explain.positions import draw_positions
from regard.explain.probe import draw_probe
from regard.settings import SequenceModel

CPU = torch.device("cpu")


def positions(name: str) -> nn.Module:
    return registry.load("positions", name)(SequenceModel(width=6, heads=1, max_positions=20))


@pytest.mark.parametrize(("name", "longest", "count"), [("learned", 20, 20), ("sinusoidal", 1000, 100)])
def test_every_position_is_a_row_and_every_channel_a_column(name, longest, count, tmp_path, saved_figures):
    encoding = positions(name)
    assert draw_positions(encoding, name, longest, CPU, tmp_path / "positions.png") == count
    axis = saved_figures[-1].axes[0]
    codes_TD = encoding.code(torch.arange(count)).detach()
    torch.testing.assert_close(torch.as_tensor(axis.images[0].get_array()), codes_TD)
    largest = codes_TD.abs().max().item()
    assert axis.images[0].get_clim() == pytest.approx((-largest, largest))
    assert axis.get_title() == f"Position encodings: {name}"


@pytest.mark.parametrize(("name", "why"), [("none", "It has no positions"), ("rotary", "rotates queries and keys")])
def test_a_model_that_adds_no_codes_is_refused(name, why, tmp_path):
    with pytest.raises(RegardError, match=why):
        draw_positions(positions(name), name, 20, CPU, tmp_path / "positions.png")
    assert not list(tmp_path.iterdir())


class Shift(nn.Module):
    """A mixer whose channel n takes what stood n positions before."""

    def toeplitz(self, length: int, channel: int) -> Tensor:
        return torch.ones(length - channel).diag(-channel)


def blocks(mixer: type[nn.Module], count: int) -> nn.Module:
    return nn.ModuleDict({"blocks": nn.ModuleList(nn.ModuleDict({"mixer": mixer()}) for _ in range(count))})


def test_convolutions_of_any_mixer_are_drawn_as_matrices(tmp_path, saved_figures):
    drawn = draw_convolutions(blocks(Shift, 6), 9, tmp_path / "toeplitz.png")
    assert drawn == {"layers": 4, "channels": [0, 2, 4, 6, 8], "positions": 48}
    axes = saved_figures[-1].axes
    assert len(axes) == 20 and axes[0].get_title() == "layer 1 · channel 1"
    assert axes[6].get_title() == "layer 2 · channel 3"
    assert torch.equal(torch.as_tensor(axes[6].images[0].get_array()), torch.ones(46).diag(-2))


def test_a_model_without_convolutions_is_refused(tmp_path):
    with pytest.raises(RegardError, match="no convolutions"):
        draw_convolutions(blocks(nn.Identity, 2), 8, tmp_path / "toeplitz.png")


def test_a_mixer_has_one_colour_in_all_panels_and_each_way_to_decode_it_a_style(tmp_path, saved_figures):
    points = [(64, 1.0), (128, 2.5)]
    panels = {"time": dict.fromkeys(("a", "b-c"), points), "memory": {}, "token": {"b-c": points, "b-c-slow": points}}
    draw_costs(panels, {"time": {"a": "T^1.3"}}, tmp_path / "costs.png", "title")
    time, token = saved_figures[-1].axes
    assert [line.get_label() for line in time.lines] == ["a  T^1.3", "b-c"]
    assert [(line.get_color(), line.get_linestyle()) for line in token.lines] == [("C1", "-"), ("C1", "--")]
    assert time.lines[1].get_color() == "C1" != time.lines[0].get_color()


@pytest.mark.filterwarnings("error")
def test_any_number_of_mixers_of_any_name_can_be_drawn_and_what_costs_nothing_is_left_out(tmp_path, saved_figures):
    names = [*(f"mixer{number}" for number in range(23)), "_mine", "a-plug-in"]
    panels = {"time": {name: [(64, 1.0), (128, 2.5)] for name in names}, "memory": {"_mine": [(64, 0.0), (128, 0.0)]}}
    panels["token"] = {"_mine": [(64, 0.0), (128, 1.0)]}
    draw_costs(panels, {}, tmp_path / "costs.png", "title")
    time, token = saved_figures[-1].axes
    assert [text.get_text() for text in time.get_legend().get_texts()] == names
    assert token.lines[0].get_xdata().tolist() == [128]


def test_a_probe_is_drawn_with_its_best_layer_and_what_guessing_gives(tmp_path, saved_figures):
    layers = [{"layer": layer, "accuracy": accuracy} for layer, accuracy in enumerate((20.0, 70.5, 50.0))]
    draw_probe({"layers": layers, "commonest_class": 15.0, "best_layer": 1}, tmp_path / "probe.png", "title")
    [axis] = saved_figures[-1].axes
    assert [line.get_ydata().tolist() for line in axis.lines[:1]] == [[20.0, 70.5, 50.0]]
    assert axis.lines[1].get_ydata() == [15.0, 15.0] and [text.get_text() for text in axis.texts] == ["70.5"]
