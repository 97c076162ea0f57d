"""Every kind of position."""

import math

import pytest
import torch
from torch.nn import functional as F

from regard import registry
from regard.layers.positions import (
    ENDLESS,
    Rotary,
    Sinusoidal2d,
    SinusoidalHalves,
    frequencies,
    resample,
    sinusoidal,
    sinusoidal_2d,
)
from regard.settings import ImageModel, ModelSettings, SequenceModel

D = 16
every_kind = pytest.mark.parametrize("kind", registry.names("positions"))


def test_sinusoidal_is_the_papers_formula():
    codes = sinusoidal(torch.arange(50), D)
    for p in (0, 1, 7, 49):
        for i in range(D // 2):
            angle = p / 10000 ** (2 * i / D)
            assert codes[p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert codes[p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_halves_are_the_same_numbers_with_all_sines_first():
    positions = torch.arange(20)
    interleaved, halves = sinusoidal(positions, D), SinusoidalHalves(ModelSettings(width=D)).code(positions)
    torch.testing.assert_close(halves[:, : D // 2], interleaved[:, 0::2])
    torch.testing.assert_close(halves[:, D // 2 :], interleaved[:, 1::2])


@pytest.mark.parametrize("offset", [1, 5, -3])
def test_a_fixed_matrix_shifts_any_position(offset):
    """PE(p + k) = M_k PE(p) for every p: each (sin, cos) pair is rotated by k·frequency."""
    angles = offset * frequencies(D)
    blocks = torch.stack(
        [torch.stack([angles.cos(), angles.sin()], -1), torch.stack([-angles.sin(), angles.cos()], -1)], -2
    )
    positions = torch.arange(10, 60)
    shifted = sinusoidal(positions, D) @ torch.block_diag(*blocks).T
    torch.testing.assert_close(shifted, sinusoidal(positions + offset, D), atol=1e-5, rtol=0)


def test_rotary_scores_depend_on_distance_only():
    torch.manual_seed(1)
    q, k = torch.randn(1, 1, 1, D), torch.randn(1, 1, 1, D)

    def score(query_position: int, key_position: int) -> float:
        left, right = (Rotary.rotate(x, torch.tensor([[at]])) for x, at in ((q, query_position), (k, key_position)))
        return (left * right).sum().item()

    assert score(3, 1) == pytest.approx(score(103, 101), abs=1e-4)
    assert abs(score(3, 1) - score(3, 2)) > 1e-3


def test_rotary_turns_each_pair_forwards_by_its_position_times_its_frequency():
    """(x_i, x_{i + K/2}) as one complex number, times exp(i p / 10000^(2i/K))."""
    torch.manual_seed(1)
    x, positions = (
        torch.randn(2, 3, 7, D, dtype=torch.double),
        torch.tensor([[0, 1, 2, 3, 5, 8, 100], [9, 4, 0, 1, 1, 2, 50]]),
    )
    found = Rotary.rotate(x, positions)
    for i in range(D // 2):
        angle = positions.double()[:, None] * 10000.0 ** (-2 * i / D)
        turned = torch.complex(x[..., i], x[..., i + D // 2]) * torch.exp(1j * angle)
        torch.testing.assert_close(found[..., i], turned.real, atol=1e-5, rtol=0)
        torch.testing.assert_close(found[..., i + D // 2], turned.imag, atol=1e-5, rtol=0)


def test_rotary_equals_that_of_llama_in_transformers():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama", reason="transformers is not installed")
    config = llama.LlamaConfig(hidden_size=2 * D, num_attention_heads=2, max_position_embeddings=64)
    torch.manual_seed(1)
    q, k, positions = torch.randn(1, 2, 9, D), torch.randn(1, 2, 9, D), torch.arange(9)[None]
    expected = llama.apply_rotary_pos_emb(q, k, *llama.LlamaRotaryEmbedding(config)(q, positions))
    for mine, theirs in zip((q, k), expected, strict=True):
        torch.testing.assert_close(Rotary.rotate(mine, positions), theirs, atol=1e-5, rtol=0)


def test_a_patch_has_the_code_of_its_row_before_that_of_its_column():
    codes = sinusoidal_2d(3, 4, D)
    for row, column in ((0, 0), (2, 1), (1, 3)):
        expected = torch.cat([sinusoidal(torch.tensor(place), D // 2) for place in (row, column)])
        assert torch.equal(codes[row, column], expected)
    patches = torch.randn(2, 12, D)
    positions = Sinusoidal2d(ImageModel(width=D, heads=2, positions="sinusoidal-2d"))
    assert torch.equal(positions.over_grid(patches, (3, 4)), patches + codes.flatten(0, 1))


@every_kind
def test_only_a_table_of_tokens_ends(kind):
    part = registry.load("positions", kind)
    assert part.most_positions(SequenceModel(max_positions=40)) == (40 if kind == "learned" else ENDLESS)
    assert part.most_positions(ImageModel()) == ENDLESS


def test_a_table_of_a_grid_is_resampled_as_torch_resamples_an_image():
    torch.manual_seed(4)
    table = torch.randn(4, 6, D)
    assert torch.equal(resample(table, (4, 6)), table)
    for grid in ((8, 6), (2, 3), (5, 9)):
        image = F.interpolate(table.permute(2, 0, 1)[None], grid, mode="bicubic", antialias=True)
        torch.testing.assert_close(resample(table, grid), image[0].permute(1, 2, 0))


def test_plain_index_is_a_hundredth_of_the_position_along_one_direction():
    torch.manual_seed(2)
    positions = registry.load("positions", "index")(ModelSettings(width=D, heads=2, positions="index"))
    positions.initialise()
    assert 0.5 < positions.direction_D.norm() < 2  # deviation 1 / √D
    torch.testing.assert_close(
        positions.code(torch.tensor([0, 7, 250])), torch.tensor([[0.0], [0.07], [2.5]]) * positions.direction_D
    )


@every_kind
def test_a_rotation_keeps_length_and_only_rotary_is_one(kind):
    x = torch.randn(2, 3, 5, D)
    rotated = registry.load("positions", kind).rotate(x, torch.arange(5).expand(2, 5))
    torch.testing.assert_close(rotated.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(rotated, x) == (kind != "rotary")


def refused(kind: str, **changes) -> list[str]:
    return [str(problem) for problem in SequenceModel(positions=kind, **changes).check_parts()]


@every_kind
def test_each_kind_adds_what_it_says(kind):
    torch.manual_seed(2)
    if refused(kind):
        assert "for patches of images" in refused(kind)[0]
        return
    positions = registry.load("positions", kind)(SequenceModel(width=D, heads=2, positions=kind, max_positions=40))
    for parameter in positions.parameters():
        torch.nn.init.normal_(parameter)
    x, places = torch.randn(2, 6, D), torch.arange(6).expand(2, 6)
    added = positions(x, places) - x
    torch.testing.assert_close(added, positions.code(places), atol=1e-6, rtol=0)
    assert (kind in ("rotary", "none")) == ((added[0, 1] - added[0, 5]).abs().max() < 1e-3)


@every_kind
def test_each_kind_tells_the_patches_of_a_grid_apart_or_nothing(kind):
    torch.manual_seed(3)
    settings, part = ImageModel(width=D, heads=2, positions=kind), registry.load("positions", kind)
    assert list(settings.check_parts()) == []
    assert list(part.check_length(settings, "patches", 1 << 30)) == []
    patches = torch.randn(1, 6, D)
    table = part.table_over_grid(settings, (2, 3))
    if table is None:
        positions = part(settings)
        positions.initialise()
        added = positions.over_grid(patches, (2, 3)) - patches
    else:
        added = table.flatten(0, 1)[None]
    assert added.shape == patches.shape
    apart = [(added[0, i] - added[0, j]).abs().max() > 1e-3 for i in range(6) for j in range(i)]
    assert all(apart) if kind not in ("rotary", "none") else not any(apart)


def test_widths_that_cannot_be_paired_are_refused():
    odd = {"width": 9, "heads": 3}
    for kind in ("sinusoidal", "sinusoidal-halves"):
        assert refused(kind, **odd) == [
            "width = 9 is odd, and sinusoidal positions need pairs; use an even width",
        ]
    assert "a head of 3 is odd, and rotary positions need pairs" in refused("rotary", **odd)[0]
    assert refused("learned", **odd) == refused("none", **odd) == refused("index", **odd) == []
    (problem,) = ImageModel(width=6, heads=3, positions="sinusoidal-2d").check_parts()
    assert "width = 6 cannot be divided by 4" in problem.reason


@every_kind
def test_only_a_table_has_a_last_position(kind):
    part, settings = registry.load("positions", kind), SequenceModel(positions=kind, max_positions=40)
    assert list(part.check_length(settings, "data.max_length", 40)) == []
    problems = [problem.reason for problem in part.check_length(settings, "data.max_length", 41)]
    expected = ["data.max_length = 41 is more than model.max_positions = 40"] if kind == "learned" else []
    assert problems == expected


def test_plain_index_survives_layer_norm():
    """Added equally to every channel it would not: layer norm removes what all channels share."""
    positions = registry.load("positions", "index")(ModelSettings(width=D, heads=2, positions="index"))
    torch.nn.init.normal_(positions.direction_D)
    norm = torch.nn.LayerNorm(D)
    x = torch.randn(1, 1, D).expand(1, 2, D)
    out = norm(positions(x, torch.tensor([[0, 90]])))
    assert (out[0, 0] - out[0, 1]).abs().max() > 0.1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_rotation_of_a_gpu_is_the_one_written_out():
    torch.manual_seed(1)
    x = torch.randn(3, 19, 5 * 24, device="cuda").unflatten(-1, (5, 24)).transpose(1, 2)
    positions = torch.randint(0, 1000, (3, 19), device="cuda")
    exact = x.double().requires_grad_()
    half = x.bfloat16().requires_grad_()
    expected, found = Rotary.rotate(exact, positions), Rotary.rotate(half, positions)
    gradient = torch.randn_like(x)
    (of_exact,) = torch.autograd.grad(expected, exact, gradient.double())
    (of_half,) = torch.autograd.grad(found, half, gradient.bfloat16())
    for own, wanted in ((found, expected), (of_half, of_exact)):
        assert own.dtype == torch.bfloat16
        assert (own.double() - wanted).norm() < 0.005 * wanted.norm()
