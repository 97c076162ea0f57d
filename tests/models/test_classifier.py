"""The classifier: what it reads a class from, texts that share a row, and a trunk learned elsewhere."""

from __future__ import annotations

import pytest
import torch

from regard.data.tokenizers import END, START
from regard.errors import RegardError
from regard.models.causal import Causal
from regard.models.classifier import Classifier
from regard.models.masked import Masked
from regard.settings import CausalModel, SequenceModel, TextClassifierModel, TokenModel
from regard.tasks.starting import copy_body

WORDS, CLASSES = 40, 5


def settings(kind: type[SequenceModel] = TextClassifierModel, **changes) -> SequenceModel:
    base = {"layers": 2, "width": 32, "heads": 4, "feedforward": 64, "dropout": 0.0, "norm": "pre", "max_positions": 32}
    return kind(**base | changes)


def make(**changes) -> Classifier:
    torch.manual_seed(1)
    return Classifier(settings(**changes), WORDS, CLASSES).eval()


def framed(length: int, seed: int = 1) -> torch.Tensor:
    """<start> and <end> around this many random tokens: [1, T]."""
    inner = torch.randint(3, WORDS, (length,), generator=torch.Generator().manual_seed(seed))
    return torch.cat([torch.tensor([START]), inner, torch.tensor([END])])[None]


def alone(model: Classifier, text: torch.Tensor) -> torch.Tensor:
    """The logits of one text in a row of its own: [T, C]."""
    return model(text, torch.ones_like(text), torch.arange(text.shape[1])[None])[0]


def place_of_class(pooling: str, length: int) -> int:
    return length - 1 if pooling == "last" else 0


POOLING = pytest.mark.parametrize("pooling", ["first", "mean", "last"])


# --- What a class is read from ---------------------------------------------------------------------------


@POOLING
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_class_is_read_from_the_first_the_mean_or_the_last(pooling, norm):
    model, text = make(pooling=pooling, norm=norm), framed(7)
    with torch.no_grad():
        model.to_classes.bias.normal_()
        vectors = model.trunk(text)[0]
        pooled = {"first": vectors[0], "mean": vectors.mean(0), "last": vectors[-1]}[pooling]
        expected = model.to_classes.weight @ pooled + model.to_classes.bias
        found = alone(model, text)[place_of_class(pooling, 9)]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_the_mean_is_over_the_own_text_only():
    model = make(pooling="mean")
    first, second = framed(4, seed=2), framed(6, seed=3)
    segments = torch.tensor([[1] * 6 + [2] * 8 + [0] * 2])
    positions = torch.tensor([[*range(6), *range(8), 0, 0]])
    row = torch.cat([first, second, torch.zeros(1, 2, dtype=torch.long)], 1)
    with torch.no_grad():
        vectors = model.trunk(row, segments, positions)[0]
        found = model(row, segments, positions)[0]
        expected = model.to_classes(torch.stack([vectors[:6].mean(0), vectors[6:14].mean(0)]))
    torch.testing.assert_close(found[[0, 6]], expected, atol=1e-5, rtol=0)
    assert found.isfinite().all()


# --- Texts that share a row ------------------------------------------------------------------------------

OPTIONS = {
    "sinusoidal": {},
    "bert": {"norm": "post", "positions": "learned", "embedding_norm": True, "activation": "gelu"},
    "rotary": {"positions": "rotary"},
    "causal": {"causal": True, "positions": "learned"},
    "local": {"mixer": "local", "local": {"window": 3}},
}


@POOLING
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_text_packed_with_others_has_the_same_class(options, pooling):
    model = make(pooling=pooling, **options)
    texts = [framed(length, seed=length) for length in (5, 1, 8)]
    lengths = [text.shape[1] for text in texts]
    row = torch.cat([*texts, torch.zeros(1, 3, dtype=torch.long)], 1)
    segments = torch.tensor([[n for n, length in enumerate(lengths, 1) for _ in range(length)] + [0] * 3])
    positions = torch.tensor([[place for length in lengths for place in range(length)] + [0] * 3])
    packed, start = model(row, segments, positions)[0], 0
    for text, length in zip(texts, lengths, strict=True):
        place = place_of_class(pooling, length)
        torch.testing.assert_close(packed[start + place], alone(model, text)[place], atol=1e-5, rtol=0)
        start += length


def test_a_causal_classifier_does_not_see_the_future():
    model, text = make(causal=True, pooling="last"), framed(8)
    changed = text.clone()
    changed[0, 5:9] = (changed[0, 5:9] - 3 + 1) % (WORDS - 3) + 3
    before, after = alone(model, text), alone(model, changed)
    torch.testing.assert_close(after[:5], before[:5], atol=1e-6, rtol=0)
    assert (after[-1] - before[-1]).abs().max() > 1e-3


def test_a_classifier_that_reads_both_ways_sees_all_of_the_text_from_its_start():
    model, text = make(pooling="first"), framed(8)
    for place in range(1, 9):
        changed = text.clone()
        changed[0, place] = (changed[0, place] - 3 + 1) % (WORDS - 3) + 3
        assert (alone(model, changed)[0] - alone(model, text)[0]).abs().max() > 1e-4


# --- A trunk learned elsewhere ---------------------------------------------------------------------------


def test_the_trunk_of_a_masked_model_is_taken_over_without_its_mask():
    torch.manual_seed(2)
    shape = {"norm": "post", "positions": "learned", "embedding_norm": True}
    masked, model = Masked(settings(TokenModel, **shape), WORDS + 1).eval(), make(**shape)
    head = model.to_classes.weight.clone()
    copied = copy_body(model, dict(masked.state_dict()))
    assert copied == sum(p.numel() for p in model.trunk.parameters())
    text = framed(9)
    torch.testing.assert_close(model.trunk(text), masked.trunk(text))
    assert torch.equal(model.to_classes.weight, head)


def test_a_shorter_table_fills_the_rows_that_both_have():
    torch.manual_seed(2)
    causal, model = Causal(settings(CausalModel), WORDS - 1).eval(), make(causal=True)
    last = model.trunk.embedding.table.weight[-1].clone()
    copied = copy_body(model, dict(causal.state_dict()))
    table = model.trunk.embedding.table.weight
    assert torch.equal(table[:-1], causal.trunk.embedding.table.weight)
    assert torch.equal(table[-1], last)
    assert copied == sum(p.numel() for p in model.trunk.parameters()) - 32


def test_the_trunk_of_a_causal_model_is_taken_over():
    torch.manual_seed(2)
    causal, model = (
        Causal(settings(CausalModel, positions="rotary"), WORDS).eval(),
        make(causal=True, positions="rotary"),
    )
    text = framed(9)
    assert (model.trunk(text) - causal.trunk(text)).abs().max() > 0.1
    copy_body(model, dict(causal.state_dict()))
    torch.testing.assert_close(model.trunk(text), causal.trunk(text))


MISFITS = {
    "a wider feed-forward": ({"feedforward": 128}, "trunk.blocks.0.feedforward.expand.weight", "[64, 32]"),
    "more blocks": ({"layers": 3}, "trunk.blocks.2", "none"),
    "learned positions": ({"positions": "learned"}, "trunk.embedding.positions.table.weight", "none"),
    "biases": ({"norm_kind": "layer"}, "norm.bias", "none"),
}


@pytest.mark.parametrize(("changes", "name", "has"), MISFITS.values(), ids=MISFITS.keys())
def test_weights_of_another_shape_are_an_error_that_names_them(changes, name, has):
    other = Masked(settings(TokenModel, norm_kind="rms" if "norm_kind" in changes else "layer"), WORDS + 1)
    with pytest.raises(RegardError) as caught:
        copy_body(make(**changes), dict(other.state_dict()))
    assert name in caught.value.what
    assert has in caught.value.why
    assert "[model]" in caught.value.fix


def test_a_classifier_learns_which_token_a_text_holds():
    """The class is the text's only token below 8; it may stand anywhere."""
    model = make(pooling="mean").train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(3)

    def some(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.randint(8, WORDS, (count, 8), generator=generator)
        classes = torch.randint(0, CLASSES, (count, 1), generator=generator)
        places = torch.randint(0, 8, (count, 1), generator=generator)
        return tokens.scatter(1, places, classes + 3), classes[:, 0]

    def logits(tokens: torch.Tensor) -> torch.Tensor:
        return model(tokens, torch.ones_like(tokens), torch.arange(8).expand_as(tokens))[:, 0]

    for _ in range(80):
        tokens, classes = some(32)
        loss = torch.nn.functional.cross_entropy(logits(tokens), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tokens, classes = some(200)
    assert (logits(tokens).argmax(-1) == classes).float().mean() > 0.95
