"""Norms against their formulas; and that every one in a model has the epsilon of the settings."""

import pytest
import torch

from regard import registry
from regard.layers.norm import make_head_norm, make_norm
from regard.models.causal import Causal
from regard.models.classifier import Classifier
from regard.models.masked import Masked
from regard.models.seq2seq import Seq2Seq
from regard.models.swin import Swin
from regard.models.vision import VisionTransformer
from regard.settings import CausalModel, ImageModel, ModelSettings, TextClassifierModel, TokenModel, TranslationModel

EPSILON = 3e-4
SMALL = {"layers": 2, "width": 16, "heads": 2, "feedforward": 16, "norm_epsilon": EPSILON}
ALL_NORMS = {"norm": "pre", "embedding_norm": True, "query_key_norm": True}


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("width", [0, 6])
def test_a_norm_is_the_formula_with_this_epsilon(kind, width):
    norm = make_norm(ModelSettings(**SMALL, norm_kind=kind), width).double()
    x = 0.01 * torch.randn(5, width or 16, dtype=torch.double)  # so small that epsilon matters
    centred = x - x.mean(-1, keepdim=True) if kind == "layer" else x
    expected = centred / (centred.square().mean(-1, keepdim=True) + EPSILON).sqrt()
    torch.testing.assert_close(norm(x), expected, atol=1e-12, rtol=0)


def test_queries_and_keys_are_normalised_by_their_squares_only_where_asked():
    x = 0.01 * torch.randn(3, 2, 4, 8)
    expected = x / (x.square().mean(-1, keepdim=True) + EPSILON).sqrt()
    torch.testing.assert_close(make_head_norm(ModelSettings(**SMALL, query_key_norm=True), 8)(x), expected)
    assert torch.equal(make_head_norm(ModelSettings(**SMALL), 8)(x), x)


# Each with the number of its norms: two or three in a block and one after the last; of each attention's queries and
# keys; of what goes into the first block; and what else there is.
MODELS = {
    "language": (lambda **changes: Causal(CausalModel(**SMALL, **changes), 9), 2 * 2 + 1 + 2 * 2 + 1),
    "classifier": (lambda **changes: Classifier(TextClassifierModel(**SMALL, **changes), 9, 3), 2 * 2 + 1 + 2 * 2 + 1),
    "masked": (lambda **changes: Masked(TokenModel(**SMALL, **changes), 9), 2 * 2 + 1 + 2 * 2 + 1 + 1),
    "translator": (
        lambda **changes: Seq2Seq(TranslationModel(**SMALL, **changes), 9, 9),
        (2 * 2 + 1 + 2 * 2 + 1) + (2 * 3 + 1 + 2 * 4 + 1),
    ),
    "ViT": (lambda **changes: VisionTransformer(ImageModel(**SMALL, **changes), 8, 8, 1, 3), 2 * 2 + 1 + 2 * 2 + 1),
    "Swin": (
        lambda **changes: Swin(ImageModel(**SMALL, **changes, patch=1, stages=[1, 1], window=4), 8, 8, 1, 3),
        2 * 2 + 1 + 2 * 2 + 1 + 1,
    ),
}


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize(("make", "count"), MODELS.values(), ids=MODELS.keys())
def test_every_norm_of_a_model_has_the_epsilon_of_the_settings(make, count, kind):
    found = [module.eps for module in make(norm_kind=kind, **ALL_NORMS).modules() if hasattr(module, "eps")]
    assert found == [EPSILON] * count


@pytest.mark.parametrize("mixer", registry.names("mixers"))
def test_with_every_mixer_too(mixer):
    model = Causal(CausalModel(**SMALL, **ALL_NORMS, mixer=mixer).for_length(8), 9)
    found = {name: module.eps for name, module in model.named_modules() if "norm" in name and hasattr(module, "eps")}
    assert {"trunk.norm", "trunk.blocks.0.mixer_norm", "trunk.blocks.1.feedforward_norm"} <= found.keys()
    assert set(found.values()) == {EPSILON}
    assert not any("Norm" in type(module).__name__ and not hasattr(module, "eps") for module in model.modules())
