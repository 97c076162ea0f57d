"""The masked language model: BERT and RoBERTa themselves, and who sees whom."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.models.masked import Masked
from regard.settings import TokenModel

WORDS = 41
BERT = {"norm": "post", "activation": "gelu", "positions": "learned", "embedding_norm": True, "scale_embeddings": False}


def make(**changes) -> Masked:
    torch.manual_seed(1)
    base = {"layers": 2, "width": 32, "heads": 4, "feedforward": 64, "dropout": 0.0, "max_positions": 32}
    return Masked(TokenModel(**base | BERT | changes), WORDS).eval()


OPTIONS = {
    "bert": {},
    "pre-norm, rotary": {"norm": "pre", "positions": "rotary", "embedding_norm": False},
    "rms, gated, grouped heads": {"norm_kind": "rms", "gated": True, "activation": "silu", "key_value_heads": 2},
    "own output matrix": {"tie_embeddings": "none", "positions": "sinusoidal", "scale_embeddings": True},
}
OPTION = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())


def some_tokens(rows: int, length: int, seed: int = 2) -> torch.Tensor:
    return torch.randint(3, WORDS, (rows, length), generator=torch.Generator().manual_seed(seed))


# --- The same numbers as another implementation ----------------------------------------------------------


def copy_encoder(ours: Masked, embeddings: nn.Module, layers: nn.ModuleList, first_position: int) -> None:
    """BERT's weights; its token types are not ours, so the vector of type 0 goes into every position."""
    positions = embeddings.position_embeddings.weight[first_position:] + embeddings.token_type_embeddings.weight[0]
    ours.trunk.embedding.table.weight.copy_(embeddings.word_embeddings.weight)
    ours.trunk.embedding.positions.table.weight.copy_(positions)
    ours.trunk.embedding.norm.load_state_dict(embeddings.LayerNorm.state_dict())
    for mine, other in zip(ours.trunk.blocks, layers, strict=True):
        attention = other.attention.self
        parts = [attention.query, attention.key, attention.value]
        mine.mixer.to_qkv.weight.copy_(torch.cat([part.weight for part in parts]))
        mine.mixer.to_qkv.bias.copy_(torch.cat([part.bias for part in parts]))
        mine.mixer.to_out.load_state_dict(other.attention.output.dense.state_dict())
        mine.mixer_norm.load_state_dict(other.attention.output.LayerNorm.state_dict())
        mine.feedforward.expand.load_state_dict(other.intermediate.dense.state_dict())
        mine.feedforward.contract.load_state_dict(other.output.dense.state_dict())
        mine.feedforward_norm.load_state_dict(other.output.LayerNorm.state_dict())


def copy_head(ours: Masked, dense: nn.Linear, norm: nn.LayerNorm, bias: torch.Tensor) -> None:
    ours.transform.load_state_dict(dense.state_dict())
    ours.transform_norm.load_state_dict(norm.state_dict())
    ours.to_logits.bias.copy_(bias)


def randomise(model: nn.Module) -> None:
    """Also the biases and norms, which start at 0 and 1."""
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.1)


SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def test_logits_equal_transformers_bert_with_the_same_weights():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(3)
    theirs = transformers.BertForMaskedLM(transformers.BertConfig(**SIZES, max_position_embeddings=32)).eval()
    ours = make()
    with torch.no_grad():
        randomise(theirs)
        copy_encoder(ours, theirs.bert.embeddings, theirs.bert.encoder.layer, first_position=0)
        head = theirs.cls.predictions
        copy_head(ours, head.transform.dense, head.transform.LayerNorm, head.decoder.bias)
        tokens = some_tokens(2, 20)
        expected = theirs(tokens).logits
        assert expected.std() > 0.5
        torch.testing.assert_close(ours(tokens), expected, atol=1e-4, rtol=0)


def test_with_berts_epsilon_small_vectors_are_normalised_as_in_transformers():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(3)
    config = transformers.BertConfig(**SIZES | {"layer_norm_eps": 1e-12}, max_position_embeddings=32)
    assert transformers.BertConfig().layer_norm_eps == config.layer_norm_eps
    theirs = transformers.BertForMaskedLM(config).eval()
    tokens = some_tokens(2, 20)
    with torch.no_grad():
        randomise(theirs)
        for table in (module for module in theirs.modules() if isinstance(module, nn.Embedding)):
            table.weight *= 1e-3  # so that their variance is below 1e-5
        found = {}
        for epsilon in (1e-12, 1e-5):
            ours = make(norm_epsilon=epsilon)
            copy_encoder(ours, theirs.bert.embeddings, theirs.bert.encoder.layer, first_position=0)
            found[epsilon] = ours.trunk(tokens)
        expected = theirs.bert(tokens).last_hidden_state
    torch.testing.assert_close(found[1e-12], expected, atol=1e-4, rtol=0)
    assert (found[1e-5] - expected).abs().max() > 0.1


def test_padded_rows_equal_transformers_bert_with_an_attention_mask():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(3)
    theirs = transformers.BertForMaskedLM(transformers.BertConfig(**SIZES, max_position_embeddings=32)).eval()
    ours = make()
    with torch.no_grad():
        randomise(theirs)
        copy_encoder(ours, theirs.bert.embeddings, theirs.bert.encoder.layer, first_position=0)
        head = theirs.cls.predictions
        copy_head(ours, head.transform.dense, head.transform.LayerNorm, head.decoder.bias)
        tokens = some_tokens(3, 20)
        real = torch.arange(20) < torch.tensor([[20], [13], [1]])
        expected = theirs(tokens, attention_mask=real.long()).logits
        torch.testing.assert_close(ours(tokens, real.long())[real], expected[real], atol=1e-4, rtol=0)


def test_logits_equal_transformers_roberta_with_the_same_weights():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(3)
    # RoBERTa's padding is token 1, and its first position 2.
    config = transformers.RobertaConfig(**SIZES, max_position_embeddings=34, type_vocab_size=1, pad_token_id=1)
    theirs = transformers.RobertaForMaskedLM(config).eval()
    ours = make()
    with torch.no_grad():
        randomise(theirs)
        copy_encoder(ours, theirs.roberta.embeddings, theirs.roberta.encoder.layer, first_position=2)
        copy_head(ours, theirs.lm_head.dense, theirs.lm_head.layer_norm, theirs.lm_head.decoder.bias)
        tokens = some_tokens(2, 20)
        expected = theirs(tokens).logits
        assert expected.std() > 0.5
        torch.testing.assert_close(ours(tokens), expected, atol=1e-4, rtol=0)


# --- Who sees whom ---------------------------------------------------------------------------------------


@OPTION
def test_logits_at_places_are_those_of_the_whole_pass(options):
    model, tokens = make(**options), some_tokens(3, 12)
    places = torch.tensor([[0, 5, 11], [1, 2, 3], [7, 7, 0]])
    whole = model(tokens)
    found = model(tokens, masked_BM=places)
    assert found.shape == (3, 3, WORDS)
    for row in range(3):
        torch.testing.assert_close(found[row], whole[row, places[row]], atol=1e-6, rtol=0)


@OPTION
def test_every_position_sees_those_before_and_after_it(options):
    model, tokens = make(**options), some_tokens(1, 8)
    before = model(tokens)
    for place in range(8):
        changed = tokens.clone()
        changed[0, place] = (changed[0, place] - 3 + 1) % (WORDS - 3) + 3
        assert (model(changed) - before).abs().amax(-1).min() > 1e-4


@OPTION
def test_documents_in_one_row_do_not_see_each_other(options):
    model = make(**options)
    first, second = some_tokens(1, 5, seed=3), some_tokens(1, 7, seed=4)
    segments = torch.tensor([[1] * 5 + [2] * 7])
    positions = torch.tensor([[*range(5), *range(7)]])
    together = model(torch.cat([first, second], 1), segments, positions)
    torch.testing.assert_close(together[:, :5], model(first), atol=1e-5, rtol=0)
    torch.testing.assert_close(together[:, 5:], model(second), atol=1e-5, rtol=0)


@OPTION
def test_padding_never_changes_other_positions(options):
    model, text = make(**options), some_tokens(1, 6)
    alone = model(text)
    segments = torch.tensor([[1] * 6 + [0] * 4])
    positions = torch.tensor([[*range(6), 0, 0, 0, 0]])
    for seed in (5, 6):
        padded = torch.cat([text, some_tokens(1, 4, seed)], 1)
        found = model(padded, segments, positions)
        torch.testing.assert_close(found[:, :6], alone, atol=1e-5, rtol=0)
        assert found.isfinite().all()


def test_a_row_of_padding_alone_stays_finite():
    model = make()
    assert model(torch.zeros(1, 8, dtype=torch.long), torch.zeros(1, 8, dtype=torch.long)).isfinite().all()


def test_the_output_is_the_embedding_unless_it_is_untied():
    tied, untied = make(), make(tie_embeddings="none")
    assert tied.to_logits.weight is tied.trunk.embedding.table.weight
    assert untied.to_logits.weight is not untied.trunk.embedding.table.weight
    extra = sum(p.numel() for p in untied.parameters()) - sum(p.numel() for p in tied.parameters())
    assert extra == WORDS * 32


def test_a_model_learns_to_fill_in_what_is_hidden():
    """Rows count up from anywhere: a hidden number follows from its neighbours."""
    model = make(dropout=0.0).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    mask = WORDS - 1
    for _ in range(250):
        tokens = torch.randint(3, 20, (16, 1), generator=generator) + torch.arange(12)
        places = torch.rand(16, 12, generator=generator).argsort(1)[:, :2]
        logits = model(tokens.scatter(1, places, mask), masked_BM=places)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.gather(1, places).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    tokens = torch.arange(3, 19)[:, None] + torch.arange(12)
    places = torch.full((16, 1), 6)
    guessed = model(tokens.scatter(1, places, mask), masked_BM=places).argmax(-1)
    assert (guessed == tokens[:, 6:7]).float().mean() > 0.9
