"""Swin against the model of Hugging Face with the same weights, its sizes, and a small real training."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.layers.block import Block
from regard.models.swin import PatchMerging, Swin
from regard.settings import ImageModel
from regard.tasks.starting import copy_body


def settings(**changes) -> ImageModel:
    small = {"width": 12, "heads": 3, "feedforward": 24, "patch": 2, "window": 4, "stages": [2, 2]}
    common = {"positions": "none", "norm": "pre", "activation": "gelu", "dropout": 0.0}
    return ImageModel(**small | common | changes)


def scattered(model: Swin) -> Swin:
    """Every weight moved away from where it starts, so that each of them matters."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def copy_to_transformers(ours: Swin, theirs: nn.Module) -> None:
    swin = theirs.swin
    swin.embeddings.patch_embeddings.projection.load_state_dict(ours.patches.state_dict())
    swin.embeddings.norm.load_state_dict(ours.patches_norm.state_dict())
    for stage, layer in zip(ours.stages, swin.encoder.layers, strict=True):
        for block, other in zip(stage.blocks, layer.blocks, strict=True):
            weights, biases = block.mixer.to_qkv.weight.chunk(3), block.mixer.to_qkv.bias.chunk(3)
            for name, weight, bias in zip(("q_proj", "k_proj", "v_proj"), weights, biases, strict=True):
                getattr(other.attention, name).load_state_dict({"weight": weight, "bias": bias})
            other.attention.o_proj.load_state_dict(block.mixer.to_out.state_dict())
            other.attention.relative_position_bias.relative_position_bias_table.data.copy_(block.mixer.table)
            other.layernorm_before.load_state_dict(block.mixer_norm.state_dict())
            other.layernorm_after.load_state_dict(block.feedforward_norm.state_dict())
            other.mlp.fc1.load_state_dict(block.feedforward.expand.state_dict())
            other.mlp.fc2.load_state_dict(block.feedforward.contract.state_dict())
        if isinstance(stage.merge, PatchMerging):
            layer.downsample.norm.load_state_dict(stage.merge.norm.state_dict())
            layer.downsample.reduction.load_state_dict(stage.merge.reduce.state_dict())
    swin.layernorm.load_state_dict(ours.norm.state_dict())
    theirs.classifier.load_state_dict(ours.to_classes.state_dict())


# Several windows, which shift; in the last stage of the first two a single one, which does not; and in that of the last
# two several in one direction, where none shift because the grid is as narrow as they are.
@pytest.mark.parametrize(
    ("stages", "window", "height", "width"),
    [([2, 2], 4, 16, 16), ([2, 3, 2], 4, 32, 32), ([3, 2], 3, 24, 36), ([2], 4, 8, 24), ([2, 2], 4, 32, 16)],
)
def test_the_network_equals_that_of_transformers(stages, window, height, width):
    transformers = pytest.importorskip("transformers", reason="transformers is the independent implementation")
    torch.manual_seed(1)
    ours = scattered(Swin(settings(stages=stages, window=window), height, width, channels=3, classes=5))
    config = transformers.SwinConfig(
        image_size=(height, width),
        patch_size=2,
        embed_dim=12,
        depths=stages,
        num_heads=[3 * 2**i for i in range(len(stages))],
        window_size=window,
        mlp_ratio=2.0,
        layer_norm_eps=1e-5,
        qkv_bias=True,
        num_labels=5,
    )
    theirs = transformers.SwinForImageClassification(config).eval()
    copy_to_transformers(ours, theirs)
    images = torch.randn(3, 3, height, width)
    with torch.no_grad():
        expected = theirs(images).logits
        torch.testing.assert_close(ours(images), expected, atol=1e-4, rtol=0)
        pooled = theirs.swin(images).pooler_output
        torch.testing.assert_close(ours.features(images), pooled, atol=1e-4, rtol=0)
    assert expected.std() > 0.1


def test_a_grid_narrower_than_a_window_equals_that_of_transformers_with_windows_of_its_side():
    """Whose windows must not be larger than the grid: it gets the middle of our table, which is what is used."""
    transformers = pytest.importorskip("transformers", reason="transformers is the independent implementation")
    torch.manual_seed(1)
    ours = scattered(Swin(settings(stages=[2], window=4), 4, 16, channels=3, classes=5))
    config = transformers.SwinConfig(
        image_size=(4, 16),
        patch_size=2,
        embed_dim=12,
        depths=[2],
        num_heads=[3],
        window_size=2,
        mlp_ratio=2.0,
        num_labels=5,
    )
    theirs = transformers.SwinForImageClassification(config).eval()
    images = torch.randn(3, 3, 4, 16)
    with torch.no_grad():
        found = ours(images)
        for block in ours.stages[0].blocks:
            block.mixer.table = nn.Parameter(block.mixer.table.view(7, 7, 3)[2:5, 2:5].reshape(9, 3))
        copy_to_transformers(ours, theirs)
        torch.testing.assert_close(found, theirs(images).logits, atol=1e-4, rtol=0)


def test_merging_takes_the_four_column_by_column():
    merge = PatchMerging(settings(width=1, heads=1), grid=(4, 6))
    merge.norm = nn.Identity()
    merge.reduce = nn.Identity()
    merged = merge(torch.arange(24.0).view(1, 24, 1))
    assert merged.shape == (1, 6, 4)
    assert merged[0, 0].tolist() == [0, 6, 1, 7]
    assert merged[0, 1].tolist() == [2, 8, 3, 9]
    assert merged[0, 3].tolist() == [12, 18, 13, 19]


def test_a_block_has_the_parameters_of_the_formula():
    width, heads, inner, window = 12, 3, 24, 4
    block = Swin(settings(), 32, 32, 3, 5).stages[0].blocks[0]
    attention = 4 * width * width + 4 * width + (2 * window - 1) ** 2 * heads
    feedforward = 2 * width * inner + inner + width
    norms = 2 * 2 * width
    assert sum(parameter.numel() for parameter in block.parameters()) == attention + feedforward + norms


def test_swin_tiny_has_as_many_parameters_as_in_transformers():
    transformers = pytest.importorskip("transformers", reason="transformers is the independent implementation")
    tiny = settings(width=96, heads=3, feedforward=384, patch=4, window=7, stages=[2, 2, 6, 2])
    with torch.device("meta"):
        ours = Swin(tiny, 224, 224, channels=3, classes=1000)
        theirs = transformers.SwinForImageClassification(transformers.SwinConfig(num_labels=1000))
    count = sum(parameter.numel() for parameter in ours.parameters())
    assert count == sum(parameter.numel() for parameter in theirs.parameters())
    assert 28.2e6 < count < 28.4e6  # the paper says 28 million


@pytest.mark.parametrize(
    ("height", "width", "patch"), [(16, 16, 2), (16, 32, 2), (32, 8, 2), (8, 16, [1, 2]), (8, 8, 2), (4, 4, 2)]
)
def test_images_of_any_shape_that_windows_fill(height, width, patch):
    torch.manual_seed(2)
    model = scattered(Swin(settings(patch=patch), height, width, channels=1, classes=7))
    images = torch.randn(2, 1, height, width)
    logits = model(images)
    assert logits.shape == (2, 7)
    assert model.features(images).shape == (2, 24)
    # Every pixel is read.
    pixels = images.clone().requires_grad_()
    model(pixels).square().sum().backward()
    assert (pixels.grad != 0).all()


def test_an_image_of_another_size_is_refused():
    model = Swin(settings(), 16, 16, channels=1, classes=2)
    with pytest.raises(RuntimeError):
        model(torch.randn(1, 1, 16, 32))


def test_the_same_weights_go_on_at_another_resolution():
    torch.manual_seed(3)
    small, large = Swin(settings(), 8, 8, 3, 5), Swin(settings(), 32, 32, 3, 5)
    small = scattered(small)
    large.load_state_dict(small.state_dict())
    large.eval()
    assert large(torch.randn(1, 3, 32, 32)).isfinite().all()
    # An image of one colour looks the same at any size, as every patch sees only its like.
    plain = torch.ones(1, 3, 1, 1)
    torch.testing.assert_close(small(plain.expand(1, 3, 8, 8)), large(plain.expand(1, 3, 32, 32)), atol=1e-4, rtol=0)


def test_the_chance_to_skip_grows_over_all_stages():
    model = Swin(settings(stages=[2, 1, 2], stochastic_depth=0.4), 32, 32, 3, 5)
    chances = [1 - module.survival.item() for module in model.modules() if isinstance(module, Block)]
    assert chances == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])


def test_stages_double_width_and_heads_and_shift_every_second_block():
    model = Swin(settings(stages=[3, 2]), 16, 32, 3, 5)
    blocks = [block for stage in model.stages for block in stage.blocks]
    assert [block.mixer.heads for block in blocks] == [3, 3, 3, 6, 6]
    assert [block.mixer.to_out.out_features for block in blocks] == [12, 12, 12, 24, 24]
    assert [block.feedforward.expand.out_features for block in blocks] == [24, 24, 24, 48, 48]
    assert [block.mixer.grid for block in blocks] == [(8, 16)] * 3 + [(4, 8)] * 2
    assert [block.mixer.shift for block in blocks] == [(0, 0), (2, 2), (0, 0), (0, 0), (0, 0)]


def test_a_new_model_gives_every_class_the_same_chance():
    model = Swin(settings(), 16, 16, 3, 5)
    assert torch.equal(model(torch.randn(2, 3, 16, 16)), torch.zeros(2, 5))
    assert model.patches.weight.std().item() == pytest.approx(0.02, rel=0.3)
    assert model.stages[0].blocks[0].mixer.table.std().item() == pytest.approx(0.02, rel=0.3)


def test_post_norm_leaves_no_norm_before_the_classes():
    torch.manual_seed(4)
    model = scattered(Swin(settings(norm="post", norm_kind="rms"), 16, 16, 3, 5))
    assert isinstance(model.norm, nn.Identity)
    assert model(torch.randn(2, 3, 16, 16)).isfinite().all()


def stripes(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Stripes that lie, stand or lean, from anywhere, under noise; and which they are."""
    labels = torch.randint(3, (count,), generator=generator)
    direction = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.7, 0.7]])[labels]
    place = torch.arange(16.0)
    along = direction[:, 0, None, None] * place[:, None] + direction[:, 1, None, None] * place
    phase = 6.28 * torch.rand(count, 1, 1, generator=generator)
    images = torch.sin(1.2 * along + phase) + 0.2 * torch.randn(count, 16, 16, generator=generator)
    return images[:, None], labels


def test_it_learns_which_way_stripes_lie():
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(6)
    model = Swin(settings(width=16, heads=2, feedforward=32), 16, 16, channels=1, classes=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(60):
        images, labels = stripes(64, generator)
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    images, labels = stripes(300, generator)
    with torch.no_grad():
        assert (model.eval()(images).argmax(-1) == labels).all()


def test_a_body_continues_at_another_resolution_and_with_other_classes():
    source, model = Swin(settings(), 32, 32, 3, 10), Swin(settings(), 16, 32, 3, 4)
    copied = copy_body(model, dict(source.named_parameters()))
    own = dict(model.named_parameters())
    assert copied == sum(weight.numel() for name, weight in own.items() if not name.startswith("to_classes"))
    assert torch.equal(own["stages.0.blocks.1.mixer.table"], source.stages[0].blocks[1].mixer.table)
    assert model(torch.randn(2, 3, 16, 32)).shape == (2, 4)
