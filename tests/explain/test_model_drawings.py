"""Figures of a model's own weights: its position codes, its convolutions; of its layers; and of what mixers cost."""

import pytest
import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.explain.convolutions import draw_convolutions
from regard.explain.costs import draw_costs
from regard.explain.positions import draw_positions
from regard.explain.probe import draw_probe

CPU = torch.device("cpu")


class Codes(nn.Module):
    """Positions as `layers.positions` has them."""

    rotates = False

    def __init__(self, size: float):
        super().__init__()
        self.size = size

    def code(self, positions_BT: Tensor) -> Tensor:
        return self.size * positions_BT[..., None] * torch.ones(6)


class Rotation(nn.Module):
    rotates = True


def test_every_position_is_a_row_and_every_channel_a_column(tmp_path, saved_figures):
    for longest, count in ((20, 20), (1000, 100)):
        assert draw_positions(Codes(0.5), "mine", longest, CPU, tmp_path / "positions.png") == count
        [image] = saved_figures[-1].axes[0].images
        assert image.get_array().shape == (count, 6) and image.get_clim() == (-(count - 1) / 2, (count - 1) / 2)
        assert saved_figures[-1].axes[0].get_title() == "Position encodings: mine"


@pytest.mark.parametrize(("positions", "why"), [(Codes(0.0), "It has no positions"), (Rotation(), "turns queries")])
def test_a_model_that_adds_no_codes_is_refused(positions, why, tmp_path):
    with pytest.raises(RegardError, match=why):
        draw_positions(positions, "none", 20, CPU, tmp_path / "positions.png")
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


def test_a_probe_is_drawn_with_its_best_layer_and_what_guessing_gives(tmp_path, saved_figures):
    layers = [{"layer": layer, "accuracy": accuracy} for layer, accuracy in enumerate((20.0, 70.5, 50.0))]
    draw_probe({"layers": layers, "commonest_class": 15.0, "best_layer": 1}, tmp_path / "probe.png", "title")
    [axis] = saved_figures[-1].axes
    assert [line.get_ydata().tolist() for line in axis.lines[:1]] == [[20.0, 70.5, 50.0]]
    assert axis.lines[1].get_ydata() == [15.0, 15.0] and [text.get_text() for text in axis.texts] == ["70.5"]
