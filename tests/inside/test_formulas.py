"""Mixers by their formulas, compared with the layers and with torch's own cells."""

import pytest
import torch
from torch import nn

from regard.inside import formulas
from regard.inside.trace import trace

KINDS = {
    "hyena": ("language", {"mixer": "hyena"}),
    "hyena-paper": ("language", {"mixer": "hyena", "hyena": {"recurrence": "paper", "order": 3}}),
    "hyena-two-sided": ("masked", {"mixer": "hyena"}),
    "rnn": ("language", {"mixer": "rnn"}),
    "gru": ("language", {"mixer": "gru"}),
    "lstm": ("language", {"mixer": "lstm"}),
    "lstm-two-sided": ("masked", {"mixer": "lstm"}),
    "gru-translator": ("translator", {"mixer": "gru", "cross": "additive"}),
    "bahdanau": ("translator", {"mixer": "lstm", "cross": "bahdanau"}),
    "local": ("language", {"mixer": "local", "local": {"window": 3}}),
}


@pytest.fixture(params=KINDS)
def traced(request, make):
    kind, options = KINDS[request.param]
    return trace(make(kind, **options))


def test_the_formula_of_every_part_gives_its_output(traced):
    parts = [part for part in traced.parts() if part.context is not None]
    assert parts
    for part in parts:
        assert formulas.has_formula(part.module)
        with torch.no_grad():
            written_1TD = formulas.formula_output(part.module.eval(), part.read_TD[None], part.context)
        assert part.scale_D is None
        torch.testing.assert_close(written_1TD[0], part.wrote_TD, atol=1e-5, rtol=1e-5)


def test_the_difference_is_measured(traced, monkeypatch):
    """It is not zero if a formula is slightly wrong."""
    assert 0 <= traced.difference < 1e-5
    original = formulas.formula_output

    def off(*given):
        return original(*given) * 1.001

    monkeypatch.setattr("regard.inside.trace.formula_output", off)
    del traced.difference
    assert traced.difference > 1e-5


@pytest.mark.parametrize(("kind", "step"), [(nn.RNN, nn.RNNCell), (nn.GRU, nn.GRUCell), (nn.LSTM, nn.LSTMCell)])
def test_recurrent_cells_agree_with_those_of_torch(kind, step):
    torch.manual_seed(2)
    cell, alone, x_TD = kind(4, 4, batch_first=True), step(4, 4), torch.randn(5, 4)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(alone, name).data = getattr(cell, f"{name}_l0").data
    results = formulas._unrolled(cell, x_TD, None)
    state = None
    for t, x_D in enumerate(x_TD):
        state = alone(x_D[None], state)
        vectors = formulas.vectors_of(state)
        torch.testing.assert_close(results["states"][t], vectors[0][0])
        assert kind is not nn.LSTM or torch.allclose(results["memories"][t], vectors[1][0])
    assert not results[formulas.INITIAL].any()


def test_a_convolution_is_the_product_with_its_toeplitz_matrix(make):
    hyena = make("masked", mixer="hyena").last.blocks[0].mixer
    z_DT = torch.randn(hyena.width, 9)
    with torch.no_grad():
        matrix_DTT = hyena.toeplitz(9, slice(None))
        torch.testing.assert_close(formulas._convolved(hyena, z_DT, 1), (matrix_DTT @ z_DT[..., None])[..., 0])
