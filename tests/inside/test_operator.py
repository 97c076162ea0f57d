"""Hyena's operator, applied to v and followed by W_out, gives the output of the layer."""

import pytest
import torch

from regard.errors import UsageError
from regard.inside import operator as operators
from regard.inside.trace import trace

WAYS = [
    ("language", {"recurrence": "public", "order": 2}),
    ("language", {"recurrence": "paper", "order": 2}),
    ("masked", {"recurrence": "public", "order": 3}),
    ("masked", {"recurrence": "paper", "order": 1}),
    ("translator", {"recurrence": "public", "order": 2}),
]


@pytest.mark.parametrize(("kind", "hyena"), WAYS)
def test_applying_the_operators_gives_the_output_of_the_layer(make, kind, hyena):
    traced = trace(make(kind, mixer="hyena", hyena=hyena))
    mixers = [part for part in traced.parts() if part.name.endswith("mixer")]
    assert len(mixers) == (4 if kind == "translator" else 2)
    for part in mixers:
        v_DT = part.module.streams(part.read_TD[None], part.context)[0][0]
        matrices = [traced.operator(part.name, channel) for channel in range(part.module.width)]
        y_TD = torch.stack([torch.tensor(m.values) @ v_T for m, v_T in zip(matrices, v_DT, strict=True)], dim=1)
        with torch.no_grad():
            torch.testing.assert_close(part.module.to_out(y_TD), part.wrote_TD, atol=1e-4, rtol=1e-4)
        largest = part.module.gathered(part.read_TD[None], part.context).abs().max().item()
        assert all(matrix.notes["difference"] < 1e-5 * max(1.0, largest) for matrix in matrices)
        mean = traced.operator(part.name)
        expected_TT = sum(abs(matrix.values) for matrix in matrices) / len(matrices)
        assert mean.values == pytest.approx(expected_TT, rel=1e-4, abs=1e-5)
        assert mean.notes["difference"] < 1e-5 * max(1.0, largest)
        causal = part.name.startswith(("layers", "decoder")) and kind != "masked"
        assert (torch.tensor(mean.values).triu(1).abs().max() == 0) == causal


def test_the_operator_is_the_derivative_with_respect_to_v(make):
    """By torch: with the gates held as they are."""
    part = next(trace(make("language", mixer="hyena", hyena={"order": 3})).parts())
    hyena = part.module
    v_1DT, *gates = hyena.streams(part.read_TD[None], part.context)
    filters = hyena.filters(len(part.read_TD))

    def y_of(v_T):
        v = torch.cat([v_1DT[:, :4], v_T[None, None], v_1DT[:, 5:]], dim=1)
        return hyena._gated(v, gates, lambda n, z: operators_convolve(z, filters[n][0]))[0, 4]

    def operators_convolve(z_1DT, h_DK):
        return torch.stack(
            [h_DK[:, : t + 1].flip(-1).mul(z_1DT[..., : t + 1]).sum(-1) for t in range(z_1DT.shape[-1])], -1
        )

    jacobian_TT = torch.autograd.functional.jacobian(y_of, v_1DT[0, 4])
    assert operators.operator(part, 4).values == pytest.approx(jacobian_TT.numpy(), abs=1e-4)


def test_chunks_of_channels_change_nothing(make, monkeypatch):
    part = next(trace(make("masked", mixer="hyena")).parts())
    whole = operators.mean_operator(part)
    monkeypatch.setattr(operators, "MOST_NUMBERS", 5 * 36)
    assert operators.mean_operator(part).values == pytest.approx(whole.values, abs=1e-6)


def test_filters_are_those_of_the_layer(make):
    traced = trace(make("masked", mixer="hyena"))
    back, ahead = traced.filters("layers.0.mixer")
    [(back_DK, ahead_DK)] = traced.stacks[0].layers[0].parts[0].module.filters(6)
    assert (back.notes["direction"], ahead.notes["direction"]) == ("back", "ahead")
    assert back.values.shape == (32, 6)
    assert back.values == pytest.approx(back_DK.detach().numpy())
    assert ahead.values == pytest.approx(ahead_DK.detach().numpy())
    assert len(trace(make("language", mixer="hyena")).filters("layers.1.mixer")) == 1


def test_unknown_parts_and_channels_are_refused(make):
    with pytest.raises(UsageError, match="is not a Hyena layer"):
        trace(make("language")).operator("layers.0.mixer", 0)
    traced = trace(make("language", mixer="hyena"))
    for channel in ("x", 1.5, True):
        with pytest.raises(UsageError, match=f"There is no channel {channel!r}"):
            traced.operator("layers.0.mixer", channel=channel)
    with pytest.raises(UsageError, match="There is no channel 32"):
        traced.operator("layers.0.mixer", 32)
    with pytest.raises(UsageError, match="is not a part"):
        traced.operator("layers.7.mixer")
