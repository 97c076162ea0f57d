"""The causal model: every option, and GPT-2 itself."""

import pytest
import torch

from regard.models.causal import Causal
from regard.recipes import resolve
from regard.settings import CausalModel

WORDS = 40


def make(**changes) -> Causal:
    torch.manual_seed(1)
    base = {"layers": 2, "width": 32, "heads": 4, "feedforward": 64, "dropout": 0.0, "norm": "pre", "max_positions": 32}
    return Causal(CausalModel(**base | changes), WORDS).eval()


OPTIONS = {
    "gpt-2": {"positions": "learned", "activation": "gelu-tanh", "initialisation": "gpt2"},
    "rotary, rms, relu2": {"positions": "rotary", "norm_kind": "rms", "activation": "relu2", "bias": False},
    "grouped heads": {"positions": "rotary", "key_value_heads": 2},
    "one key head": {"positions": "learned", "key_value_heads": 1},
    "query-key norm": {"positions": "rotary", "query_key_norm": True},
    "local": {"positions": "sinusoidal", "mixer": "local", "local": {"window": 3}},
    "capped logits": {"positions": "learned", "logit_cap": 2.0},
    "swiglu": {"positions": "rotary", "activation": "silu", "gated": True, "tie_embeddings": "none"},
    "post-norm": {"positions": "sinusoidal", "norm": "post"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_steps_and_prefill_equal_the_whole_pass(options):
    model = make(**options)
    tokens = torch.randint(0, WORDS, (3, 12))
    with torch.inference_mode():
        whole = model(tokens)
        state = model.start(3, 12)
        stepped = torch.stack([model.step(tokens[:, t], state) for t in range(12)], 1)
        torch.testing.assert_close(stepped, whole, atol=1e-5, rtol=0)
        state = model.start(3, 12)
        torch.testing.assert_close(model.prefill(tokens[:, :7], state), whole[:, 6], atol=1e-5, rtol=0)
        torch.testing.assert_close(model.step(tokens[:, 7], state), whole[:, 7], atol=1e-5, rtol=0)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_the_future_never_changes_the_past(options):
    model = make(**options)
    tokens = torch.randint(0, WORDS, (2, 10))
    changed = tokens.clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % WORDS
    torch.testing.assert_close(model(tokens)[:, :6], model(changed)[:, :6], atol=1e-6, rtol=0)


def test_documents_in_one_row_do_not_see_each_other():
    model = make(positions="learned")
    first, second = torch.randint(0, WORDS, (1, 5)), torch.randint(0, WORDS, (1, 7))
    row = torch.cat([first, second], 1)
    segments = torch.tensor([[1] * 5 + [2] * 7])
    positions = torch.tensor([[*range(5), *range(7)]])
    together = model(row, segments, positions)
    torch.testing.assert_close(together[:, :5], model(first), atol=1e-5, rtol=0)
    torch.testing.assert_close(together[:, 5:], model(second), atol=1e-5, rtol=0)


def test_a_window_hides_what_is_further_back():
    model = make(positions="none", mixer="local", local={"window": 3}, layers=1)
    tokens = torch.randint(0, WORDS, (1, 10))
    changed = tokens.clone()
    changed[0, 2] = (changed[0, 2] + 1) % WORDS
    same = (model(tokens) - model(changed)).abs().amax(-1)[0] < 1e-7
    assert same.tolist() == [True, True, False, False, False, True, True, True, True, True]


def test_capped_logits_stay_within_the_cap():
    model = make(positions="learned", logit_cap=0.5, initialisation="paper")
    assert model(torch.randint(0, WORDS, (2, 8))).abs().max() <= 0.5


def test_the_recipe_gpt2_124m_has_gpt2s_number_of_parameters():
    with torch.device("meta"):
        model = Causal(resolve("gpt2-124m").model, vocabulary=50257)
    assert sum(parameter.numel() for parameter in model.parameters()) == 124_439_808


def test_logits_equal_transformers_gpt2_with_the_same_weights():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=32, n_embd=32, n_layer=2, n_head=4, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0
    )
    torch.manual_seed(3)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    ours = make(
        positions="learned", activation="gelu-tanh", feedforward=128, scale_embeddings=False, initialisation="gpt2"
    )
    with torch.no_grad():
        for parameter in theirs.parameters():  # also the biases and norms, which start at 0 and 1
            parameter.add_(torch.randn_like(parameter) * 0.1)
        weights = theirs.transformer
        ours.trunk.embedding.table.weight.copy_(weights.wte.weight)
        ours.trunk.embedding.positions.table.weight.copy_(weights.wpe.weight)
        ours.trunk.norm.load_state_dict(weights.ln_f.state_dict())
        for mine, other in zip(ours.trunk.blocks, weights.h, strict=True):
            mine.mixer_norm.load_state_dict(other.ln_1.state_dict())
            mine.feedforward_norm.load_state_dict(other.ln_2.state_dict())
            pairs = [
                (mine.mixer.to_qkv, other.attn.c_attn),
                (mine.mixer.to_out, other.attn.c_proj),
                (mine.feedforward.expand, other.mlp.c_fc),
                (mine.feedforward.contract, other.mlp.c_proj),
            ]
            for linear, conv in pairs:  # GPT-2 keeps its matrices the other way round
                linear.weight.copy_(conv.weight.T)
                linear.bias.copy_(conv.bias)
        tokens = torch.randint(0, WORDS, (2, 20))
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits, atol=1e-4, rtol=0)
