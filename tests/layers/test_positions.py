"""Every kind of position."""

import math

import pytest
import torch

from regard.settings import ModelSettings
from regard.layers.positions import Positions, rotate, shift_matrix, sinusoidal, sinusoidal_halves

D = 16


def test_sinusoidal_is_the_papers_formula():
    codes = sinusoidal(torch.arange(50), D)
    for p in (0, 1, 7, 49):
        for i in range(D // 2):
            angle = p / 10000 ** (2 * i / D)
            assert codes[p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert codes[p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_halves_are_the_same_numbers_with_all_sines_first():
    positions = torch.arange(20)
    interleaved, halves = sinusoidal(positions, D), sinusoidal_halves(positions, D)
    torch.testing.assert_close(halves[:, : D // 2], interleaved[:, 0::2])
    torch.testing.assert_close(halves[:, D // 2 :], interleaved[:, 1::2])


@pytest.mark.parametrize("offset", [1, 5, -3])
def test_a_fixed_matrix_shifts_any_position(offset):
    positions = torch.arange(10, 60)
    shifted = sinusoidal(positions, D) @ shift_matrix(offset, D).T
    torch.testing.assert_close(shifted, sinusoidal(positions + offset, D), atol=1e-5, rtol=0)


def test_rotary_scores_depend_on_distance_only():
    torch.manual_seed(1)
    q, k = torch.randn(1, 1, 1, D), torch.randn(1, 1, 1, D)

    def score(query_position: int, key_position: int) -> float:
        left, right = rotate(q, torch.tensor([[query_position]])), rotate(k, torch.tensor([[key_position]]))
        return (left * right).sum().item()

    assert score(3, 1) == pytest.approx(score(103, 101), abs=1e-4)
    assert abs(score(3, 1) - score(3, 2)) > 1e-3


def test_rotation_keeps_length():
    x = torch.randn(2, 3, 5, D)
    turned = rotate(x, torch.arange(5).expand(2, 5))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))


@pytest.mark.parametrize("kind", ["sinusoidal", "sinusoidal-halves", "learned", "index", "rotary", "none"])
def test_each_kind_adds_what_it_says(kind):
    torch.manual_seed(2)
    positions = Positions(ModelSettings(width=D, heads=2, positions=kind, max_positions=40))
    for parameter in positions.parameters():
        torch.nn.init.normal_(parameter)
    x, places = torch.randn(2, 6, D), torch.arange(6).expand(2, 6)
    added = positions(x, places) - x
    if kind in ("rotary", "none"):
        assert added.abs().max() == 0
    else:
        torch.testing.assert_close(added, positions.code(places), atol=1e-6, rtol=0)
        assert (added[0, 1] - added[0, 5]).abs().max() > 1e-3


def test_plain_index_survives_layer_norm():
    """Added equally to every channel it would not: layer norm removes what all channels share."""
    positions = Positions(ModelSettings(width=D, heads=2, positions="index"))
    torch.nn.init.normal_(positions.direction_D)
    norm = torch.nn.LayerNorm(D)
    x = torch.randn(1, 1, D).expand(1, 2, D)
    out = norm(positions(x, torch.tensor([[0, 90]])))
    assert (out[0, 0] - out[0, 1]).abs().max() > 0.1
