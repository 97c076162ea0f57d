"""The figure of attention over an image: every head once, little empty space, and omissions are stated."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from regard.errors import RegardError
from regard.explain import image_maps
from regard.explain.figures import save
from regard.explain.image_maps import MOST_HEADS, columns_for, draw_maps, left_out
from regard.inside.rollout import AttentionMaps, attention_maps


def maps_of(heads: Sequence[int]) -> AttentionMaps:
    """Even attention of every head, on a grid of 2 × 4."""
    layers = [torch.full((count, 2, 4), 1 / 8) for count in heads]
    return AttentionMaps(torch.full((2, 4), 1 / 8), layers, "the class token")


def black(height: int, width: int) -> np.ndarray:
    return np.zeros((height, width, 1), np.uint8)


@pytest.fixture
def drawn(tmp_path: Path):
    """Draws the maps of this many heads in each layer, and returns the figure."""

    def draw(heads: Sequence[int], pixels_HWC: np.ndarray | None = None) -> Figure:
        pixels_HWC = black(8, 8) if pixels_HWC is None else pixels_HWC
        figure = draw_maps(pixels_HWC, maps_of(heads))
        save(figure, tmp_path / "map.png")
        return figure

    return draw


def written(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def positions(figure: Figure, text: str) -> list[tuple[float, float]]:
    return [label.get_position() for label in figure.axes[0].texts if label.get_text() == text]


def share_of_white(path: Path) -> float:
    return float((np.array(Image.open(path).convert("L")) == 255).mean())


def test_every_head_of_every_layer_is_drawn_once(drawn):
    texts = written(drawn([2, 2, 4]))
    assert [text for text in texts if text.startswith("layer")] == ["layer 1", "layer 2", "layer 3"]
    heads = [text for text in texts if text.startswith("head")]
    assert heads == [f"head {number}" for count in (2, 2, 4) for number in range(1, count + 1)]


def test_omissions_are_stated_and_only_those():
    assert left_out([16] * 24) == ""
    assert left_out([32] * 4) == "drawn: 16 of 32 heads"
    assert left_out([4] * 30) == "drawn: the last 24 of 30 layers"
    assert left_out([4, 4, 24, 24, 48]) == "drawn: 16 of 24 heads in layers 3 to 4, 16 of 48 heads in layer 5"
    assert left_out([20, *[4] * 24]) == "drawn: the last 24 of 25 layers"


def test_the_last_layers_and_first_heads_of_a_large_model_are_drawn_and_stated(drawn, monkeypatch):
    monkeypatch.setattr(image_maps, "MOST_LAYERS", 3)
    monkeypatch.setattr(image_maps, "MOST_HEADS", 2)
    texts = written(drawn([6] * 5))
    assert left_out([6] * 5) == "drawn: the last 3 of 5 layers, 2 of 6 heads"
    assert [text for text in texts if text.startswith("layer")] == ["layer 3", "layer 4", "layer 5"]
    assert texts.count("head 2") == 3 and "head 3" not in texts


@pytest.mark.parametrize("shape", [(8, 8), (8, 16), (16, 8), (4, 16), (24, 8)])
def test_the_picture_follows_the_shape_of_the_image(drawn, tmp_path, shape):
    drawn([4, 4, 4], black(*shape))
    assert share_of_white(tmp_path / "map.png") < 0.45


def test_an_image_is_never_distorted(drawn):
    for shape in [(8, 8), (8, 24), (2, 32), (40, 4)]:
        for image in drawn([2], black(*shape)).axes[0].images[:-1]:  # all but the scale
            left, right, bottom, top = image.get_extent()
            assert (bottom - top) / (right - left) == pytest.approx(shape[0] / shape[1])


def test_maps_do_not_overlap_and_lie_within_the_picture(drawn):
    figure = drawn([3, 6, 12, 20], black(8, 20))
    width, height = figure.get_size_inches()
    extents = sorted({tuple(image.get_extent()) for image in figure.axes[0].images})
    assert len(extents) == 2 + 3 + 6 + 12 + MOST_HEADS + 1  # the scale
    for number, (left, right, bottom, top) in enumerate(extents):
        assert 0 < left < right < width and 0 < top < bottom < height
        for other in extents[number + 1 :]:
            assert right < other[0] or other[1] < left or bottom < other[3] or other[2] < top


@pytest.mark.parametrize(
    ("heads", "columns"),
    [
        ([4, 4, 4], 4),
        ([8] * 6, 8),
        ([12] * 6, 6),  # wrapped, so that the picture is not too wide
        ([12] * 12, 12),  # as wide as high
        ([4, 4, 8, 8], 4),
        ([3, 3, 6, 6, *[12] * 6, 16, 16], 6),
        ([1], 2),  # the image and the rollout
    ],
)
def test_columns_leave_little_empty_and_a_shallow_model_gets_no_strip(heads, columns):
    assert columns_for(heads) == columns


def test_little_of_the_picture_of_a_swin_is_empty(drawn, tmp_path):
    drawn([4, 4, 8, 8])
    assert share_of_white(tmp_path / "map.png") < 0.3


def test_wrapped_heads_stay_with_their_layer(drawn):
    figure = drawn([2, 16, 2])
    middle = [positions(figure, f"layer {layer}")[0][1] for layer in (1, 2, 3)]
    rows = sorted({round(positions(figure, f"head {head}")[-1][1], 3) for head in range(3, 17)})
    assert len(rows) > 1
    assert middle[0] < rows[0] < middle[1] < rows[-1] < middle[2]


@pytest.mark.parametrize(
    "name", ["a $b_{c$ d.png", "$\\frac{1$.png", "line\nend.png", "\udcff.png", "many words " * 30]
)
def test_any_name_can_be_in_the_title_and_none_runs_out_of_the_picture(run, name):
    explanation = replace(run("vit").explain("attention"), input_text=name, output_text="3, 12.0%")
    with Image.open(io.BytesIO(explanation.rendered(".png"))) as picture:
        edges = np.array(picture.convert("L"))
    assert (edges[:, :8] == 255).all() and (edges[:, -8:] == 255).all() and "12.0%" in explanation.about[0]


def test_a_model_without_attention_is_refused(run):
    with pytest.raises(RegardError, match="The model has no attention"):
        run("vit", mixer="hyena").explain("attention")


def test_maps_are_those_of_the_rollout_and_of_every_head(run):
    small = run("vit")
    explanation, maps = small.explain("attention"), attention_maps(small.traced)
    heads, rollout = explanation.arrays
    np.testing.assert_array_equal(rollout.values, maps.rollout_RS.numpy())
    np.testing.assert_array_equal(heads.values, torch.stack(maps.layers_HRS).numpy())
    assert written(explanation.figure()).count("head 2") == 2
    faithful = small.traced.attribute("rollout").faithful()
    assert explanation.facts["faithfulness"]["insertion"] == pytest.approx(faithful.insertion)
    assert explanation.facts["faithfulness"]["deletion_beats"] == faithful.deletion_beats
    assert explanation.checks[0].startswith(
        f"rollout: {faithful.verdict} Deletion {faithful.deletion:.3g} (random order"
    )


@pytest.mark.parametrize("model", ["vit", "captioner"])
def test_each_map_has_its_own_scale_from_zero_which_is_stated(run, model):
    explanation = run(model).explain("attention")
    assert "each map is scaled to its own maximum" in explanation.remarks
    figure = explanation.figure()
    texts = written(figure)
    assert texts[-3:] == ["0", "1", "of each map's maximum"]
    assert {image.norm.vmin for image in figure.axes[0].images if image.get_alpha()} == {0.0}
    if model == "vit":
        assert f"rollout, 0 to {explanation.arrays[-1].values.max():.1%}" in texts


def test_the_stages_of_a_swin_have_arrays_of_their_own(run):
    small = run("swin")
    *stages, rollout = small.explain("attention").arrays
    assert [(each.name, each.values.shape) for each in stages] == [
        ("attention, stage 1", (2, 2, 16, 16)),
        ("attention, stage 2", (2, 4, 8, 8)),
    ]
    assert rollout.values.sum() == pytest.approx(1, abs=1e-4)
