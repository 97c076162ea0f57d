"""ViT: equal to an independent implementation, its pooling, its positions at another resolution."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from regard import registry
from regard.layers.patches import PatchEmbedding
from regard.layers.positions import resample, sinusoidal, sinusoidal_2d
from regard.models.vision import VisionTransformer
from regard.settings import ImageModel
from regard.tasks.starting import copy_body


def settings(**changes: object) -> ImageModel:
    base = {
        "layers": 2,
        "width": 32,
        "heads": 4,
        "feedforward": 64,
        "activation": "gelu",
        "patch": 4,
        "pooling": "first",
        "positions": "learned",
        "norm": "pre",
        "dropout": 0.0,
    }
    return ImageModel(**(base | changes))


def randomised(model: nn.Module) -> nn.Module:
    """Every weight a random number, so that none hides a mistake by being zero."""
    torch.manual_seed(3)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    return model.eval()


def copy_from_transformers(model: VisionTransformer, other: Any) -> None:
    theirs = dict(other.named_parameters())
    patches = model.patches
    with torch.no_grad():
        positions = theirs["vit.embeddings.position_embeddings"][0]
        patches.class_token_1D.copy_(theirs["vit.embeddings.cls_token"][0] + positions[:1])
        patches.positions_RSD.copy_(positions[1:].view_as(patches.positions_RSD))
        patches.project.weight.copy_(theirs["vit.embeddings.patch_embeddings.projection.weight"])
        patches.project.bias.copy_(theirs["vit.embeddings.patch_embeddings.projection.bias"])
        for block, layer in zip(model.trunk.blocks, other.vit.layers, strict=True):
            for kind in ("weight", "bias"):
                q, k, v = (getattr(layer.attention, f"{name}_proj") for name in "qkv")
                getattr(block.mixer.to_qkv, kind).copy_(torch.cat([getattr(part, kind) for part in (q, k, v)]))
                pairs = [
                    (block.mixer.to_out, layer.attention.o_proj),
                    (block.mixer_norm, layer.layernorm_before),
                    (block.feedforward_norm, layer.layernorm_after),
                    (block.feedforward.expand, layer.mlp.fc1),
                    (block.feedforward.contract, layer.mlp.fc2),
                ]
                for own, their in pairs:
                    getattr(own, kind).copy_(getattr(their, kind))
        for kind in ("weight", "bias"):
            getattr(model.trunk.norm, kind).copy_(getattr(other.vit.layernorm, kind))
            getattr(model.to_classes, kind).copy_(getattr(other.classifier, kind))


@pytest.mark.parametrize("size", [(16, 16), (8, 24)])
def test_equals_the_vit_of_transformers(size: tuple[int, int]) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is the independent implementation")
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=size,
        patch_size=4,
        num_labels=7,
        layer_norm_eps=1e-5,
    )
    other = randomised(transformers.ViTForImageClassification(config))
    model = VisionTransformer(settings(), *size, 3, 7).eval()
    copy_from_transformers(model, other)
    images = torch.randn(3, 3, *size)
    with torch.inference_mode():
        assert torch.allclose(model(images), other(images).logits, atol=1e-4)


@pytest.mark.parametrize("pooling", ["first", "mean", "both"])
def test_a_class_is_read_from_the_class_token_the_patches_or_both(pooling: str) -> None:
    model = randomised(VisionTransformer(settings(pooling=pooling, registers=3), 16, 8, 1, 5))
    images = torch.randn(2, 1, 16, 8)
    tokens = model.tokens(images)
    with_token = pooling != "mean"
    assert tokens.shape == (2, with_token + 3 + 8, 32)
    mean = tokens[:, with_token + 3 :].mean(1)
    expected = {"first": tokens[:, 0], "mean": mean, "both": torch.cat([tokens[:, 0], mean], -1)}[pooling]
    assert torch.allclose(model(images), model.to_classes(expected))


def test_an_untrained_model_finds_all_classes_alike() -> None:
    logits = VisionTransformer(settings(), 8, 8, 3, 4).eval()(torch.randn(2, 3, 8, 8))
    assert torch.equal(logits, torch.zeros(2, 4))


@pytest.mark.parametrize("mixer", registry.names("mixers"))
@pytest.mark.parametrize("positions", registry.names("positions"))
def test_every_mixer_reads_patches_and_learns_from_all_pixels(mixer: str, positions: str) -> None:
    model = randomised(VisionTransformer(settings(mixer=mixer, positions=positions).for_length(5), 8, 8, 1, 3))
    images = torch.randn(2, 1, 8, 8, requires_grad=True)
    model(images).sum().backward()
    seen = images.grad.abs().sum(0) > 0
    assert seen.all()


def test_without_positions_the_order_of_patches_does_not_matter() -> None:
    images = torch.randn(1, 1, 8, 8)
    swapped = images.roll(4, dims=-1)  # the two columns of patches change places
    for positions, same in (("none", True), ("learned", False)):
        model = randomised(VisionTransformer(settings(positions=positions), 8, 8, 1, 3))
        assert torch.allclose(model(images), model(swapped), atol=1e-5) == same


def test_rows_and_columns_have_their_own_half_of_the_channels() -> None:
    code = sinusoidal_2d(3, 5, 16)
    assert torch.equal(code[2, 4, :8], sinusoidal(torch.tensor(2), 8))
    assert torch.equal(code[2, 4, 8:], sinusoidal(torch.tensor(4), 8))


def test_positions_resampled_to_the_same_grid_are_the_same() -> None:
    table = torch.randn(3, 5, 8)
    assert torch.equal(resample(table, (3, 5)), table)


def test_positions_resampled_keep_a_smooth_surface() -> None:
    rows, columns = torch.linspace(-1, 1, 6), torch.linspace(-1, 1, 4)
    table = torch.stack([rows[:, None].expand(-1, 4), columns[None].expand(6, -1)], -1)
    larger = resample(table, (12, 8))
    assert larger.shape == (12, 8, 2)
    # Inside, away from the border, a plane stays a plane: the middle of each cell.
    middles = (torch.arange(12) + 0.5) / 2 - 0.5
    expected = -1 + 2 * middles / 5
    assert torch.allclose(larger[4:8, 4, 0], expected[4:8], atol=1e-4)
    assert torch.allclose(resample(larger, (6, 4))[2:4], table[2:4], atol=0.1)


def test_a_body_continues_at_another_resolution_and_with_other_classes() -> None:
    source = randomised(VisionTransformer(settings(), 16, 16, 3, 10))
    model = VisionTransformer(settings(), 8, 24, 3, 4).eval()
    copied = copy_body(model, dict(source.named_parameters()))
    body = sum(p.numel() for name, p in model.named_parameters() if not name.startswith("to_classes"))
    assert copied == body
    assert torch.equal(model.patches.positions_RSD, resample(source.patches.positions_RSD, (2, 6)))
    assert torch.equal(model.trunk.blocks[1].mixer.to_out.weight, source.trunk.blocks[1].mixer.to_out.weight)
    assert torch.equal(model.to_classes.weight, torch.zeros(4, 32))


def test_the_patch_embedding_is_a_linear_map_of_each_patch() -> None:
    embedding = randomised(PatchEmbedding(settings(positions="none", pooling="mean", patch=[2, 4]), 4, 8, 3))
    image = torch.randn(1, 3, 4, 8)
    second = image[:, :, 0:2, 4:8].reshape(1, -1)  # the right one in the first row
    expected = second @ embedding.project.weight.flatten(1).T + embedding.project.bias
    assert torch.allclose(embedding(image)[:, 1], expected, atol=1e-5)
