"""Costs of mixers: what is measured is what is meant, and growth is fitted as it is."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from regard.evaluation.bench import approach, known_mixers
from regard.evaluation.cost import UNFUSED, Setup, decoding, forward_backward, growth, held_bytes, predicted
from regard.hardware import Hardware
from regard.process_memory import available_memory, growth_during
from regard.settings import SystemSettings

T, D = 100, 16
TINY = Setup(Hardware.choose(SystemSettings(device="cpu")), width=D, heads=2, batch=2, rounds=1)


def test_unfused_attention_equals_attention_with_gradients():
    fused, unfused = TINY.layer("attention", T), TINY.layer(UNFUSED, T)
    unfused.load_state_dict(fused.state_dict())
    x, gradient = TINY.vectors(T), torch.randn(2, T, D)
    found = []
    for layer in (fused, unfused):
        own = x.clone().requires_grad_()
        y = layer(own, TINY.context(T))
        found.append([y, *torch.autograd.grad(y, [own, *layer.parameters()], gradient)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("first", [0, 1, 50])
def test_naive_decoding_of_hyena_equals_the_tiled_one_and_forward(first):
    layer, x = TINY.layer("hyena", T).eval(), TINY.vectors(T)
    outputs = []
    with torch.inference_mode():
        for start in (layer.start, layer.start_naive):
            state = start(2, T, x)
            begun = [layer.prefill(x[:, :first], TINY.context(first), state)] if first else []
            steps = torch.stack([layer.step(x[:, t], state) for t in range(first, T)], dim=1)
            outputs.append(torch.cat([*begun, steps], dim=1))
        torch.testing.assert_close(outputs[0], outputs[1], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(outputs[1], layer(x, TINY.context(T)), atol=1e-5, rtol=1e-5)


def test_growth_recovers_a_power_law_from_the_upper_half():
    # Below 1,024 something else rules, as where starting takes longer than computing.
    points = [(length, 7.0) for length in (64, 128, 256, 512)]
    points += [(length, 3e-9 * length**1.7) for length in (1024, 2048, 4096, 8192)]
    found = growth(points)
    assert found is not None
    assert math.isclose(found.exponent, 1.7, rel_tol=1e-9)
    assert (found.first, found.last) == (1024, 8192)


def test_growth_takes_at_least_three_points():
    assert growth([(64, 1.0), (128, 2.0)]) is None
    assert growth([(64, 1.0), (128, 2.0), (256, 0.0)]) is None, "a cost of nothing is not a point in log-log"
    found = growth([(256, 16.0), (64, 1.0), (128, 4.0)])
    assert found is not None and math.isclose(found.exponent, 2.0)
    assert (found.first, found.last) == (64, 256)


def test_what_comes_is_predicted_from_the_last_two_points():
    assert predicted([], 512) == 0
    assert predicted([(256, 3.0)], 512) == pytest.approx(12.0), "of one point, by the square"
    assert predicted([(128, 1.0), (256, 2.0**1.5)], 1024) == pytest.approx(2.0**4.5)
    assert predicted([(128, 5.0), (256, 5.0)], 512) == pytest.approx(10.0), "never less than in proportion"


def test_lengths_are_approached_by_doubling():
    assert list(approach([32, 64, 128])) == [16, 32, 64, 128]
    assert list(approach([100, 1000])) == [16, 32, 64, 100, 200, 400, 800, 1000]


def test_the_growth_of_the_process_is_seen_each_time():
    forty = 40_000_000
    for _ in range(3):
        assert growth_during(lambda: torch.ones(forty // 4).sum()) == pytest.approx(forty, rel=0.1)
    assert growth_during(lambda: None) < forty / 10
    assert available_memory() > forty


def test_unfused_attention_holds_all_scores_and_fused_does_not():
    length = 1024
    scores = 2 * 2 * length**2 * 4  # B · H · T² in float32
    forward_backward(UNFUSED, 64, TINY)  # what libraries load is not counted
    assert forward_backward(UNFUSED, length, TINY).memory > 2 * scores, "weights, and the gradient of the scores"
    assert forward_backward("attention", length, TINY).memory < scores


def test_hyena_is_decoded_in_every_way_and_the_stretch_is_told():
    found = decoding("hyena", T, TINY)
    assert set(found) == {"hyena", "hyena-all", "hyena-naive", "hyena-distilled"}
    assert {name: cost.first for name, cost in found.items()} == {
        "hyena": 0,
        "hyena-all": 0,
        "hyena-naive": T - 64,
        "hyena-distilled": T - 64,
    }
    assert all(0 < cost.time.least <= cost.time.median <= cost.time.most for cost in found.values())


def test_the_state_grows_where_all_is_kept_and_not_where_it_is_not():
    def held(name: str, length: int) -> int:
        return decoding(name, length, dataclasses.replace(TINY, seconds=0.05))[name].state

    assert held("attention", T) == 2 * 2 * T * D * 4, "keys and values of two rows in float32"
    assert held("gru", T) == held("gru", 2 * T) == 2 * D * 4
    assert held("hyena", 2 * T) > 1.5 * held("hyena", T)


def test_shared_memory_is_counted_once():
    whole = torch.zeros(10)
    assert held_bytes({"a": [whole, whole[:5]], "b": (torch.zeros(3), "no tensor")}) == 52


def test_every_registered_mixer_is_measured_with_its_own_settings():
    setup = dataclasses.replace(TINY, seconds=0.05, own={"local": {"window": 7}})
    assert setup.layer("local", T).window == 7
    for name in known_mixers():
        assert forward_backward(name, 32, setup).time.rounds == 1
